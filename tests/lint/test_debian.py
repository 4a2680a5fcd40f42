"""The Debian package's papers agree with the project's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from lint.sources import ROOT
from nodectl import __version__

pytestmark = pytest.mark.lint

DEBIAN = ROOT / "systemd/debian"
NEWS = """# News

## [Unreleased]

### Added

- One thing,
  in two lines.
- Another.

## [0.0.1] - 2026-01-01

- Old.
"""


def carried() -> dict[str, str]:
    """The versions of the carried libraries."""
    return dict(re.findall(r"^(\w+)==(\S+)", (ROOT / "systemd/carried.txt").read_text(), re.MULTILINE))


def changelog(tree: Path, news: str) -> str:
    (tree / "nodectl").mkdir(exist_ok=True)
    shutil.copy(ROOT / "nodectl/__init__.py", tree / "nodectl")
    (tree / "NEWS.md").write_text(news)
    command = (sys.executable, DEBIAN / "changelog.py", tree, "1767225600")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return str(done.stdout)


def test_every_dependency_is_debians_or_is_carried() -> None:
    """So are those of `nodectl top` and `nodectl web`, which people need not install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = set()
    for requirement in map(Requirement, [*project["dependencies"], *extras["top"], *extras["web"]]):
        if version := carried().get(requirement.name):
            assert requirement.specifier.contains(version)
        else:
            (least,) = requirement.specifier
            asked.add(f"python3-{requirement.name.removeprefix('python-')} (>= {least.version})")
    assert asked == set(re.findall(r"python3-[a-z0-9]+ \(.*?\)", (DEBIAN / "control").read_text()))


def test_every_carried_library_has_its_licence_told() -> None:
    told = (DEBIAN / "copyright").read_text()
    files = set(re.findall(r"^Files: carried/(\w+)\*\n(?:.+\n)*License: .+$", told, re.MULTILINE))
    assert files == set(carried())
    assert set(re.findall(r"^License: (.+)$", told, re.MULTILINE)) == set(
        re.findall(r"^License: (.+)\n ", told, re.MULTILINE)
    )


def test_changelog_of_what_is_not_released_comes_before_the_release(tmp_path: Path) -> None:
    lines = changelog(tmp_path, NEWS).splitlines()
    assert lines[0] == f"nodectl ({__version__}~20260101.000000) unstable; urgency=medium"
    assert lines[2:4] == ["  * One thing, in two lines.", "  * Another."]
    assert lines[-1].endswith(">  Thu, 01 Jan 2026 00:00:00 -0000")


def test_changelog_of_a_release_has_its_version(tmp_path: Path) -> None:
    news = NEWS.replace("[Unreleased]", f"[{__version__}] - 2026-01-01")
    assert changelog(tmp_path, news).startswith(f"nodectl ({__version__}) unstable")


def test_news_has_the_form_that_the_changelog_is_made_of() -> None:
    news = (ROOT / "NEWS.md").read_text()
    assert re.findall(r"^## (.*)$", news, re.MULTILINE)[0] in {"[Unreleased]", f"[{__version__}]"}
    assert set(re.findall(r"^### (.*)$", news, re.MULTILINE)) <= {
        "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security",
    }  # fmt: skip
