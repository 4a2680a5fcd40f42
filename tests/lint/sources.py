"""The tree's own files, for the tests that read them as data."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_CACHES = {"__pycache__", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
NOT_SOURCES = {".git", ".venv", "build", "dist", *_CACHES}


def walk() -> Iterator[Path]:
    for directory, names, files in os.walk(ROOT):
        names[:] = [name for name in names if name not in NOT_SOURCES]
        yield from (Path(directory, name) for name in files)


@cache
def tracked_files() -> tuple[Path, ...]:
    """What git holds; everything in a tree that came without git."""
    if not (ROOT / ".git").exists():
        return tuple(walk())
    # The checkout may belong to another user than the root of these tests.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
    try:
        listing = subprocess.run([*command, "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return tuple(walk())
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return tuple(path for path in paths if path.is_file() and not path.is_symlink())


def modules(*directories: str) -> list[Path]:
    """Python files of the tree below the directories, plugins/ under its own name only."""
    return [path for path in tracked_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in directories]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(), path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"
