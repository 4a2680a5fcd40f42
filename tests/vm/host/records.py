"""What the machine tells over its second serial line, as it comes: that it lives, each test that begins and ends."""

from __future__ import annotations

import json
import time
from pathlib import Path

from vm.host.report import Row


class Records:
    """Of one ring, whatever machines it takes: what is known of each test. A file of lines of JSON is read as QEMU
    writes it; a line that a machine did not finish is no record.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}  # by test
        self.running = ""  # the test that has begun and not ended
        self.over: dict[str, float] = {}  # when the run of a life's tests ended, on this host's clock
        self.heard = time.monotonic()  # when there was the last sign of life

    def read(self, text: str) -> None:
        """Whole lines."""
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # two lives of a machine in one line: the first was cut off
            self.heard = time.monotonic()
            if "begun" in record:
                self.running = record["begun"]
            elif "ended" in record:
                self.running = ""
                self.note(Row.of(record.pop("ended"), **record))
            elif "over" in record:
                self.over[record["over"]] = self.heard

    def note(self, row: Row) -> None:
        """A result, which does not make a worse one of the same test forgotten."""
        before = self.rows.get(row.test)
        if before is None or not before.is_bad:
            self.rows[row.test] = row

    def forget(self, tests: list[str]) -> None:
        """What is to be proved again. That a test failed stays."""
        for test in tests:
            if test in self.rows and not self.rows[test].is_bad:
                del self.rows[test]


class Line:
    """The end of a serial line on the host: a file to which QEMU adds."""

    def __init__(self, path: Path, records: Records) -> None:
        path.touch()
        self._file = path.open(encoding="utf-8", errors="replace")
        self._records = records
        self._part = ""
        self.heard = time.monotonic()

    def listen(self) -> None:
        """Reads what has come."""
        if text := self._file.read():
            whole, end, self._part = (self._part + text).rpartition("\n")
            self._records.read(whole + end)
            self.heard = time.monotonic()

    def close(self) -> None:
        self._file.close()
