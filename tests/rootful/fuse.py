"""A file system in user space with one file, as any user may have one: it does not answer whoever closes it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import prctl

_GETATTR, _OPEN, _RELEASE, _FLUSH, _INIT, _OPENDIR = 3, 14, 18, 25, 26, 27  # uapi/linux/fuse.h
_HEADER = struct.Struct("=IIQQIIII")
_TAKE_NO_ANSWER = (2, 36)  # FORGET and INTERRUPT
_WITHOUT_ANSWER = {_FLUSH, *_TAKE_NO_ANSWER}
_ATTRIBUTES = struct.pack("=QII6Q10I", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o100666, 1, 0, 0, 0, 4096, 0)
_LOOKUP, _WRITE = 1, 16
_WRITES_LATE = 1 << 16  # FUSE_WRITEBACK_CACHE
_ANSWERS = {
    _INIT: struct.pack("=IIIIHHIIHHI7I", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0, *[0] * 7),
    _GETATTR: _ATTRIBUTES,
    _OPEN: struct.pack("=QII", 0, 0, 0),
    _RELEASE: b"",
}


@contextlib.contextmanager
def unanswered_file(path: Path, *, attributes: bool = True) -> Iterator[None]:
    """At `path`: whoever closes it waits until the block is left. Not to be opened here, as every child would wait.

    Without `attributes` whoever looks at it (fstat(2)) waits as well.
    """
    path.touch()
    with _mounted(path, _WITHOUT_ANSWER if attributes else _WITHOUT_ANSWER | {_GETATTR}, _ANSWERS):
        yield


@contextlib.contextmanager
def unwritten_file(path: Path) -> Iterator[None]:
    """At `path`: the kernel writes late what it is given, and that is not answered until the block is left. Whoever has
    the last copy of a descriptor waits for that, wherever it is let go of, if another one was written to meanwhile.
    """
    late = struct.pack("=IIIIHHIIHHI7I", 7, 31, 0, _WRITES_LATE, 0, 0, 4096, 1, 0, 0, 0, *[0] * 7)
    path.touch()
    with _mounted(path, {_WRITE, *_TAKE_NO_ANSWER}, {**_ANSWERS, _INIT: late, _FLUSH: b""}):
        yield


@contextlib.contextmanager
def unanswered_directory(path: Path) -> Iterator[None]:
    """At `path`: whoever looks for a name in it waits until the block is left."""
    path.mkdir()
    with _mounted(path, {_LOOKUP, *_TAKE_NO_ANSWER}, _ANSWERS, kind="040000"):
        yield


@contextlib.contextmanager
def unopened_directory(path: Path) -> Iterator[None]:
    """On the directory `path`: whoever opens it waits until the block is left."""
    with _mounted(path, {_OPENDIR, *_TAKE_NO_ANSWER}, _ANSWERS, kind="040000"):
        yield


@contextlib.contextmanager
def _mounted(path: Path, unanswered: set[int], answers: Mapping[int, bytes], *, kind: str = "100000") -> Iterator[None]:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    words = f"fd={device},rootmode={kind},user_id=0,group_id=0,allow_other"
    mounting = ["mount", "-i", "-t", "fuse", "-o", words, "nodectl-test", str(path)]
    subprocess.run(mounting, check=True, pass_fds=[device])
    server = os.fork()
    if server == 0:
        _serve(device, unanswered, answers)
    os.close(device)
    try:
        yield
    finally:
        os.kill(server, signal.SIGKILL)  # the file system ends with it, and every wait for it
        os.waitpid(server, 0)
        subprocess.run(["umount", "-l", path], check=True)


def _serve(device: int, unanswered: set[int], answers: Mapping[int, bytes]) -> None:
    prctl.set_pdeathsig(signal.SIGKILL)
    with contextlib.suppress(OSError):
        while request := os.read(device, 1 << 17):
            _, opcode, unique, *_ = _HEADER.unpack_from(request)
            if opcode in unanswered:
                continue
            answer = answers.get(opcode)
            error = -errno.ENOSYS if answer is None else 0
            body = answer or b""
            os.write(device, struct.pack("=IiQ", 16 + len(body), error, unique) + body)
    os._exit(0)
