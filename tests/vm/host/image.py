"""The machine's disk: a small Debian 12 with systemd, the kernel unpacked beside it, made once and kept in a cache.

Run as root on the host. An image is named by its recipe: this file, the wheels that it holds, the host's Python.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SUITE = "bookworm"
PYTHON = (3, 11)  # of that suite
SIZE = "2G"  # sparse
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "kmod", "libpam-systemd", "login", "passwd", "mount", "procps",
    "iproute2", "e2fsprogs", "numactl", "strace", "python3", "python3-venv", "libcap2",
)  # fmt: skip
TEST_PACKAGES = ("pytest>=8.2", "setuptools>=77", "wheel")
# In the initial RAM disk, each with what it needs: the rest of the kernel's modules stays on the disk.
BOOT_MODULES = ("virtio_pci", "virtio_blk", "virtio_rng", "ext4", "crc32c_generic")
MODULES = ("drivers/virtio", "drivers/block", "drivers/net/dummy.ko", "drivers/net/veth.ko", "drivers/net/macvlan.ko",
           "drivers/char/hw_random", "fs/ext4", "fs/jbd2", "fs/mbcache.ko", "fs/fuse", "fs/overlayfs", "crypto", "lib",
           "arch/x86/crypto", "net/bridge", "net/llc", "net/802")  # fmt: skip
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
# Takes the tests from one disk; its output is the console's; when they are over the machine is.
RING_UNIT = """\
[Unit]
Description=tests brought along on a disk
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mkdir /root/ring && tar -xf /dev/vdb -C /root/ring && exec sh /root/ring/run'
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


def cache_directory() -> Path:
    """Where images are kept: outside of any checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodectl"


def prepare(dependencies: Sequence[str]) -> Image:
    """The image for these Python dependencies, from the cache or newly made. Raises CalledProcessError, OSError."""
    wanted = (*dependencies, *TEST_PACKAGES)
    recipe = hashlib.sha256(Path(__file__).read_bytes() + repr((wanted, sys.version_info[:2])).encode())
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    made = cache / f"vm-{recipe.hexdigest()[:12]}"
    with _alone(cache / "vm.lock"):
        if not made.exists():
            _make(made, wanted)
    return Image(made / "disk", made / "kernel", made / "initrd")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(made: Path, wheels: Sequence[str]) -> None:
    began = time.monotonic()
    print(f"vm: making the machine's disk in {made}", flush=True)
    for old in made.parent.glob("vm-*"):  # of another recipe, or half made
        shutil.rmtree(old)
    scratch = Path(tempfile.mkdtemp(prefix="vm-", dir=made.parent))
    scratch.chmod(0o755)  # apt's own user reads below
    try:
        root = scratch / "root"
        _bootstrap(root)
        _install_wheels(root, scratch / "wheels", wheels)
        _settle(root)
        _kernel(root, scratch)
        _run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", root, scratch / "disk", SIZE)
        shutil.rmtree(root)
        scratch.rename(made)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"vm: made in {time.monotonic() - began:.0f} s", flush=True)


def _run(*argv: str | Path) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout.decode(errors="replace")[-4000:])
        done.check_returncode()


def _bootstrap(root: Path) -> None:
    script = root.with_name("kernel.sh")
    script.write_text(DOWNLOAD_KERNEL)
    without = (f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man"))
    options = ("--variant=apt", '--aptopt=Acquire::Languages "none"', '--aptopt=APT::Install-Recommends "false"',
               "--dpkgopt=force-unsafe-io", f"--include={','.join(PACKAGES)}",
               f'--customize-hook=chroot "$1" sh -es <{script}')  # fmt: skip
    _run("mmdebstrap", *options, *without, SUITE, root)


def _install_wheels(root: Path, wheels: Path, wanted: Sequence[str]) -> None:
    """The environment that systemd/install will fill, with everything but nodectl in it."""
    if sys.version_info[:2] != PYTHON:
        raise OSError(f"wheels are built for the machine's Python {PYTHON[0]}.{PYTHON[1]}, and this is {sys.version}")
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "-w", wheels, *wanted)
    inside = root / "wheels"
    wheels.rename(inside)
    _run("chroot", root, "/usr/bin/python3", "-m", "venv", "/opt/nodectl")
    pip = ("/opt/nodectl/bin/python3", "-m", "pip", "install", "-q", "--no-index", "--find-links=/wheels")
    _run("chroot", root, *pip, *wanted)
    shutil.rmtree(inside)


def _settle(root: Path) -> None:
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


def _kernel(root: Path, scratch: Path) -> None:
    """The kernel as an ELF file, which starts without unpacking itself; its modules, and the initial RAM disk."""
    unpacked = (root / "kernel").rename(scratch / "unpacked")
    (compressed,) = (unpacked / "boot").glob("vmlinuz-*")
    (scratch / "kernel").write_bytes(_vmlinux(compressed.read_bytes()))
    version = compressed.name.removeprefix("vmlinuz-")
    source, target = unpacked / "lib/modules" / version, root / "usr/lib/modules" / version
    wanted = [f"kernel/{name}" for name in MODULES]
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order", *wanted):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy
        copy(source / name, target / name)
    shutil.rmtree(unpacked)
    _run("chroot", root, "depmod", version)
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
