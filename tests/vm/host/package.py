"""The Debian package of this checkout, and one of a higher version, for the machine to install."""

from __future__ import annotations

import subprocess
from pathlib import Path

TREE = Path(__file__).resolve().parents[3]
NEWER = "99.1"  # higher than any that the checkout has


class CannotBuild(Exception):
    """There is no package, or no wheel; str() says why."""


def build(scratch: Path) -> tuple[Path, Path]:
    """nodectl.deb, which lintian has no complaint of, and newer.deb. Raises CannotBuild."""
    packages = scratch / "packages"
    packages.mkdir()
    _run(TREE / "systemd/build-deb", packages)
    (built,) = packages.glob("*.deb")
    return built.rename(scratch / "nodectl.deb"), _newer(scratch)


def _newer(scratch: Path) -> Path:
    """The same package with another version and another file of configuration, put together again."""
    tree = scratch / "newer"
    _run("dpkg-deb", "--raw-extract", scratch / "nodectl.deb", tree)
    _change(tree / "DEBIAN/control", "Version: ", f"Version: {NEWER}")
    _change(tree / "usr/lib/nodectl/site-packages/nodectl/__init__.py", "__version__ = ", f'__version__ = "{NEWER}"')
    with (tree / "etc/nodectl/nodectl.toml").open("a") as file:
        file.write("# This line is new.\n")
    newer = scratch / "newer.deb"
    _run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, newer)
    return newer


def _change(path: Path, beginning: str, line: str) -> None:
    lines = [line if old.startswith(beginning) else old for old in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")


def _run(*words: str | Path) -> None:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBuild(f"{words[0]} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
