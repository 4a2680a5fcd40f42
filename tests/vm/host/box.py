"""A box for Vagrant, of the vm ring's base: for machines that can reach neither a box catalogue nor a package mirror.

    box.py COMMAND [ARG]...

Run as root on the host, it runs the command with NODECTL_BOX and NODECTL_DRIVER in its environment: the box, and what
runs it here; its exit status is the command's. What provisioning and tests would download is in the box: Debian's
packages are installed, Python's are in /wheels, where pip looks for them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from debian import cache
from debian.making import CannotMake, run
from vm.host import image, qemu

BOX = "nodectl.box"
SIZE = "4G"  # sparse
TREE = Path(__file__).resolve().parents[3]
PACKAGES = (
    *image.PACKAGES, "openssh-server", "sudo", "rsync", "libcap-dev", "python3-dev",
)  # fmt: skip
MODULES = (
    *image.MODULES, "drivers/net/virtio_net.ko", "drivers/net/net_failover.ko", "net/core/failover.ko", "net/packet",
)  # fmt: skip
MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_reap.service")
NETWORK = "[Match]\nName=e*\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\n"
PIP = "[global]\nno-index = true\nfind-links = /wheels\n"
METADATA = '{"provider": "libvirt", "format": "qcow2", "virtual_size": 4}\n'  # GiB
# Booted without a boot loader, with the kernel that lies beside the disk.
VAGRANTFILE = """\
Vagrant.configure("2") do |config|
  config.vm.provider :libvirt do |machine|
    machine.disk_bus = "virtio"
    machine.disk_driver cache: "unsafe"
    machine.kernel = File.join(__dir__, "kernel")
    machine.initrd = File.join(__dir__, "initrd")
    machine.cmd_line = "%s"
  end
end
"""
# Vagrant knows its half; each machine gets a pair of its own when it is first reached.
FIRST_KEY = "keys/vagrant.pub"


def main() -> int:
    """The command. Must be root: the box has root's files."""
    with (TREE / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    wheels = (*project["dependencies"], *project["optional-dependencies"]["test"], "setuptools>=77", "wheel")
    recipe = image.Recipe("box", SIZE, PACKAGES, MODULES, wheels, _settle)
    try:
        with cache.kept(cache.directory(), recipe.key, lambda made: _make(made, recipe)) as made:
            trial = qemu.Machine(image.image_in(made), qemu.Topology(1, 1, 1, 1), 512)
            driver = "kvm" if trial.accelerator() == "kvm" else "qemu"
            settings = {"NODECTL_BOX": str(made / BOX), "NODECTL_DRIVER": driver}
            return subprocess.run(sys.argv[1:], env={**os.environ, **settings}, check=False).returncode
    except KeyboardInterrupt:
        return 130
    except (CannotMake, OSError, subprocess.CalledProcessError) as error:
        print(f"vagrant: no box: {error}", file=sys.stderr)
        return 1


def _settle(root: Path) -> None:
    (root / "etc/pip.conf").write_text(PIP)
    (root / "etc/hostname").write_text("nodectl\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 nodectl\n")
    (root / "etc/fstab").write_text("/dev/vda / ext4 noatime 0 0\n")
    (root / "etc/machine-id").write_text("")  # each machine finds one of its own
    (root / "etc/systemd/network/20-dhcp.network").write_text(NETWORK)
    run("chroot", root, "systemctl", "mask", *MASKED)
    run("chroot", root, "systemctl", "enable", "systemd-networkd.service")
    run("chroot", root, "systemctl", "set-default", "multi-user.target")
    run("chroot", root, "useradd", "--create-home", "--shell=/bin/bash", "vagrant")
    sudoers = root / "etc/sudoers.d/vagrant"
    sudoers.write_text("vagrant ALL=(ALL) NOPASSWD: ALL\n")
    sudoers.chmod(0o440)
    keys = root / "home/vagrant/.ssh/authorized_keys"
    keys.parent.mkdir(mode=0o700)
    shutil.copy(_first_key(), keys)
    run("chroot", root, "chown", "-R", "vagrant:vagrant", "/home/vagrant")


def _first_key() -> Path:
    listing = subprocess.run(["dpkg", "-L", "vagrant"], capture_output=True, text=True, check=True).stdout
    (path,) = (line for line in listing.splitlines() if line.endswith(FIRST_KEY))
    return Path(path)


def _make(made: Path, recipe: image.Recipe) -> None:
    image.make(made, recipe)
    (made / "metadata.json").write_text(METADATA)
    parameters = f"{qemu.KERNEL_PARAMETERS} {qemu.CLOCK_PARAMETERS}"
    (made / "Vagrantfile").write_text(VAGRANTFILE % parameters)
    run("qemu-img", "convert", "-O", "qcow2", made / "disk", made / "box.img")
    with tarfile.open(made / BOX, "w") as box:
        for name in ("metadata.json", "Vagrantfile", "box.img", "kernel", "initrd"):
            box.add(made / name, name)
    (made / "box.img").unlink()


if __name__ == "__main__":
    sys.exit(main())
