"""Debian's Slurm, unpacked into a directory and installed nowhere: no account, no unit, no file of the machine is made
or changed.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
_PAUSES = (0, 10, 30)  # seconds
# By its name a program knows that it is a daemon, and reads what only those read: devices of nodes. Debian's packages
# make these links when they are installed.
_DAEMONS = ("slurmctld", "slurmd", "slurmstepd")


class NoSlurm(Exception):
    """There is no Slurm to be had; str() says why."""


def fetch(root: Path, *more: str) -> None:
    """Debian's packages and those they need and this machine lacks, unpacked. Raises NoSlurm."""
    if shutil.which("apt-get") is None:
        raise NoSlurm("no apt-get here: the Slurm is Debian's")
    archives = root.parent / "archives"
    (archives / "partial").mkdir(parents=True)
    apt = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "Acquire::http::Timeout=20"]
    # `--reinstall`: also those that are installed here, so that a Slurm of this machine's is not what is used.
    download = [*apt, "-o", f"Dir::Cache::archives={archives}", "-o", "DPkg::Lock::Timeout=600", "install",
                "--download-only", "--reinstall", "--no-install-recommends", "--yes", *PACKAGES, *more]  # fmt: skip
    done = _run(download)
    for pause in _PAUSES:  # a mirror may be away for a moment
        if done.returncode == 0:
            break
        time.sleep(pause)
        _run([*apt, "update"])
        done = _run(download)
    packages = sorted(archives.glob("*.deb"))
    if done.returncode or not packages:
        raise NoSlurm(f"cannot fetch {' '.join((*PACKAGES, *more))}: {done.stderr.strip()}")
    for package in packages:
        unpacked = _run(["dpkg-deb", "-x", str(package), str(root)])
        if unpacked.returncode:
            raise NoSlurm(unpacked.stderr.strip())
    for name in _DAEMONS:
        (root / "usr/sbin" / name).symlink_to(f"{name}-wlm")


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
