"""The record of the last `./dev bare` that passed: of which state of what decides about it."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PLACE = "tests/bare/passed.toml"
VARIABLE = "BARE_DEBIAN_OF_NODECTL"  # for the tests there; the C client leaves runs with NODECTL_* to Python
# Where packages are named that `./dev test` installs, or that tests install or download; and what runs it all.
DECIDING = (
    "dev", "pyproject.toml", "systemd/distribution", "systemd/build-deb", "tests/bare/bare.py", "tests/bare/inside",
    "tests/bare/machine.py", "tests/debian/making.py", "tests/rings/*.py", "tests/slurm/packages.py",
    "tests/vm/host/image.py",
)  # fmt: skip
_TABLE = re.compile(r"^ring +result +seconds .*\n((?:\S+ +\S+ .*\n)*)", re.MULTILINE)
_ROW = re.compile(r"^(\S+) +passed +([\d.]+) ", re.MULTILINE)
_HEAD = "# Written by `sudo ./dev bare`, when all rings have passed in a bare Debian.\n"


@dataclass(frozen=True)
class Passed:
    """`rings` are the seconds that each took."""

    checksum: str
    commit: str
    date: str
    rings: Mapping[str, float]


def checksum(tree: Path) -> str:
    """Over all files that decide. Raises OSError."""
    files = sorted(path for pattern in DECIDING for path in tree.glob(pattern))
    sums = (f"{path.relative_to(tree)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files)
    return hashlib.sha256("".join(sums).encode()).hexdigest()


def rings_of(output: str) -> dict[str, float]:
    """From the table at the end of what `./dev test` says."""
    tables = _TABLE.findall(output)
    return {name: float(seconds) for name, seconds in _ROW.findall(tables[-1])} if tables else {}


def write(tree: Path, passed: Passed) -> None:
    """Raises OSError."""
    rings = "".join(f"{name} = {seconds:.0f}\n" for name, seconds in passed.rings.items())
    text = f'{_HEAD}checksum = "{passed.checksum}"\ncommit = "{passed.commit}"\ndate = {passed.date}\n\n'
    (tree / PLACE).write_text(f"{text}[rings] # seconds\n{rings}", encoding="utf-8")


def read(tree: Path) -> Passed:
    """Raises OSError, and KeyError or ValueError where it is no such file."""
    found = tomllib.loads((tree / PLACE).read_text(encoding="utf-8"))
    return Passed(found["checksum"], found["commit"], str(found["date"]), found["rings"])
