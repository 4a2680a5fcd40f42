"""What the tests in the machine proved: read from JUnit's XML, told as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

PROVED, FAILED, ERROR, SKIPPED = "proved", "failed", "error", "skipped"
_RESULTS = {"failure": FAILED, "error": ERROR, "skipped": SKIPPED}
_IN_PYTEST = {FAILED: "failed", PROVED: "passed", SKIPPED: "skipped", ERROR: "errors"}  # in its order


@dataclass(frozen=True)
class Row:
    """One test: the file it is in and what it proves, both in words of its name; seconds; why it did not."""

    group: str
    proves: str
    result: str
    seconds: float
    why: str


def read(path: Path) -> Iterator[Row]:
    """The tests of one run of pytest, in their order; one that failed and could not clean up has one row."""
    rows: dict[tuple[str, str], Row] = {}
    for case in ElementTree.parse(path).iter("testcase"):  # noqa: S314  # written by our own machine
        group = case.get("classname", "").rpartition(".")[2].removeprefix("test_").replace("_", " ")
        proves = case.get("name", "").removeprefix("test_").replace("_", " ")
        bad = [child for child in case if child.tag in _RESULTS]
        result = _RESULTS[bad[0].tag] if bad else PROVED
        why = "; ".join(child.get("message", "") for child in bad)
        row = Row(group, proves, result, float(case.get("time", "0")), why)
        before = rows.get((group, proves))
        rows[group, proves] = row if before is None or before.result == PROVED else before
    return iter(rows.values())


def count(rows: Iterable[Row]) -> dict[str, int]:
    """How many there are of each result."""
    rows = tuple(rows)
    return {result: sum(row.result == result for row in rows) for result in (PROVED, FAILED, ERROR, SKIPPED)}


def as_text(rows: Iterable[Row]) -> str:
    """A line a test, and one more of why it did not prove it."""
    return "".join(
        f"{row.result:8}{row.seconds:7.1f} s  {row.group}: {row.proves}\n"
        + (f"{'':18}{row.why.partition(chr(10))[0]}\n" if row.why else "")
        for row in rows
    )


def as_json(rows: Iterable[Row], about: Mapping[str, object]) -> str:
    """Everything; `about` is what is known of the run."""
    rows = tuple(rows)
    return json.dumps({**about, "counts": count(rows), "tests": [asdict(row) for row in rows]}, indent=1) + "\n"


def last_line(counts: Mapping[str, int], seconds: float) -> str:
    """Pytest's own form of it."""
    words = ", ".join(f"{counts[result]} {word}" for result, word in _IN_PYTEST.items() if counts.get(result))
    return f"===== {words or 'no tests ran'} in {seconds:.2f}s ====="
