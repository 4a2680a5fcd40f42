#!/bin/sh
# Runs in the machine, as root: installs nodectl as anybody would on a machine of their own.
set -eu

cd /vagrant
./dev setup
systemd/install
nodectl doctor
