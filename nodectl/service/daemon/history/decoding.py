"""The JSON in the rows of the history. One malformed row costs no other row, and the log says once which row it is.

A sound database may have such a row: of a program that wrote into the file, of another version, of a disk that turns
bits. Where a single row is wanted, the reader gets `Malformed`; from several rows the malformed ones are left out.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from nodectl import messages

_Row = TypeVar("_Row")
_Result = TypeVar("_Result")
_MOST_TOLD = 100
_told: set[str] = set()


class Malformed(sqlite3.DatabaseError):
    """Raised for a row that cannot be read; str() names the row."""


def decoded(text: str | bytes, whose: str) -> dict[str, Any]:
    """Return the object in the row of `whose`, such as "job 7". Raises Malformed."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise malformed(whose, error) from None
    if not isinstance(found, dict):
        raise malformed(whose, "no object")
    return found


def malformed(whose: str, why: object) -> Malformed:
    """Return the error about the row of `whose`."""
    return Malformed(f"the row of {whose} in history.db is malformed: {why}")


def readable(rows: Iterable[_Row], read: Callable[[_Row], _Result]) -> Iterator[_Result]:
    """Yield what `read` makes of the rows, without those for which it raises Malformed."""
    for row in rows:
        try:
            found = read(row)
        except Malformed as error:
            words = f"{error}; it is left out, and stays in the file"
            if words not in _told and len(_told) < _MOST_TOLD:
                _told.add(words)
                messages.tell("history-damaged", words)
        else:
            yield found
