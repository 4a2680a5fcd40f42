"""The log of what has ended: GNU parallel's format, one write(2) for each line.

A line is written when its command has ended, and never changed. So what a log tells has happened, whatever became of
the command, of its step or of the machine since.
"""

import fcntl
import os

from nodectl.client.command import Failed

HEADER = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"
_CHUNK = 1 << 20
_COLUMNS = 9
_LAST = 2**32 - 1  # the highest number that a step takes
_UNKNOWN, _SUCCEEDED, _FAILED = 0, 1, 2


class JobLog:
    """The log, open for more. `keep`: what is in it stays. Raises Failed."""

    __slots__ = ("_dirty", "_fd", "_path")

    def __init__(self, path: str, *, keep: bool) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o666)
            self._lock()
            size = os.fstat(self._fd).st_size
            if keep and size:
                self._mend(size)
            elif size:
                os.ftruncate(self._fd, 0)
            if not os.fstat(self._fd).st_size:
                self._write(HEADER.encode())
        except OSError as error:
            raise Failed(f"joblog {path}: {error.strerror}", 255) from None
        self._dirty = False

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failed(f"joblog {self._path}: another nodectl bulk is writing it", 255) from None
        except OSError:
            return  # a file system without locks

    def _mend(self, size: int) -> None:
        """Cuts off what was not written whole: what a full disk or a lost machine has left at the end."""
        if not is_log(self._fd):
            raise Failed(f"joblog {self._path}: this is another kind of file", 255)
        end = size
        tail = b""
        while end:
            at = max(0, end - _CHUNK)
            tail = os.pread(self._fd, end - at, at)
            cut = tail.rstrip(b"\0")  # blocks that were allocated and never written
            whole = cut.rfind(b"\n") + 1
            if whole:
                end = at + whole
                break
            end = at
        if end != size:
            os.ftruncate(self._fd, end)

    def ended(self, number: int, started: float, seconds: float, received: int, exit_value: int, signal: int,
              line: str) -> None:  # fmt: skip
        """One command. Raises Failed."""
        text = f"{number}\t:\t{started:.3f}\t{seconds:10.3f}\t0\t{received}\t{exit_value}\t{signal}\t{line}"
        if "\n" in line:
            text = text.replace("\n", "\0")
        try:
            self._write(text.encode("utf-8", "surrogateescape") + b"\n")
        except OSError as error:
            raise Failed(f"joblog {self._path}: {error.strerror}", 255) from None
        self._dirty = True

    def _write(self, data: bytes) -> None:
        while (written := os.write(self._fd, data)) < len(data):  # a disk is full: in the end it fails with the reason
            data = data[written:]

    def settle(self) -> None:
        """To the disk, that it outlives the machine."""
        if not self._dirty:
            return
        self._dirty = False
        try:
            os.fdatasync(self._fd)
        except OSError:
            return  # a terminal, a pipe

    def close(self) -> None:
        """Nothing more comes."""
        self.settle()
        os.close(self._fd)


def is_log(fd: int) -> bool:
    """Whether a file begins as a log does, or with a part of that."""
    begin = os.pread(fd, len(HEADER), 0)
    return begin.startswith(HEADER.encode()) or HEADER.encode().startswith(begin.rstrip(b"\0"))


class Known:
    """What a log tells of the commands in it, by number."""

    __slots__ = ("_states", "lines")

    def __init__(self) -> None:
        self._states = bytearray()
        self.lines: dict[int, str] = {}  # of the failed ones, where they are wanted

    def note(self, number: int, *, failed: bool) -> None:
        """The latest word on it."""
        if number >= len(self._states):
            self._states.extend(bytes(max(number + 1 - len(self._states), len(self._states) // 2, 1024)))
        self._states[number] = _FAILED if failed else _SUCCEEDED

    def has_ended(self, number: int, *, well: bool = False) -> bool:
        """Whether it has ended, or `well`."""
        state = self._states[number] if number < len(self._states) else _UNKNOWN
        return state == _SUCCEEDED if well else state != _UNKNOWN


def read(path: str, *, lines: bool = False) -> Known:
    """What a log tells; nothing where there is none. `lines`: those of failed commands too. Raises Failed."""
    known = Known()
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size and not is_log(file.fileno()):
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
