"""The files of one step: what a restarted daemon finds of it.

They lie in the steps directory, which is root's alone. `J.S.json` (`J.batch.json` of a script's step) holds what the
daemon decided, `.trace` is the flight recorder (the stepd locks it while it lives), `.sock` is the stepd's socket,
`.record` the step's result. `.prolog` and `.epilog` say that one of these has still to end. `.view` is the socket
of the process that copies the step's streams, where there is one.
"""

import fcntl
import os
import socket
import sys
from collections.abc import Mapping

from nodectl.model.step import Step
from nodectl.model.step_number import step_name
from nodectl.wire import framing, lean_json

SUFFIXES = (
    ".sock",
    ".json",
    ".json.part",
    ".trace",
    ".record",
    ".record.part",
    ".prolog",
    ".epilog",
    ".stderr",
    ".view",
)
_PLAIN = (".json", ".trace", ".record")  # all that there is of a plain step whose stepd has left its record
_MOST_TRACED = 17 << 20  # bytes: no trace has more than 16 MiB (tracing/room.py)
_BACKLOG = 16


def encoded(value: Mapping[str, object]) -> bytes:
    """The bytes that a file holds for a value."""
    return lean_json.dumps(value).encode("ascii")


class StepFiles:
    """The paths of one step's files, and what is done with them."""

    __slots__ = ("_is_plain", "stem")

    def __init__(self, directory: str, job: int, step: int) -> None:
        self.stem = f"{directory}/{step_name(job, step)}"
        self._is_plain = False  # it is known that nothing rare was made

    @property
    def spec(self) -> str:
        """The path of what the stepd will read."""
        return f"{self.stem}.json"

    def write_spec(self, spec: bytes, room: int) -> None:
        """Writes what the stepd will read, and reserves `room` bytes for the record that it will leave: a disk that is
        full by then does not lose the step's result. Raises OSError.
        """
        fd = os.open(f"{self.stem}.record.part", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, room)
        finally:
            os.close(fd)
        _write(self.spec, spec, os.O_EXCL)
        self._is_plain = True

    def rewrite_spec(self, step: Step) -> None:
        """Replaces the spec file as a whole, for later readers. Raises OSError."""
        self._is_plain = False
        _write(f"{self.spec}.part", encoded(step.as_json()))
        os.rename(f"{self.spec}.part", self.spec)

    def open_trace(self) -> int:
        """Opens the trace and locks it. The stepd inherits the open file, and the lock lasts as long as it."""
        fd = os.open(f"{self.stem}.trace", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    def append_trace(self) -> int:
        """Opens the trace for another process's lines, without a lock."""
        return os.open(f"{self.stem}.trace", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def listen(self) -> int:
        """Makes the step's socket, which listens from now on; the stepd will answer on it."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.fchmod(sock.fileno(), 0o600)  # of what bind makes: the daemon's, users reach their step through it
        sock.bind(f"{self.stem}.sock")
        sock.listen(_BACKLOG)
        return sock.detach()

    def alive(self) -> bool:
        """True while the stepd lives, or a task of it that has not become its program."""
        try:
            fd = os.open(f"{self.stem}.trace", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(fd)

    def read(self, suffix: str, most: int = sys.maxsize) -> bytes | None:
        """A file's content, None when it is not there. One read(2), as this is done for each step that ends."""
        try:
            fd = os.open(f"{self.stem}{suffix}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return os.read(fd, min(os.fstat(fd).st_size, most))
        finally:
            os.close(fd)

    def trace(self) -> bytes:
        """The trace, as far as it is kept: a very long one is cut."""
        return self.read(".trace", _MOST_TRACED) or b""

    def connect(self) -> socket.socket | None:
        """A connection to the stepd's socket, None when it does not live: its children may hold the socket still.
        Raises BlockingIOError while others crowd the socket of a stepd that is busy.
        """
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.setblocking(False)
        try:
            link.connect(f"{self.stem}.sock")
        except BlockingIOError:
            link.close()
            raise
        except OSError:
            link.close()
            return None
        if not _runs(framing.peer_of(link).pid):
            link.close()
            return None
        return link

    def has_record(self) -> bool:
        """True when the stepd has left one."""
        return os.path.exists(f"{self.stem}.record")

    def record(self) -> Mapping[str, object] | None:
        """The record the stepd left, None if it left none."""
        data = self.read(".record")
        return None if data is None else lean_json.load_object(data)

    def write_record(self, record: Mapping[str, object]) -> None:
        """Writes a record in the stepd's place, or with more than it knew, for the next daemon should this one die."""
        self._is_plain = False
        _write(f"{self.stem}.record.part", encoded(record))
        os.rename(f"{self.stem}.record.part", f"{self.stem}.record")

    def begin_prolog(self) -> None:
        """From now on the job must get an epilog."""
        self._is_plain = False
        os.close(os.open(f"{self.stem}.prolog", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def in_prolog(self) -> bool:
        """True while the prolog runs."""
        return os.path.exists(f"{self.stem}.prolog")

    def end_prolog(self) -> None:
        """The prolog is over and the step may begin; the epilog is still to come."""
        os.rename(f"{self.stem}.prolog", f"{self.stem}.epilog")

    def needs_epilog(self) -> bool:
        """True from the beginning of the prolog to the end of the epilog."""
        return os.path.exists(f"{self.stem}.epilog") or self.in_prolog()

    def end_epilog(self) -> None:
        """The epilog is over."""
        self._remove((".prolog", ".epilog"))

    def remove(self, *, may_be_plain: bool = False) -> None:
        """Removes all files of a step that is in the history. `may_be_plain`: no plugin was stacked. A record that is
        there has taken the place of what was reserved for it.
        """
        if may_be_plain and self._is_plain:
            self._remove((".sock",))  # its stepd removes it first, if it lives that long
            if self._remove(_PLAIN):
                return
        self._remove(SUFFIXES)

    def _remove(self, suffixes: tuple[str, ...]) -> bool:
        """True when all were there."""
        all_there = True
        for suffix in suffixes:
            try:
                os.unlink(f"{self.stem}{suffix}")
            except FileNotFoundError:
                all_there = False
        return all_there


def _runs(pid: int) -> bool:
    """True while the process has not ended, waited for or not."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return framing.runs(fd)
    finally:
        os.close(fd)


def _write(path: str, content: bytes, flag: int = 0) -> None:
    """Writes over what is there: on a full disk the room that the file has may be all that is left. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, 0o600)
    try:
        data = memoryview(content)
        while data:
            data = data[os.write(fd, data) :]
        os.ftruncate(fd, len(content))
    finally:
        os.close(fd)
