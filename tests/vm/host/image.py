"""The machine's disk: a small Debian 12 with systemd, the kernel unpacked beside it, made once and kept in a cache.

Made as root on the host. An image is named by its recipe and this file.
"""

from __future__ import annotations

import hashlib
import inspect
import lzma
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debian import cache
from debian.making import SUITE, CannotMake, run

PYTHON = (3, 11)  # of that suite
SIZE = "2G"  # sparse
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "kmod", "libpam-systemd", "login", "passwd", "mount", "procps",
    "iproute2", "e2fsprogs", "numactl", "strace", "python3", "python3-venv", "libcap2", "gcc", "libc6-dev", "man-db",
    # What the Debian package of nodectl depends on and recommends, besides.
    "debconf", "libseccomp2", "python3-prctl", "python3-psutil", "python3-pyelftools", "python3-pyroute2",
    "bash-completion",
    # What README and guides are followed with.
    "pkgconf", "sudo",
    # What users log in with.
    "openssh-server", "openssh-client", "openssh-sftp-server", "tmux",
    # The Slurm of three machines; in a single one it does not run.
    "munge", "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins",
)  # fmt: skip
# The last is what `nodectl metrics` needs, and guides say so.
TEST_PACKAGES = ("pytest>=8.2", "setuptools>=77", "wheel", "prometheus-client>=0.16")
# In the initial RAM disk, each with what it needs: the rest of the kernel's modules stays on the disk.
BOOT_MODULES = ("virtio_pci", "virtio_blk", "virtio_rng", "ext4", "crc32c_generic")
MODULES = ("drivers/virtio", "drivers/block", "drivers/net/dummy.ko", "drivers/net/veth.ko", "drivers/net/macvlan.ko",
           "drivers/char/hw_random", "fs/ext4", "fs/jbd2", "fs/mbcache.ko", "fs/fuse", "fs/overlayfs", "crypto", "lib",
           "arch/x86/crypto", "net/bridge", "net/llc", "net/802", "drivers/net/virtio_net.ko",
           "drivers/net/net_failover.ko", "net/core/failover.ko",
           "net/unix/unix_diag.ko")  # fmt: skip
# What costs time at each boot and serves nothing in a machine that lives for minutes.
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "getty@tty1.service", "getty-static.service", "serial-getty@ttyS0.service", "modprobe@.service",
    "systemd-udev-trigger.service", "systemd-udev-settle.service", "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service", "systemd-random-seed.service", "systemd-pstore.service",
    "systemd-hwdb-update.service", "systemd-journal-catalog-update.service", "systemd-firstboot.service",
    "systemd-modules-load.service", "systemd-binfmt.service", "kmod-static-nodes.service", "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount", "dev-hugepages.mount", "dev-mqueue.mount",
)  # fmt: skip
# Takes the tests from one disk, once; its output is the console's; when they are over the machine is.
RING_UNIT = """\
[Unit]
Description=tests brought along on a disk
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mkdir -p /root/ring && cd /root/ring && { [ -e run ] || tar -xf /dev/vdb; } && exec sh ./run'
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
[Install]
WantedBy=multi-user.target
"""
# busybox alone, before the disk: loads what the disk needs, and is all that a trial of an accelerator boots.
INIT = """\
#!/busybox sh
/busybox mount -t proc proc /proc
/busybox grep -q ring.trial /proc/cmdline && exec /busybox poweroff -f
/busybox mount -t devtmpfs dev /dev
while read module; do /busybox insmod "$module"; done </modules
until [ -b /dev/vda ]; do /busybox sleep 0.05; done
/busybox mount -t ext4 -o noatime /dev/vda /root
/busybox mount -o move /dev /root/dev
/busybox umount /proc
exec /busybox switch_root /root /sbin/init
"""
DOWNLOAD_KERNEL = """\
cd /tmp
apt-get -qq -o APT::Sandbox::User=root download \
    "$(apt-cache show linux-image-amd64 | sed -n 's/^Depends: \\(linux-image-[^ ,]*\\).*/\\1/p' | head -n 1)"
dpkg-deb -x linux-image-*.deb /kernel
rm linux-image-*.deb
"""


@dataclass(frozen=True)
class Image:
    """The files that QEMU boots."""

    disk: Path
    kernel: Path
    initrd: Path


@dataclass(frozen=True)
class Recipe:
    """What makes one machine's disk another than the next one's."""

    name: str
    size: str
    packages: Sequence[str]
    modules: Sequence[str]  # of the kernel, below its directory of them
    wheels: Sequence[str]  # pip's requirements
    settle: Callable[[Path], None]  # the last hand on the tree of files; the wheels are in /wheels

    @property
    def key(self) -> str:
        """A name for what comes of it."""
        words = (self.size, *self.packages, *self.modules, *self.wheels)
        sources = Path(__file__).read_bytes() + Path(inspect.getfile(self.settle)).read_bytes()
        return f"{self.name}-{hashlib.sha256(sources + repr(words).encode()).hexdigest()[:12]}"


