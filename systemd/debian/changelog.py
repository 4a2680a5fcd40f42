"""Print debian/changelog, made of NEWS.md: python3 changelog.py TREE SECONDS [VERSION]

The newest section is the package's entry. What is not released yet has a version before the release's own, with the
time (seconds of the epoch) in it, so that a later build of it is an upgrade.
"""

from __future__ import annotations

import re
import sys
import textwrap
import time
from email.utils import formatdate
from pathlib import Path

MAINTAINER = "The nodectl developers <nodectl@localhost>"


def main() -> None:
    """Print it."""
    tree, seconds = Path(sys.argv[1]), int(sys.argv[2])
    (release,) = re.findall(r'^__version__ = "(.+)"$', (tree / "nodectl/__init__.py").read_text(), re.MULTILINE)
    section = (tree / "NEWS.md").read_text(encoding="utf-8").split("\n## ")[1]
    version = release
    if not section.startswith(f"[{release}]"):
        version += time.strftime("~%Y%m%d.%H%M%S", time.gmtime(seconds))
    print(f"nodectl ({sys.argv[3] if len(sys.argv) > 3 else version}) unstable; urgency=medium\n")
    for item in items(section):
        print(textwrap.fill(item, 78, initial_indent="  * ", subsequent_indent="    ", break_long_words=False))
    print(f"\n -- {MAINTAINER}  {formatdate(seconds)}")


def items(section: str) -> list[str]:
    """The items of all lists of a section, each in one line."""
    return [" ".join(item.split()) for item in re.findall(r"^- (.+(?:\n  .+)*)", section, re.MULTILINE)]


main()
