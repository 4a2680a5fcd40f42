"""Directories that take a minute to make, kept for the next time: whole or not there, whoever is killed when.

Runs on the host. Several runs, of several checkouts, may use one cache at one time: what one uses no other removes.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEPT = 3  # besides the one in use: other checkouts' and yesterday's
_WHOLE = "whole.json"  # the size of every file, written last
_UNFINISHED = "making-"


def directory() -> Path:
    """Where they are kept: outside of any checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodectl"


@contextmanager
def kept(cache: Path, name: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """The directory `name` in the cache, for as long as the context lasts; `make(directory)` fills an empty one.

    Waits for another run that makes one. Raises what `make` raises, and OSError.
    """
    cache.mkdir(parents=True, exist_ok=True)
    found = cache / name
    with _locked(cache / "vm.lock"):
        for dead in cache.glob(f"{_UNFINISHED}*"):
            _remove(dead)
        if not _is_whole(found):
            _remove(found)
            _make(found, make)
        use = os.open(found, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(use, fcntl.LOCK_SH)
        os.utime(found)
        _forget(cache, found)
    try:
        yield found
    finally:
        os.close(use)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another run, which makes something in {path.parent}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(target: Path, make: Callable[[Path], None]) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=target.parent))
    try:
        scratch.chmod(0o755)  # apt's own user reads below
        make(scratch)
        sizes = {path.name: path.stat().st_size for path in scratch.iterdir()}
        (scratch / _WHOLE).write_text(json.dumps(sizes))
        for path in scratch.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        scratch.rename(target)
    finally:
        _remove(scratch)


def _is_whole(directory: Path) -> bool:
    """True unless something is missing, or shorter or longer than it was."""
    try:
        sizes = json.loads((directory / _WHOLE).read_text())
        return all((directory / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _forget(cache: Path, found: Path) -> None:
    """Removes what was not used for the longest time, unless somebody uses it."""
    others = [path for path in cache.iterdir() if path.is_dir() and path != found]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        use = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        except BlockingIOError:
            continue
        finally:
            os.close(use)


def _remove(path: Path) -> None:
    """With everything in it, but not what is mounted there: it may be a system that somebody was killed making."""
    subprocess.run(["rm", "-rf", "--one-file-system", "--", path], check=True)
