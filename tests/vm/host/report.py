"""What the tests in the machines proved, told as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

PROVED, FAILED, ERROR, SKIPPED = "proved", "failed", "error", "skipped"
_IN_PYTEST = {FAILED: "failed", PROVED: "passed", SKIPPED: "skipped", ERROR: "errors"}  # in its order


@dataclass(frozen=True)
class Row:
    """One test: pytest's name of it; the file it is in and what it proves, both in words of that name; seconds; why it
    did not, in a line and in full.
    """

    test: str
    group: str
    proves: str
    result: str
    seconds: float
    why: str = ""
    said: str = ""

    @classmethod
    def of(cls, test: str, result: str, seconds: float = 0, why: str = "", said: str = "") -> Row:
        """Of pytest's name and result."""
        path, _, name = test.partition("::")
        group = path.rpartition("/")[2].removeprefix("test_").removesuffix(".py").replace("_", " ")
        proves = name.removeprefix("test_").replace("_", " ")
        return cls(test, group, proves, PROVED if result == "passed" else result, seconds, why, said)

    @property
    def is_bad(self) -> bool:
        return self.result in (FAILED, ERROR)


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
