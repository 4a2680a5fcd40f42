"""Programs that the kernel does not execute, though nothing is wrong with them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

LONGEST_WORD = 32 * os.sysconf("SC_PAGESIZE")  # with its NUL: execve(2), "Limits on size of arguments and environment"


@contextlib.contextmanager
def being_written(path: Path) -> Iterator[Path]:
    """A program that somebody has open for writing, and that stays. Skips where the kernel executes it all the same."""
    shutil.copy("/bin/true", path)
    with path.open("r+b"):
        with contextlib.suppress(OSError):
            subprocess.run([path], check=True)
            pytest.skip("the kernel executes what is being written")
        yield path
