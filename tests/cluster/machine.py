"""What makes a process of a bed a machine: a name, its own /tmp, and the names of the others.

Runs as root in namespaces of the process's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# In namespaces of its own for all that a machine has of its own; nothing of it outlives the process `unshare`.
APART = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
NODES = ("n1", "n2", "n3")
HEAD = "head"
ADDRESSES = {HEAD: "10.213.77.1", **{name: f"10.213.77.{number}" for number, name in enumerate(NODES, 11)}}
OWN = ("/tmp", "/dev/shm")


def become(name: str, here: Path) -> None:
    """`here` is the bed's directory, and /etc/hosts is its file `hosts` from now on."""
    Path("/proc/sys/kernel/hostname").write_text(name, encoding="ascii")
    _mount("--bind", str(here / "hosts"), "/etc/hosts")
    for place in OWN:
        _hide(place)


def write_hosts(path: Path) -> None:
    """The names of all machines, as each of them finds them."""
    lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for name, address in ADDRESSES.items())]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def _hide(place: str) -> None:
    """An empty directory in place of this one, but for what the tests themselves are made of."""
    needed = [path for path in {sys.prefix, str(Path(__file__).parents[2])} if Path(path).is_relative_to(place)]
    kept = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in needed}
    _mount("-t", "tmpfs", "-o", "mode=1777", "bed", place)
    for path, fd in sorted(kept.items()):
        if not Path(path).exists():  # the environment mostly lies in the checkout
            Path(path).mkdir(parents=True)
            _mount("--bind", f"/proc/self/fd/{fd}", path, fds=(fd,))
        os.close(fd)


def _mount(*words: str, fds: tuple[int, ...] = ()) -> None:
    subprocess.run(["mount", "-n", *words], check=True, stdin=subprocess.DEVNULL, pass_fds=fds)
