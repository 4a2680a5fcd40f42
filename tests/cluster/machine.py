"""What makes a process of a bed a machine: a name, its own /tmp, and the names of the others.

Runs as root in namespaces of the process's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# In namespaces of its own for all that a machine has of its own; nothing of it outlives the process `unshare`.
APART = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
NODES = ("n1", "n2", "n3", "n4")
THREE = NODES[:3]  # those of an allocation, where a test says nothing else
HEAD = "head"
CONTROLLER = "slurmctld"  # a process of the head's
ADDRESSES = {HEAD: "10.213.77.1", **{name: f"10.213.77.{number}" for number, name in enumerate(NODES, 11)}}
OWN = ("/tmp", "/dev/shm")
_SSHD = ("sshd", "*", "64999", "65534", "", "/run/sshd", "/usr/sbin/nologin")


def become(name: str, here: Path) -> None:
    """`here` is the bed's directory. Its files `hosts` and `passwd` are those of /etc from now on."""
    Path("/proc/sys/kernel/hostname").write_text(name, encoding="ascii")
    for file in ("hosts", "passwd"):
        _mount("--bind", str(here / file), f"/etc/{file}")
    for place in (*OWN, "/run"):
        _hide(place, sys.prefix, str(Path(__file__).parents[2]), str(here))


def write_hosts(path: Path) -> None:
    """The names of all machines, as each of them finds them."""
    lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for name, address in ADDRESSES.items())]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def write_accounts(path: Path, homes: Mapping[str, Path]) -> None:
    """Those of this machine, of whom these have homes there and may log in; and the one that sshd needs."""
    rows = [line.split(":") for line in Path("/etc/passwd").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row[0] != _SSHD[0]] + [[*_SSHD]]
    rows = [[*row[:5], str(homes[row[0]]), "/bin/sh"] if row[0] in homes else row for row in rows]
    path.write_text("".join(f"{':'.join(row)}\n" for row in rows), encoding="utf-8")


def _hide(place: str, *needed: str) -> None:
    """An empty directory in place of this one, but for those that are needed."""
    kept = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in needed if Path(path).is_relative_to(place)}
    _mount("-t", "tmpfs", "-o", "mode=1777", "bed", place)
    for path, fd in sorted(kept.items()):
        if not Path(path).exists():  # the environment mostly lies in the checkout
            Path(path).mkdir(parents=True)
            _mount("--no-canonicalize", "--bind", f"/proc/self/fd/{fd}", path, fds=(fd,))
        os.close(fd)


def _mount(*words: str, fds: tuple[int, ...] = ()) -> None:
    subprocess.run(["mount", "-n", *words], check=True, stdin=subprocess.DEVNULL, pass_fds=fds)
