"""The state of a new leader from a predecessor's journal, and the shortest journal of the present state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.cluster.leader.books import Books
from nodectl.cluster.leader.steps import Caller, Step


def restore(books: Books, journal: Sequence[Mapping[str, Any]]) -> None:
    """Restore the books from a journal. Entries without a known form, as of another version, are left out."""
    running: dict[int, Step] = {}
    epoch = int(books.now)
    for entry in journal:
        try:
            kind = entry["e"]
            if kind == "leader":
                epoch = max(epoch, int(entry["epoch"]) + 1)
            elif kind == "numbers":
                books.numbers.kept = max(books.numbers.kept, int(entry["kept"]))
            elif kind == "step":
                step = Step.from_json(books.job, entry)
                running[step.number] = step
            elif kind == "ended":
                running.pop(int(entry["number"]), None)
                books.history.add(int(entry["number"]), dict(entry["record"]), _caller(entry.get("call")))
        except (KeyError, TypeError, ValueError, IndexError):
            continue
    books.life.begin = books.life.count = epoch << 32
    books.out.keep({"e": "leader", "epoch": epoch})
    books.numbers.next = books.numbers.before = books.numbers.kept  # the numbers used of the last block are unknown
    for step in running.values():
        books.life.restore(step)


def _caller(told: Sequence[Any] | None) -> Caller | None:
    return None if told is None else (int(told[0]), int(told[1]))


def entries(books: Books) -> list[dict[str, Any]]:
    """Return entries for the whole present state."""
    return [
        {"e": "leader", "epoch": books.life.begin >> 32},
        {"e": "numbers", "kept": books.numbers.kept},
        *(
            {"e": "ended", "number": number, "call": call, "record": record}
            for number, record, call in books.history.entries()
        ),
        *({"e": "step", **step.as_json()} for step in books.life.steps.values()),
    ]
