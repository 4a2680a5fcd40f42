"""The compiled filters kept by an earlier daemon, so the next daemon need not compile them.

They are used while all they were made of is unchanged: the kernel, the library, our lists. They are not used unless
only root can write where they lie. Runs in the daemon, as root; `origin` in the compiler.
"""

import contextlib
import os
from typing import TYPE_CHECKING

from nodectl.kernel import _kernel, trust
from nodectl.model.wire import lean_json

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "seccomp_programs"  # beneath state_dir
_LONGEST = 1 << 20
_OURS = tuple(
    f"{os.path.dirname(os.path.abspath(__file__))}/{name}.py"
    for name in ("seccomp_compiler", "denied_calls", "confinement")
)


def origin(files: "Iterable[str]") -> dict[str, object]:
    """Return the sources of the programs on this machine, now: `files` and ours. Raises OSError."""
    return {"files": {path: _look(path) for path in (*files, *_OURS)}, **_machine()}


def read(path: str) -> bytes:
    """Return the data written by `keep`, if valid here and now; else b""."""
    try:
        data = trust.read(path, _LONGEST)
        made = lean_json.load_object(data)
        files: dict[str, object] = made["files"]  # type: ignore[assignment]  # root's own words
        # Another installation's programs, of another version, are made of other files.
        is_current = len(files) > len(_OURS) and made == {**made, **origin(files)}
    except (OSError, trust.Untrusted, lean_json.BadJson, KeyError):
        return b""
    return data if is_current else b""


def keep(path: str, data: bytes) -> None:
    """Write the programs down for the next daemon. Raises OSError."""
    new = f"{path}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(new, flags, 0o600), "wb") as file:
            file.write(data)
        os.rename(new, path)
    except OSError:  # the disk is full, or a daemon was killed that had this number: the next one keeps them
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        raise


def _machine() -> dict[str, object]:
    kernel = os.uname()
    return {
        "kernel": [kernel.release, kernel.version, kernel.machine],
        "landlock": _kernel.landlock_abi(),
    }


def _look(path: str) -> list[int]:
    status = os.stat(path)
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]
