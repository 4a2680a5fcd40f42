"""What the daemon's files about a step hold, and how it is written. Runs in the daemon, as root."""

import os
from collections.abc import Mapping

from nodectl.wire import lean_json


def as_bytes(value: Mapping[str, object]) -> bytes:
    """What a file holds of it."""
    return lean_json.dumps(value).encode("ascii")


def write(path: str, content: bytes, flag: int = 0) -> None:
    """Over what is there: the room that it has may be all that is left. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, 0o600)
    try:
        data = memoryview(content)
        while data:
            data = data[os.write(fd, data) :]
        os.ftruncate(fd, len(content))
    finally:
        os.close(fd)
