"""Programs and files of the machine that tests need besides nodectl, and that `./dev test` installs."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import pytest

# Where `./dev test` can install all that tests need, and has to: a test then fails for what is missing.
_ALL_ARE_THERE = os.environ.get("CI") == "true" and shutil.which("apt-get") is not None


def lacks(*needed: str | Path) -> bool:
    """Whether one of them, programs by name and files by path, is missing and the test is to be skipped for it."""
    return not _ALL_ARE_THERE and not all(map(_is_there, needed))


def lacks_library(name: str) -> bool:
    """The same of a shared library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return not _ALL_ARE_THERE
    return False


def need(*needed: str | Path) -> None:
    """Skips the test where one of them is missing; with CI=true it fails."""
    missing = [str(name) for name in needed if not _is_there(name)]
    if missing and _ALL_ARE_THERE:
        pytest.fail(f"no {missing[0]} here: ./dev test has to install it", pytrace=False)
    if missing:
        pytest.skip(f"no {missing[0]} here")


def _is_there(needed: str | Path) -> bool:
    return needed.exists() if isinstance(needed, Path) else shutil.which(needed) is not None
