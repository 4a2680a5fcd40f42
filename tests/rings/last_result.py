"""The line of docs/testing.md that tells how the last run of all tests ended, `./dev test --all`."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

PAGE = Path("docs/testing.md")  # of the tree
MARK = "<!-- the line below is written by ./dev test --all -->"


def write(tree: Path, summary: str) -> None:
    """Replaces the line, as of now: a summary is pytest's last line without its rules, `3210 passed in 1800.00s`.

    Any user who may write the page. Raises ValueError where the page has no place for it, OSError.
    """
    page = tree / PAGE
    before, mark, after = page.read_text(encoding="utf-8").partition(f"{MARK}\n")
    if not mark:
        raise ValueError(f"{PAGE} has no line {MARK}")
    rest = after.partition("\n")[2]
    told = line(summary, commit(tree), datetime.datetime.now(datetime.UTC).date())
    page.write_text(f"{before}{mark}{told}\n{rest}", encoding="utf-8")


def line(summary: str, commit: str, day: datetime.date) -> str:
    """What is written there."""
    return f"The last complete run: {day.isoformat()}, commit {commit}, {summary.strip(' =')}."


def commit(tree: Path) -> str:
    """What the tree is: its commit's short name, and whether files differ from it; `unknown` without git. The page does
    not count: this module has changed it.
    """
    git = ["git", "-C", str(tree)]
    told = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        return "unknown"
    others = ["diff", "--quiet", "HEAD", "--", ".", f":!{PAGE}"]
    changed = subprocess.run([*git, *others], capture_output=True, check=False).returncode != 0
    return told.stdout.strip() + (" with changes" if changed else "")