@contextmanager
def prepared(dependencies: Sequence[str]) -> Iterator[Image]:
    """The image with these Python dependencies, from the cache or newly made, nobody's to remove while the context
    lasts. Raises CannotMake, OSError.
    """
    recipe = Recipe("vm", SIZE, PACKAGES, MODULES, (*dependencies, *TEST_PACKAGES), _settle)
    with cache.kept(cache.directory(), recipe.key, lambda made: make(made, recipe)) as made:
        yield image_in(made)


def image_in(directory: Path) -> Image:
    """What `make` has left there."""
    return Image(directory / "disk", directory / "kernel", directory / "initrd")


def make(made: Path, recipe: Recipe) -> None:
    """Fills an empty directory. Raises CannotMake, OSError."""
    if sys.version_info[:2] != PYTHON:
        mine, theirs = (".".join(map(str, version[:2])) for version in (sys.version_info, PYTHON))
        raise CannotMake(f"wheels for the machine's Python {theirs} cannot be made with Python {mine}")
    began = time.monotonic()
    print(f"vm: making the machine's disk in {made.parent}", flush=True)
    root = made / "root"
    _bootstrap(root, recipe.packages)
    run(
        sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "-w", made / "wheels", *recipe.wheels
    )
    (made / "wheels").rename(root / "wheels")
    recipe.settle(root)
    _kernel(root, recipe.modules, made)
    run("mke2fs", "-q", "-t", "ext4", "-m", "0", "-d", root, made / "disk", recipe.size)
    for rest in (root, made / "kernel.sh"):
        run("rm", "-rf", rest)
    print(f"vm: made in {time.monotonic() - began:.0f} s", flush=True)


def _bootstrap(root: Path, packages: Sequence[str]) -> None:
    script = root.with_name("kernel.sh")
    script.write_text(DOWNLOAD_KERNEL)
    without = (f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man"))
    options = ("--variant=apt", '--aptopt=Acquire::Languages "none"', '--aptopt=APT::Install-Recommends "false"',
               "--dpkgopt=force-unsafe-io", f"--include={','.join(packages)}",
               f'--customize-hook=chroot "$1" sh -es <{script}')  # fmt: skip
    run("mmdebstrap", *options, *without, SUITE, root)


def _settle(root: Path) -> None:
    # The environment that systemd/install will fill, with everything but nodectl in it.
    run("chroot", root, "/usr/bin/python3", "-m", "venv", "/opt/nodectl")
    wheels = sorted(f"/wheels/{path.name}" for path in (root / "wheels").iterdir())
    run("chroot", root, "/opt/nodectl/bin/python3", "-m", "pip", "install", "-q", "--no-index", *wheels)
    shutil.rmtree(root / "wheels")
    # Of what is installed from now on the documents stay.
    (root / "etc/dpkg/dpkg.cfg.d/99mmdebstrap").write_text("force-unsafe-io\n")
    run("chroot", root, "systemctl", "disable", "munge", "slurmctld", "slurmd")
    units = root / "etc/systemd/system"
    for name in MASKED:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    (units / "ring.service").write_text(RING_UNIT)
    (units / "multi-user.target.wants/ring.service").symlink_to("../ring.service")
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    (root / "etc/hostname").write_text("nodectl\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost nodectl\n")
    (root / "etc/fstab").write_text("")
    (root / "etc/machine-id").write_text(f"{1:032x}\n")  # the same at every boot: nothing is a first one
    journal = root / "etc/systemd/journald.conf.d/ring.conf"
    journal.parent.mkdir()
    journal.write_text("[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n")


def _kernel(root: Path, modules: Sequence[str], scratch: Path) -> None:
    """The kernel as an ELF file, which starts without unpacking itself; its modules, and the initial RAM disk."""
    unpacked = (root / "kernel").rename(scratch / "unpacked")
    (compressed,) = (unpacked / "boot").glob("vmlinuz-*")
    (scratch / "kernel").write_bytes(_vmlinux(compressed.read_bytes()))
    version = compressed.name.removeprefix("vmlinuz-")
    source, target = unpacked / "lib/modules" / version, root / "usr/lib/modules" / version
    wanted = [f"kernel/{name}" for name in modules]
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order", *wanted):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy
        copy(source / name, target / name)
    shutil.rmtree(unpacked)
    run("chroot", root, "depmod", version)
    _initrd(root, version, scratch)


def _vmlinux(compressed: bytes) -> bytes:
    at = compressed.index(b"\xfd7zXZ\0")  # Debian's kernels are packed with xz
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(compressed[at:])


def _initrd(root: Path, version: str, scratch: Path) -> None:
    tree = scratch / "initrd.d"
    for directory in ("proc", "dev", "root"):
        (tree / directory).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "busybox", tree / "busybox")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    command = ("chroot", root, "modprobe", "--set-version", version, "--show-depends", "--all", *BOOT_MODULES)
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    paths = dict.fromkeys(words[1] for words in map(str.split, shown.splitlines()) if words[0] == "insmod")
    for path in paths:
        shutil.copy(f"{root}{path}", tree)
    (tree / "modules").write_text("".join(f"/{Path(path).name}\n" for path in paths))
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    with (scratch / "initrd").open("wb") as out:
        packing = ("busybox", "cpio", "-o", "-H", "newc")
        subprocess.run(packing, cwd=tree, input=names.encode(), stdout=out, stderr=subprocess.DEVNULL, check=True)
    shutil.rmtree(tree)
