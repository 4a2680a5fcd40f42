"""A file system in user space with one file, as any user may have one: it answers everything but a close(2)."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import prctl

_GETATTR, _OPEN, _RELEASE, _FLUSH, _INIT = 3, 14, 18, 25, 26  # uapi/linux/fuse.h
_HEADER = struct.Struct("=IIQQIIII")
_WITHOUT_ANSWER = {_FLUSH, 2, 36}  # FORGET and INTERRUPT take none
_ATTRIBUTES = struct.pack("=QII6Q10I", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o100666, 1, 0, 0, 0, 4096, 0)
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
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    words = f"fd={device},rootmode=100000,user_id=0,group_id=0,allow_other"
    mounting = ["mount", "-i", "-t", "fuse", "-o", words, "nodectl-test", str(path)]
    subprocess.run(mounting, check=True, pass_fds=[device])
    server = os.fork()
    if server == 0:
        _serve(device, _WITHOUT_ANSWER if attributes else _WITHOUT_ANSWER | {_GETATTR})
    os.close(device)
    try:
        yield
    finally:
        os.kill(server, signal.SIGKILL)  # the file system ends with it, and every wait for it
        os.waitpid(server, 0)
        subprocess.run(["umount", "-l", path], check=True)


def _serve(device: int, unanswered: set[int]) -> None:
    prctl.set_pdeathsig(signal.SIGKILL)
    with contextlib.suppress(OSError):
        while request := os.read(device, 1 << 17):
            _, opcode, unique, *_ = _HEADER.unpack_from(request)
            if opcode in unanswered:
                continue
            answer = _ANSWERS.get(opcode)
            error = -errno.ENOSYS if answer is None else 0
            body = answer or b""
            os.write(device, struct.pack("=IiQ", 16 + len(body), error, unique) + body)
    os._exit(0)
