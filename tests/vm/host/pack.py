"""What goes into the ring's machines, and what comes out: tar archives as disks."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from vm.host.package import TREE, CannotBuild

RESULTS_BYTES = 64 << 20
PACKAGES = "/opt/nodectl/lib/python3.11/site-packages"  # where systemd/install has pip install, with that Python


def wheel(scratch: Path) -> Path:
    """That of this checkout. Raises CannotBuild."""
    source = scratch / "source"
    for name in ("nodectl", "plugins"):
        shutil.copytree(TREE / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "LICENSE", "README.md"):
        shutil.copy(TREE / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    built = subprocess.run([*pip, "--no-build-isolation", "-w", scratch, source], check=False, capture_output=True)
    if built.returncode != 0:
        raise CannotBuild(f"no wheel: {built.stderr.decode(errors='replace')[-2000:]}")
    (made,) = scratch.glob("*.whl")
    return made


def compile_of(wheel: Path, scratch: Path) -> Path:
    """A directory of what Python would compile of the wheel where the machine installs it: emulated CPUs take long for
    it. Each file is that of a source with the same hash.
    """
    sources, made = scratch / "unpacked", scratch / "compiled"
    shutil.unpack_archive(wheel, sources, "zip")
    words: list[str | Path] = [
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "checked-hash",
        "-s",
        sources,
        "-p",
        PACKAGES,
        sources,
    ]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    for path in sources.rglob("*.pyc"):
        target = made / path.relative_to(sources)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    shutil.rmtree(sources)
    return made


def of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root in the machine trusts root's files only."""
    entry.uid = entry.gid = 0
    entry.mode &= ~0o022
    return entry


def of_sources(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Likewise, of the sources."""
    return None if entry.name.endswith("__pycache__") else of_root(entry)


def settle(
    scratch: Path, settings: Mapping[str, object], pytest: Sequence[str], tests: Mapping[str, Sequence[str]]
) -> None:
    """Writes what `run` in the machine reads: settings, pytest's arguments, and the tests of each life."""
    (scratch / "settings").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    (scratch / "arguments").write_text("".join(f"{word}\n" for word in pytest))
    for life, names in tests.items():
        (scratch / f"{life}.tests").write_text("".join(f"{name}\n" for name in names))


def make_room(out: Path) -> None:
    """An empty disk for results."""
    with out.open("wb") as file:
        file.truncate(RESULTS_BYTES)


def unpack(scratch: Path, out: str) -> None:
    """What the machine brought out, if anything."""
    unpacking = ["tar", "-xf", f"{scratch}/{out}", "-C", str(scratch), "--no-same-owner", "results"]
    subprocess.run(unpacking, capture_output=True, check=False)
