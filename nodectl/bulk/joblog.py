"""The log of ended commands in GNU parallel's format: writing, and reading for `--resume`."""

import os
import time
from typing import TYPE_CHECKING

from nodectl.bulk.line_file import LineFile, begins, opened
from nodectl.client.command import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import ClassVar

    from nodectl.bulk.beside import Beside

HEADER = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"
_COLUMNS = 9
_MOST_HELD = 1 << 20  # bytes of lines: with more the disk is waited for
_SOON = 0.05  # seconds
_REST = 10  # times what the disk took: until the next time
_LAST = 2**32 - 1  # the highest number that a step takes
_UNKNOWN, _SUCCEEDED, _FAILED = 0, 1, 2


class JobLog(LineFile):
    """The log of --joblog.

    `before` writes the commands' outputs to disk first. During that, new lines are held back, so that no line is on
    disk before its command's output is.
    """

    __slots__ = ("_held", "_rests_until", "_settling", "before")
    KIND: "ClassVar[str]" = "joblog"
    BEGIN: "ClassVar[bytes]" = HEADER.encode()
    HEAD: "ClassVar[bytes]" = BEGIN

    def __init__(self, path: str, *, keep: bool) -> None:
        super().__init__(path, keep=keep)
        self.before: Sequence[Callable[[], None]] = ()
        self._settling: Beside | None = None
        self._rests_until = 0.0
        self._held = bytearray()

    def add(self, line: bytes) -> None:
        """Add a line, newline included. Raises Failed."""
        if self._is_settling() and len(self._held) < _MOST_HELD:
            self._held += line
        else:
            self._settled()
            super().add(line)

    def settle(self) -> None:
        """Begin to write to disk in the background, unless in progress or done recently. Raises Failed if a previous
        write failed.
        """
        if not self._is_settling():
            self._settled()
            if time.monotonic() >= self._rests_until:
                self._begin()

    def look(self) -> None:
        """Add the held lines when the disk is done. Raises Failed."""
        if self._held and not self._is_settling():
            self._settled()

    @property
    def seconds(self) -> float | None:
        """The seconds until the next call of `look`, None for no need."""
        return _SOON if self._held else None

    def close(self) -> None:
        """Close the log; wait for the disk. Raises Failed."""
        try:
            self._settled()
            self._begin()
            self._settled()
        finally:
            os.close(self._fd)

    def _is_settling(self) -> bool:
        return self._settling is not None and not self._settling.is_over()

    def _begin(self) -> None:
        if self._dirty:
            from nodectl.bulk.beside import Beside  # few have a log

            self._dirty = False
            self._settling = Beside(self._sync)

    def _sync(self) -> None:
        for settle in self.before:
            settle()
        super()._sync()

    def _settled(self) -> None:
        """Wait for the background write, and add the held lines."""
        settling, self._settling = self._settling, None
        if settling is None:
            return
        try:
            settling.end()
        finally:
            self._rests_until = time.monotonic() + _REST * settling.seconds
            held, self._held = self._held, bytearray()
            if held:
                super().add(bytes(held))

    def ended(self, number: int, started: float, seconds: float, received: int, exit_value: int, signal: int,
              line: str) -> None:  # fmt: skip
        """Add the line of an ended command. Raises Failed."""
        text = f"{number}\t:\t{started:.3f}\t{seconds:10.3f}\t0\t{received}\t{exit_value}\t{signal}\t{line}"
        if "\n" in line:
            text = text.replace("\n", "\0")
        self.add(text.encode("utf-8", "surrogateescape") + b"\n")


class Known:
    """The states of the commands in a log, by number."""

    __slots__ = ("_states", "lines")

    def __init__(self) -> None:
        self._states = bytearray()
        self.lines: dict[int, str] = {}  # of the failed ones, where they are wanted

    def note(self, number: int, *, failed: bool) -> None:
        """Note the latest result of a command."""
        if number >= len(self._states):
            self._states.extend(bytes(max(number + 1 - len(self._states), len(self._states) // 2, 1024)))
        self._states[number] = _FAILED if failed else _SUCCEEDED

    def has_ended(self, number: int, *, well: bool = False) -> bool:
        """Return True if the command has ended; with `well`, if successfully."""
        state = self._states[number] if number < len(self._states) else _UNKNOWN
        return state == _SUCCEEDED if well else state != _UNKNOWN


def read(path: str, *, lines: bool = False) -> Known:
    """Read a log; return an empty Known where there is no file. Raises Failed.

    `lines`: keep the lines of failed commands, too.
    """
    known = Known()
    try:
        with open(opened(JobLog.KIND, path, os.O_RDONLY), "rb") as file:
            if os.fstat(file.fileno()).st_size and not begins(file.fileno(), JobLog.BEGIN):
                raise Failed(f"joblog {path}: this is another kind of file", 255)
            for line in file:
                columns = line.split(b"\t", _COLUMNS - 1)
                if len(columns) == _COLUMNS and line.endswith(b"\n"):
                    _note(known, columns, lines=lines)
    except FileNotFoundError:
        return known
    except OSError as error:
        raise Failed(f"joblog {path}: {error.strerror}", 255) from None
    return known


def _note(known: Known, columns: list[bytes], *, lines: bool) -> None:
    if not columns[0].isdigit() or (number := int(columns[0])) > _LAST:
        return  # the header, or what another program has written there
    failed = columns[6].strip() != b"0" or columns[7].strip() != b"0"
    known.note(number, failed=failed)
    if not lines:
        return
    if failed:
        text = columns[8][:-1].replace(b"\0", b"\n")
        known.lines[number] = text.decode("utf-8", "surrogateescape")
    else:
        known.lines.pop(number, None)
