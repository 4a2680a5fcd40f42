"""Debian's own packages of Slurm, unpacked and not installed; `./dev test` fetches them for the ring "packages"."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.spank import versions

PLACE = "NODECTL_TEST_PACKAGES"


class Packages:
    """`root` is the directory they are unpacked in; `version` is that of the packages."""

    def __init__(self, root: Path, version: str) -> None:
        self.root = root
        self.version = version

    @property
    def are_ours(self) -> bool:
        """Plugins of other releases are refused for what they say about themselves."""
        first, last = versions.read(versions.DEFAULT)
        return first <= self.release <= last

    @property
    def release(self) -> tuple[int, int]:
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)

    def need_our_version(self) -> None:
        """Skips the test where this distribution has another release of Slurm."""
        if not self.are_ours:
            pytest.skip(f"this distribution has Slurm {self.version}, whose plugins are refused")

    def include(self) -> Path:
        """Where slurm/spank.h is, for plugins that nodectl takes."""
        self.need_our_version()
        return self.root / "usr" / "include"

    def libslurm(self) -> Path:
        """Slurm's library, under the name that plugins linked with it ask for."""
        self.need_our_version()
        (found,) = self.root.glob("usr/lib/*/libslurm.so.[0-9][0-9]")
        return found

    def plugin(self, name: str) -> Path:
        """A compiled plugin of Slurm's."""
        (found,) = self.root.glob(f"usr/lib/*/slurm*/{name}")
        return found


def unpacked() -> Packages:
    """What `./dev test` has fetched; skips where it has not."""
    place = os.environ.get(PLACE)
    if not place:
        pytest.skip(f"{PLACE} is not set: ./dev test fetches the packages")
    return Packages(Path(place), (Path(place) / "version").read_text(encoding="ascii").strip())
