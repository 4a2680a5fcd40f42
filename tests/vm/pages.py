"""The commands that a page of the documents prints, by the section they stand in, and what else it shows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_INDENTED = re.compile(r"^    (\S(?:.*\\\n)*.*)$", re.MULTILINE)
_SETTING = re.compile(r"\w+ = ")
_REMARK = re.compile(r"  +# .*$")


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def guides() -> list[str]:
    """Those that README links to, and those that these link to."""
    found = ["README.md"]
    for page in found:
        links = re.findall(r"\]\(((?:docs/guides/)?[\w-]+\.md)\)", text(page))
        names = {f"docs/guides/{Path(link).name}" for link in links}
        found += sorted(name for name in names if name not in found and (ROOT / name).exists())
    return found[1:]


def commands(page: str) -> dict[str, list[str]]:
    """What a reader is to type, by section, without its remarks. In a block that has lines with $ the others are
    output.
    """
    found: dict[str, list[str]] = {}
    parts = _HEADING.split(_FENCED.sub("", text(page)))
    for title, part in zip(parts[1::2], parts[2::2], strict=True):
        typed: list[str] = []
        for block in part.split("\n\n"):
            lines = [_REMARK.sub("", line) for line in _INDENTED.findall(block)]
            shown = [line[2:] for line in lines if line.startswith("$ ")]
            typed += shown or [line for line in lines if not _SETTING.match(line)]
        if typed:
            found[title] = typed
    return found


def settings(page: str) -> str:
    """The lines of a configuration that it prints."""
    return "".join(f"{line}\n" for line in _INDENTED.findall(text(page)) if _SETTING.match(line))


def fenced(page: str, language: str) -> str:
    """Its first block in that language; "" is a block without one."""
    found: str = next(block for kind, block in _FENCED.findall(text(page)) if kind == language)
    return found
