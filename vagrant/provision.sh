#!/bin/sh
# Runs in the machine, as root: what installing needs, nodectl as a service, and then all its tests.
set -eu

cd /vagrant
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -qy --no-install-recommends \
    python3 python3-venv python3-dev gcc libc6-dev libcap-dev libseccomp2 git numactl hwloc-nox

systemd/install
systemctl --no-pager --lines=0 status nodectld.socket nodectld.service
nodectl run -n 2 -l -- id -un

# The tests start daemons of their own and want the machine's cgroups for themselves.
systemctl stop nodectld.service nodectld.socket
./dev test
systemctl start nodectld.socket nodectld.service
