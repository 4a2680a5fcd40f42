"""The sources of values: words after :::, files after :::: or -a, standard input.

The first source is read as needed, however long, even endless; all further sources are held in memory, because they are
read again and again.
"""

import itertools
import math
import os
import sys
from typing import TYPE_CHECKING

from nodectl.bulk import lines
from nodectl.client.command import BadOption, Failed

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence

    from nodectl.bulk.ahead import Ahead

    Values = tuple[str, ...]

_MARKS = (":::", ":::+", "::::", "::::+")
STDIN = "-"
_HEXADECIMAL = frozenset("0123456789abcdef")


class Given:
    """A source as typed: words, or a file. `linked`: linked to the previous source."""

    __slots__ = ("file", "linked", "words")

    def __init__(self, *, words: "Sequence[str]" = (), file: str | None = None, linked: bool = False) -> None:
        self.words = words
        self.file = file
        self.linked = linked


def split(argv: "Sequence[str]", files: "Sequence[str]") -> tuple[list[str], list[Given]]:
    """Split the arguments into template words and sources.

    The sources of -a come first; without sources, use standard input.
    """
    template = list(itertools.takewhile(lambda word: word not in _MARKS, argv))
    rest = argv[len(template) :]
    given = [Given(file=file) for file in files]
    while rest:
        mark, *rest = rest
        words = list(itertools.takewhile(lambda word: word not in _MARKS, rest))
        rest = rest[len(words) :]
        linked = mark.endswith("+")
        if linked and not given:
            raise BadOption(f"{mark} links to a source before it, and there is none")
        if mark.startswith("::::"):
            given += [Given(file=word, linked=linked) for word in words]
        else:
            given.append(Given(words=words, linked=linked))
    return template, given or [Given(file=STDIN)]


class Reading:
    """The way to read records.

    `delimiter` separates records, `columns` separates the values of a record; `header`: the first record has names;
    `nonempty`: skip empty records.
    """

    __slots__ = ("columns", "delimiter", "header", "nonempty")

    def __init__(
        self, delimiter: bytes = b"\n", columns: "re.Pattern[str] | None" = None, *, header: bool = False,
        nonempty: bool = False,
    ) -> None:  # fmt: skip
        self.delimiter = delimiter
        self.columns = columns
        self.header = header
        self.nonempty = nonempty

    def values(self, record: str) -> "Values":
        """Return the values of a record."""
        return (record,) if self.columns is None else tuple(self.columns.split(record))


class _Source:
    """An open source. `fd`: see `Lines`."""

    def __init__(self, given: Given, reading: Reading) -> None:
        self._reading = reading
        self.names: Values = ()
        self._lines: lines.Lines | None = None
        self._words: list[str] = []
        self._file = -1
        self._name = ""  # of a file without a record yet
        if given.file is None:
            text = reading.delimiter.decode("latin-1")
            self._words = [record for word in given.words for record in word.removesuffix(text).split(text)]
            self._words.reverse()
        else:
            self._file = 0 if given.file == STDIN else _opened(given.file)
            self._name = "standard input" if given.file == STDIN else given.file
            self._lines = lines.Lines(self._file, self._name, reading.delimiter)
        if reading.header and (first := self._record(wait=True)) is not None:
            self.names = reading.values(first)

    @property
    def fd(self) -> int:
        return self._lines.fd if self._lines else -1

    def read(self) -> None:
        if self._lines:
            self._lines.read()

    def ahead(self) -> "Ahead | None":
        return self._lines.ahead() if self._lines else None

    def take(self, *, wait: bool = False) -> "Values | None":
        """Return the values of the next record; None at the end, or without `wait` if none has come yet."""
        while (record := self._record(wait=wait)) is not None:
            if not (self._reading.nonempty and not record.strip()):
                return self._reading.values(record)
        return None

    def all(self) -> "list[Values]":
        """Return the values of all records left."""
        found = []
        while (values := self.take(wait=True)) is not None:
            found.append(values)
        return found

    def count(self) -> int | None:
        """Return the number of records, None where unknown. Call before taking the first record."""
        if self._lines is None:
            return len(self._words)
        return lines.count(self._file, self._reading.delimiter) if not self._reading.header else None

    def _record(self, *, wait: bool) -> str | None:
        if self._lines is None:
            return self._words.pop() if self._words else None
        record = self._lines.next() if wait else self._lines.take()
        if self._name and record is not None:
            self._look_at_first(record)
        return record

    def _look_at_first(self, record: str) -> None:
        """Warn of lines that end like those of DOS: nobody sees why a command finds no file of such a name."""
        if record.endswith("\r") and self._reading.delimiter == b"\n":
            what = f"{self._name}: lines end with carriage returns (DOS), which are part of the values"
            print(f"nodectl: warning: {what}; dos2unix removes them", file=sys.stderr)
        self._name = ""


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Failed(f"open {path}: {error.strerror}", 255) from None


