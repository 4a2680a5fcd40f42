"""Builds the site of all documents: `stage.py DIR`. `./dev site DIR` calls it.

Its pages are docs/, the documents at the top of the tree, and what nodectl.cli.manual makes of the tables of the
program. They are put together in a directory for a moment, where links to what is no page (sources) become its name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from nodectl.cli.catalogue import commands
from nodectl.cli.manual.__main__ import as_markdown

ROOT = Path(__file__).resolve().parents[2]
SITE = Path("docs/site")
DECISIONS = Path("docs/decisions")
MANUAL = re.compile(r"`(?:man )?(nodectl[\w.-]*|plugstack\.conf)`(?:\((\d)\))?")
LINK = re.compile(r"(!?)\[((?:[^\]`]|`[^`]*`)*)\]\(([^)\s]+)\)")
# What stands in the column beside each page, below these titles. The other sections of the manual are added to the
# reference; documents that are not here follow as "More".
CONTENTS = {
    "Begin": "tutorial guides/without-root commands",
    "A machine for many": (
        "guides/lab guides/service guides/confinement guides/jobs guides/gpus guides/metrics-and-logs failures"
    ),
    "Your programs": "guides/tools guides/layout guides/many-commands python mpi terminals",
    "Your plugins": "guides/plugins guides/spank-plugins guides/select-plugins",
    "From a cluster": "slurm-commands differences-from-slurm",
    "What happens": "guides/read-a-launch guides/socket guides/machines",
    "Reference": "reference/nodectl.1",
    "Why": "architecture glossary decisions/index measurements cluster-scale limits",
    "Work on it": "contributing hacking recipes testing security news",
}


def pages() -> dict[Path, Path]:
    """Where each file of the tree stands in the site."""
    found = {Path("README.md"): Path("index.md"), DECISIONS / "index.md": Path("decisions/index.md")}
    for path in sorted(ROOT.glob("*.md")):
        found.setdefault(path.relative_to(ROOT), Path(path.name.lower()))
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file() and SITE not in path.relative_to(ROOT).parents:
            found[path.relative_to(ROOT)] = path.relative_to(ROOT / "docs")
    return found


def linked(text: str, source: Path, known: dict[Path, Path]) -> str:
    """The text of a page with the links that it has to have in the site."""

    def link(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        name, hash_, anchor = target.partition("#")
        if "://" in target or not name:
            return match[0]
        goal = Path(os.path.normpath(source.parent / name))
        goal = DECISIONS / "index.md" if goal == DECISIONS else goal
        if goal not in known:
            return words
        place = os.path.relpath(known[goal], known[source].parent)
        return f"{mark}[{words}]({place}{hash_}{anchor})"

    return LINK.sub(link, text)


def with_manual(text: str, page: Path, sections: dict[str, str]) -> str:
    """The text of a page where what it says of the manual, as `man nodectl-run`, leads there."""

    def link(match: re.Match[str]) -> str:
        name, section = match.groups()
        section = section or sections.get(name, "") if match[0].startswith("`man ") or section else ""
        if not section:
            return match[0]
        place = os.path.relpath(f"reference/{name}.{section}.md", page.parent)
        return f"[{match[0]}]({place})"

    return MANUAL.sub(link, text)


def contents(title: str, names: list[str], *, hidden: bool = True) -> str:
    """A part of the column beside each page."""
    options = [*([":hidden:"] if hidden else []), *([f":caption: {title}"] if title else []), ":maxdepth: 1"]
    return "\n".join(["", "```{toctree}", *options, "", *names, "```", ""])


def index(readme: str, pages: Iterable[Path]) -> str:
    """The first page, with all that stands in the column."""
    names = sorted(str(page.with_suffix("")) for page in pages)
    parts = {title: listed.split() for title, listed in CONTENTS.items()}
    parts["Reference"] += [name for name in names if name.startswith("reference/") and not name.endswith(".1")]
    listed = {"index", *(name for part in parts.values() for name in part)}
    elsewhere = ("reference/", "decisions/")
    parts["More"] = [name for name in names if name not in listed and not name.startswith(elsewhere)]
    return readme + "".join(contents(title, part) for title, part in parts.items() if part)


def decisions(known: dict[Path, Path]) -> str:
    """The page of all decisions."""
    names = sorted(path.stem for path in known if path.parent == DECISIONS and path.stem != "index")
    words = "Each page says what was asked, what was decided, and what it costs."
    return f"# Decisions\n\n{words}\n{contents('', names, hidden=False)}"


def texts(known: dict[Path, Path]) -> dict[Path, str]:
    """The text of each page of the site."""
    found = {Path("reference", name): text for name, text in as_markdown().items()}
    sections = {path.stem.rpartition(".")[0]: path.stem.rpartition(".")[2] for path in reversed(found)}
    found[Path("reference/nodectl.1.md")] += contents("", [f"nodectl-{name}.1" for name in commands()])
    found[known[DECISIONS / "index.md"]] = decisions(known)
    for source, page in known.items():
        if source.suffix == ".md" and page not in found:
            found[page] = linked((ROOT / source).read_text(encoding="utf-8"), source, known)
    found = {page: with_manual(text, page, sections) for page, text in found.items()}
    found[Path("index.md")] = index(found[Path("index.md")], found)
    return found


def stage(directory: Path) -> None:
    """Puts all pages, pictures and settings below a directory."""
    known = pages()
    for page, text in texts(known).items():
        (directory / page).parent.mkdir(parents=True, exist_ok=True)
        (directory / page).write_text(text, encoding="utf-8")
    for source, page in known.items():
        if source.suffix != ".md":
            (directory / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / source, directory / page)
    (directory / "_static").mkdir()
    shutil.copyfile(ROOT / SITE / "conf.py", directory / "conf.py")
    shutil.copyfile(ROOT / SITE / "site.css", directory / "_static/site.css")


def main() -> int:
    """Build it; Sphinx' exit status, which is not 0 after a warning."""
    with tempfile.TemporaryDirectory() as scratch:
        staged = Path(scratch, "pages")
        staged.mkdir()
        stage(staged)
        words = ["-W", "--keep-going", "-q", "-d", f"{scratch}/trees", str(staged), sys.argv[1]]
        return subprocess.run([sys.executable, "-m", "sphinx", *words], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
