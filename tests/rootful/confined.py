"""What programs in a step try that is not allowed, and how they fare."""

from __future__ import annotations

import pwd
import shutil
import subprocess
from pathlib import Path

from rootful.node import NOBODY, Node

SOURCE = Path(__file__).with_name("forbidden_calls.c")
EPERM, EACCES, EXDEV, ENOSYS = 1, 13, 18, 38
FILES = """
import errno, os, sys
def attempt(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def flags(path, flags):
    os.close(os.open(path, flags, 0o600))
"""
# By which a program could write to a directory O beside its working directory.
WAYS_OUT = {
    "write": "attempt(lambda: flags(O + '/file', os.O_WRONLY))",
    "append": "attempt(lambda: flags(O + '/file', os.O_RDWR | os.O_APPEND))",
    "create": "attempt(lambda: flags(O + '/new', os.O_WRONLY | os.O_CREAT))",
    "empty": "attempt(lambda: os.truncate(O + '/file', 0))",
    "empty when opened": "attempt(lambda: flags(O + '/file', os.O_RDONLY | os.O_TRUNC))",
    "remove": "attempt(lambda: os.unlink(O + '/file'))",
    "make a directory": "attempt(lambda: os.mkdir(O + '/new'))",
    "make a FIFO": "attempt(lambda: os.mkfifo(O + '/new'))",
    "make a link": "attempt(lambda: os.symlink('x', O + '/new'))",
    "by dots": "attempt(lambda: flags(O + '/../outside/file', os.O_WRONLY))",
    "by a link": "(os.symlink(O, 'out'), attempt(lambda: flags('out/file', os.O_WRONLY)), os.unlink('out'))[1]",
    "by /proc": "attempt(lambda: flags('/proc/self/root' + O + '/file', os.O_WRONLY))",
    "by a hard link": "attempt(lambda: os.link(O + '/file', 'hard'))",
    "move out": "(flags('mine', os.O_CREAT), attempt(lambda: os.rename('mine', O + '/new')), os.unlink('mine'))[1]",
    "move in": "attempt(lambda: os.rename(O + '/file', 'theirs'))",
    "by its directory": "attempt(lambda: os.close(os.open('file', os.O_WRONLY, dir_fd=os.open(O, os.O_RDONLY))))",
}


def program(node: Node, name: str = "forbidden_calls", mode: int = 0o755) -> Path:
    """The program of forbidden_calls.c, where every user finds it."""
    path = node.scratch / name
    if not path.exists():
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-o", path, SOURCE], check=True)
    path.chmod(mode)
    return path


def errors_of(
    node: Node, level: str, *words: str, user: pwd.struct_passwd | None = NOBODY, options: tuple[str, ...] = ()
) -> dict[str, int]:
    """The errno of each attempt, 0 for success, in a step of this level."""
    done = node.run(f"--secure={level}", *options, str(program(node)), *words, user=user)
    assert done.returncode == 0, done.stderr
    return {name: int(number) for name, _, number in (line.rpartition("=") for line in done.stdout.splitlines())}


def files(node: Node, level: str, script: str, *options: str, user: pwd.struct_passwd | None = NOBODY) -> list[str]:
    """What a Python program prints that has `attempt` and `flags`, in a step of this level."""
    python = shutil.which("python3", path="/usr/bin:/bin") or "python3"
    done = node.run(f"--secure={level}", *options, python, "-c", FILES + script, user=user)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def status(node: Node, *words: str, user: pwd.struct_passwd | None = NOBODY) -> dict[str, str]:
    """/proc/self/status of a step's program."""
    done = node.run(*words, "cat", "/proc/self/status", user=user)
    assert done.returncode == 0, done.stderr
    return read_status(done.stdout)


def read_status(text: str) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