class Sources:
    """The values of the commands: every combination of the sources, the last source changing fastest.

    `per_command`: the number of records for each command. `linked`: read all sources side by side, and restart shorter
    sources at the end.
    """

    def __init__(
        self, given: "Sequence[Given]", reading: Reading, *, per_command: int = 1, linked: bool = False
    ) -> None:
        opened = [_Source(one, reading) for one in given]
        self._per_command = per_command
        self.names: dict[str, int] = {}
        for index, name in enumerate(name for source in opened for name in source.names):
            self.names.setdefault(name, index)
        self._first = opened[0]
        self._each = 0  # commands of one record of the first source; 0 where unknown
        self._beside: list[_Source] = []
        if linked and len(opened) > 1:
            self._rows: Iterator[Values | None] = iter(_side_by_side(opened))
            self._first = _Source(Given(), Reading())
            return
        last = 1  # the first source that is not linked to the first one
        while last < len(opened) and given[last].linked:
            last += 1
        self._beside = opened[1:last]
        groups: list[list[Values]] = []
        for one, source in zip(given[last:], opened[last:], strict=True):
            rows = source.all()
            groups = [*groups[:-1], _zipped(groups[-1], rows)] if one.linked else [*groups, rows]
        self._each = 0 if self._beside else math.prod(len(group) for group in groups)
        self._rows = self._combined(groups)

    def count(self) -> int | None:
        """Return the number of commands, None where unknown. Call before the first command."""
        first = self._first.count() if self._each else None
        return None if first is None else -(-first * self._each // max(self._per_command, 1))

    @property
    def fd(self) -> int:
        """The descriptor to wait for when `next` returned None; -1 when no more will come."""
        return self._first.fd

    def read(self) -> None:
        """Read once. Raises Failed."""
        self._first.read()

    def ahead(self) -> "Ahead | None":
        """Return the reader of the first source while the commands wait for their turn, None where no writer waits."""
        return self._first.ahead()

    def next(self) -> "Values | None":
        """Return the values of the next command; None when `read` must come first, or at the end, when `fd` is -1."""
        return next(self._rows, None)

    def _combined(self, groups: "list[list[Values]]") -> "Iterator[Values | None]":
        """Yield the values of each command, or None while no value has come yet.

        At the end, the iterator ends.
        """
        gathered: list[str] = []
        records = 0
        while True:
            head = self._first.take()
            if head is None:
                if self._first.fd < 0:
                    break
                yield None
                continue
            for source in self._beside:
                other = source.take(wait=True)
                if other is None:
                    return
                head += other
            if self._per_command == 1 and not groups:
                yield head
                continue
            for rest in itertools.product(*groups):
                values = head + tuple(itertools.chain.from_iterable(rest))
                if self._per_command == 0:
                    yield ()
                    continue
                gathered += values
                records += 1
                if records == self._per_command:
                    yield tuple(gathered)
                    gathered, records = [], 0
        if records:
            yield tuple(gathered)


def _zipped(rows: "Sequence[Values]", others: "Sequence[Values]") -> "list[Values]":
    return [one + other for one, other in zip(rows, others, strict=False)]


def _side_by_side(opened: "Sequence[_Source]") -> "list[Values]":
    """Return the rows of --link; the longest source sets the number of rows."""
    columns = [source.all() for source in opened]
    if not all(columns):
        return []
    longest = max(len(column) for column in columns)
    return [
        tuple(itertools.chain.from_iterable(column[row % len(column)] for column in columns)) for row in range(longest)
    ]


def delimiter(text: str) -> bytes:
    """Parse --delimiter: a character, or a C escape: \\n, \\t, \\0, \\x1e. Raises ValueError."""
    named = {"\\n": b"\n", "\\t": b"\t", "\\0": b"\0", "\\r": b"\r", "\\\\": b"\\"}
    if text in named:
        return named[text]
    if text.startswith("\\x"):
        digits = text[2:]
        if len(digits) not in (1, 2) or not set(digits.lower()) <= _HEXADECIMAL:
            raise ValueError(f"Invalid delimiter {text[:20]!r}")
        return bytes([int(digits, 16)])
    raw = text.encode(sys.getfilesystemencoding(), "surrogateescape")
    if len(raw) != 1:
        raise ValueError(f"Invalid delimiter {text[:20]!r}, one byte is wanted")
    return raw
