"""The latest ended steps, as many as fit into a bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from nodectl.cluster.leader.steps import Caller
from nodectl.model.wire import lean_json

_MOST = 2000
_MOST_BYTES = 16 << 20
_LARGEST = 1 << 20


class History:
    """Records of ended steps, as JSON texts by number of the step, and the calls of the launches."""

    def __init__(self, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._records: OrderedDict[int, str] = OrderedDict()
        self._calls: dict[int, Caller] = {}
        self._by_call: dict[Caller, int] = {}
        self._bytes = 0

    def add(self, number: int, record: Mapping[str, Any], call: Caller | None) -> dict[str, Any]:
        """Add the record of an ended step; return the record as kept, without tasks and nodes if too long."""
        kept = dict(record)
        text = lean_json.dumps(kept)
        if len(text) > _LARGEST:
            kept = shortened(kept)
            text = lean_json.dumps(kept)
        self._records[number] = text
        self._bytes += len(text)
        if call is not None:
            self._calls[number] = call
            self._by_call[call] = number
        while len(self._records) > self._most or self._bytes > self._most_bytes:
            old, gone = self._records.popitem(last=False)
            self._bytes -= len(gone)
            if (caller := self._calls.pop(old, None)) is not None:
                self._by_call.pop(caller, None)
        return kept

    def get(self, number: int) -> dict[str, Any] | None:
        """Return the step's record; None for none."""
        text = self._records.get(number)
        return None if text is None else dict(lean_json.loads(text))  # type: ignore[call-overload]  # an object

    def of_call(self, call: Caller) -> int | None:
        """Return the number of the ended step launched by this call; None for none."""
        return self._by_call.get(call)

    def latest(self, most: int, skip: int) -> list[dict[str, Any]]:
        """Return the latest records, the last to end first."""
        numbers = list(reversed(self._records))[skip : skip + most]
        return [record for number in numbers if (record := self.get(number)) is not None]

    def __len__(self) -> int:
        return len(self._records)

    def entries(self) -> Iterator[tuple[int, dict[str, Any], Caller | None]]:
        """Yield all records with numbers and calls, in the order of the steps' ends."""
        for number in self._records:
            record = self.get(number)
            if record is not None:
                yield number, record, self._calls.get(number)


def shortened(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record without tasks and nodes."""
    return {**record, "tasks": [], "nodes": []}
