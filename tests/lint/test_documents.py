"""Documents follow the tree: paths and links that they name lead somewhere, and the list of layers is the tests'."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lint.sources import ROOT, tracked_files, where
from lint.test_layers import LAYERS

pytestmark = pytest.mark.lint

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")
PATH = re.compile(r"(?:nodectl|plugins|tests|docs|systemd|vagrant|\.ci)(?:/[\w.-]+)+/?")
LINK = re.compile(r"\]\(([^)\s]+)\)", re.DOTALL)


# A file, and what stands in it: `nodectl/kernel/identity.py` (`become_user`, `effective_user`)
NAMED = re.compile(r"`((?:nodectl|plugins|tests)/[\w./-]+)` \(((?:`[\w.]+`(?:, |,\n)?)+)\)")


def documents() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".md"]


def prose(path: Path) -> str:
    """The document without its fenced blocks, whose lines are kept."""
    return FENCED.sub(lambda block: "\n" * block[0].count("\n"), path.read_text(encoding="utf-8"))


def found(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    for match in pattern.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[1]


def anchors(path: Path) -> set[str]:
    """The names that GitHub gives to the headings."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_nowhere(path: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    goal = path.parent / name if name else path
    return not goal.exists() or bool(anchor and anchor not in anchors(goal))


def test_every_path_that_a_document_names_exists() -> None:
    missing = [
        f"{where(path, line)}: {code}"
        for path in documents()
        for line, code in found(CODE, prose(path))
        if PATH.fullmatch(code) and not (ROOT / code).exists()
    ]
    assert not missing


def test_what_a_document_names_in_a_file_stands_there() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {file}: {name}"
        for path in documents()
        for file, names in NAMED.findall(prose(path))
        for name in re.findall(r"\w+", names)
        if not re.search(rf"\b{name}\b", (ROOT / file).read_text(encoding="utf-8"))
    ]
    assert not missing


def test_every_link_of_a_document_leads_somewhere() -> None:
    broken = [
        f"{where(path, line)}: {target}"
        for path in documents()
        for line, target in found(LINK, prose(path))
        if "://" not in target and leads_nowhere(path, target)
    ]
    assert not broken


def test_the_layers_of_the_documents_are_those_that_are_held() -> None:
    section = prose(ROOT / "docs/architecture.md").partition("\n## Layers\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert told == list(dict.fromkeys(name.partition(".")[0] for name in LAYERS))


def test_every_decision_has_its_number_and_its_date() -> None:
    pages = sorted(path for path in documents() if path.parent == ROOT / "docs/decisions")
    begun = [re.match(r"# (\d+)\. .+\n\nDate: 20\d\d-\d\d-\d\d", path.read_text(encoding="utf-8")) for path in pages]
    assert [(begin and int(begin[1]), path.name[:5]) for begin, path in zip(begun, pages, strict=True)] == [
        (number, f"{number:04}-") for number in range(1, len(pages) + 1)
    ]
