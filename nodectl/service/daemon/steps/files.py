"""The files of a step, from which a restarted daemon takes over the step.

They lie in the steps directory, which only root can access. `J.S.json` (`J.batch.json` of a script's step) holds the
daemon's decisions, `.trace` is the flight recorder (the stepd locks it while it lives), `.sock` is the stepd's socket,
`.record` the step's result. `.prolog` and `.epilog` say that one of these has still to end. `.view` is the socket of
the process that copies the step's streams, where there is one. Users read one file, in another directory: `cdi`.
"""

import _socket
import contextlib
import fcntl
import os
import sys
from collections.abc import Mapping

from nodectl.kernel import access_list
from nodectl.model.step import Step
from nodectl.model.step_number import step_name
from nodectl.model.wire import framing, lean_json

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
_PLAIN = (".json", ".trace", ".record")  # all files of a plain step with a record of its stepd
_MOST_TRACED = 17 << 20  # bytes: no trace has more than 16 MiB (tracing/room.py)
_BACKLOG = 16
_CDI = "nodectl.json"


def encoded(value: Mapping[str, object]) -> bytes:
    """Return the bytes of a file with this value."""
    return lean_json.dumps(value).encode("ascii")


class StepFiles:
    """The paths of a step's files, and the operations on the files."""

    __slots__ = ("_is_plain", "stem")

    def __init__(self, directory: str, job: int, step: int) -> None:
        self.stem = f"{directory}/{step_name(job, step)}"
        self._is_plain = False  # no file but the usual ones was made

    @property
    def spec(self) -> str:
        """The path of the spec file, which the stepd reads."""
        return f"{self.stem}.json"

    def write_spec(self, spec: bytes, room: int) -> None:
        """Write the spec file, and reserve `room` bytes for the stepd's record. Raises OSError.

        With the reserved room, a disk that fills up later does not lose the step's result.
        """
        fd = os.open(f"{self.stem}.record.part", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, room)
        finally:
            os.close(fd)
        _write(self.spec, spec, os.O_EXCL)
        self._is_plain = True

    @property
    def cdi(self) -> str:
        """The directory of the step's description of its GPUs for containers, beside the directory of all steps."""
        directory, _, name = self.stem.rpartition("/")
        return f"{os.path.dirname(directory)}/cdi/{name}"

    def write_cdi(self, spec: bytes, uid: int) -> None:
        """Write the description for the step's user, and for no other user. Raises OSError.

        It is root's file: what a user writes there would be in no budget. Without access control lists in the file
        system others may read it too; it names devices, as the queue does.
        """
        self._is_plain = False
        os.makedirs(os.path.dirname(self.cdi), 0o711, exist_ok=True)  # the names tell which steps there are
        os.makedirs(self.cdi, 0o755, exist_ok=True)
        path = f"{self.cdi}/{_CDI}"
        _write(path, spec)
        if not access_list.let_read(path, uid):
            os.chmod(path, 0o644)

    def rewrite_spec(self, step: Step) -> None:
        """Replace the spec file as a whole, for later readers. Raises OSError."""
        self._is_plain = False
        _write(f"{self.spec}.part", encoded(step.as_json()))
        os.rename(f"{self.spec}.part", self.spec)

    def open_trace(self) -> int:
        """Open and lock the trace. The stepd inherits the open file, and holds the lock as long as the file."""
        fd = os.open(f"{self.stem}.trace", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    def append_trace(self) -> int:
        """Open the trace for another process's lines, without a lock."""
        return os.open(f"{self.stem}.trace", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def listen(self) -> int:
        """Create the step's listening socket, on which the stepd will answer."""
        return _listen(f"{self.stem}.sock", _socket.SOCK_STREAM)

    def listen_for_viewers(self) -> int:
        """Create the listening socket of the process that copies the step's streams. Earlier viewers wait there."""
        return _listen(f"{self.stem}.view", _socket.SOCK_SEQPACKET)

    def alive(self) -> bool:
        """Return True while the stepd lives, or a task of the stepd which has not executed the program."""
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
        """Return a file's content, None if missing. A single read(2), because this runs for each ended step."""
        try:
            fd = os.open(f"{self.stem}{suffix}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return os.read(fd, min(os.fstat(fd).st_size, most))
        finally:
            os.close(fd)

    def trace(self) -> bytes:
        """Return the trace, cut to 17 MiB."""
        return self.read(".trace", _MOST_TRACED) or b""

    def connect(self) -> _socket.socket | None:
        """Connect to the stepd's socket. Return None if the stepd is dead, even if a child still holds the socket.

        Raises OSError where this cannot be learnt now: BlockingIOError while other connections crowd the socket of a
        busy stepd.
        """
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        link.setblocking(False)
        try:
            link.connect(f"{self.stem}.sock")
            lives = _runs(framing.peer_of(link).pid)
        except (FileNotFoundError, ConnectionError):
            lives = False
        except OSError:
            link.close()
            raise
        if not lives:
            link.close()
            return None
        return link

    def has_record(self) -> bool:
        """Return True if the stepd has left a record."""
        return os.path.exists(f"{self.stem}.record")

    def record(self) -> Mapping[str, object] | None:
        """Return the record left by the stepd, or None."""
        data = self.read(".record")
        return None if data is None else lean_json.load_object(data)

    def write_record(self, record: Mapping[str, object]) -> None:
        """Write a record in the stepd's place, or a fuller record, for the next daemon in case this daemon dies."""
        self._is_plain = False
        _write(f"{self.stem}.record.part", encoded(record))
        os.rename(f"{self.stem}.record.part", f"{self.stem}.record")

    def begin_prolog(self) -> None:
        """Note the start of the prolog. From now on the job must get an epilog."""
        self._is_plain = False
        os.close(os.open(f"{self.stem}.prolog", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def in_prolog(self) -> bool:
        """Return True while the prolog runs."""
        return os.path.exists(f"{self.stem}.prolog")

    def end_prolog(self) -> None:
        """Note the end of the prolog: the step may begin, and the epilog is still to come."""
        os.rename(f"{self.stem}.prolog", f"{self.stem}.epilog")

    def needs_epilog(self) -> bool:
        """Return True from the beginning of the prolog to the end of the epilog."""
        return os.path.exists(f"{self.stem}.epilog") or self.in_prolog()

    def end_epilog(self) -> None:
        """Note the end of the epilog."""
        self._remove((".prolog", ".epilog"))

    def remove(self, *, may_be_plain: bool = False) -> None:
        """Remove all files of a step recorded in the history. `may_be_plain`: the step had no stack of plugins.

        If the record file exists, it has replaced the file reserved for it.
        """
        if may_be_plain and self._is_plain:
            self._remove((".sock",))  # the stepd removes it first, if it lives that long
            if self._remove(_PLAIN):
                return
        # First, and the spec later: without a spec no daemon would look for it again.
        for remove, path in ((os.unlink, f"{self.cdi}/{_CDI}"), (os.rmdir, self.cdi)):
            with contextlib.suppress(OSError):
                remove(path)
        self._remove(SUFFIXES)

    def _remove(self, suffixes: tuple[str, ...]) -> bool:
        """Remove the files with the suffixes. Return True if all existed."""
        all_there = True
        for suffix in suffixes:
            try:
                os.unlink(f"{self.stem}{suffix}")
            except FileNotFoundError:
                all_there = False
        return all_there


def _listen(path: str, kind: int) -> int:
    sock = _socket.socket(_socket.AF_UNIX, kind)
    os.fchmod(sock.fileno(), 0o600)  # mode of the socket file: users reach their step through the daemon
    sock.bind(path)
    sock.listen(_BACKLOG)
    return sock.detach()


def _runs(pid: int) -> bool:
    """Return True until the process has ended, waited for or not."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return framing.runs(fd)
    finally:
        os.close(fd)


def _write(path: str, content: bytes, flag: int = 0) -> None:
    """Overwrite a file in place: on a full disk the file's own blocks may be the only room left. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, 0o600)
    try:
        data = memoryview(content)
        while data:
            data = data[os.write(fd, data) :]
        if not flag & os.O_EXCL:  # else the file is new
            os.ftruncate(fd, len(content))
    finally:
        os.close(fd)
