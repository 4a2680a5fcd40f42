"""The journal's native protocol, https://systemd.io/JOURNAL_NATIVE_PROTOCOL: a datagram of fields for each line.

No process waits here: if the journal's socket has no room for a line, the line goes the way of plain text, which has
more room; if that has no room either, the line is lost, and counted.

The journal takes only a limited number of lines of a unit. A step's runner shares its unit with users' tasks, which
could use that number up. So the runner names the process that it was forked from, which lives in the service's unit
(unix(7), SCM_CREDENTIALS).
"""

import _socket
import posix as os  # the half in C, as everywhere that steps pay for
import sys

from nodectl.kernel.log.table import BY_NAME, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

STREAM = b"JOURNAL_STREAM"  # in the environment: device and inode of our stderr, set by systemd
_SOCKET = "/run/systemd/journal/socket"
_UNIT = "nodectld.service"  # the unit of the log, also for lines of a step's runner, which lives in another unit
_INT = 4
_FIELDS = {"job": "NODECTL_JOB", "step": "NODECTL_STEP", "uid": "USER_ID"}


def is_kept(environment: "Mapping[bytes, bytes]", fd: int) -> bool:
    """Return True if the journal receives the descriptor's output."""
    stream = environment.get(STREAM)
    if not stream:
        return False
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return stream == b"%d:%d" % (status.st_dev, status.st_ino)


def datagram(line: str, name: str, facts: "Mapping[str, object]") -> bytes:
    """Return the fields of a line of this name in the table."""
    _, number, priority, _, _ = BY_NAME[name]
    fields = {
        "MESSAGE": line,
        "MESSAGE_ID": number,
        "PRIORITY": str(priority),
        "SYSLOG_IDENTIFIER": "nodectl",
        "NODECTL_MESSAGE": name,
        "OBJECT_SYSTEMD_UNIT": _UNIT,
        **{field: str(facts[fact]) for fact, field in _FIELDS.items() if facts.get(fact) is not None},
    }
    return b"".join(_field(field, value.encode("utf-8", "replace")) for field, value in fields.items())


def _field(name: str, value: bytes) -> bytes:
    if b"\n" not in value:
        return b"%s=%s\n" % (name.encode(), value)
    return b"%s\n%s%s\n" % (name.encode(), len(value).to_bytes(8, "little"), value)


class Journal:
    """The way of lines to the journal. `stream` is the descriptor for plain text.

    Forks name the process that made the object.
    """

    __slots__ = ("_lost", "_path", "_pid")

    def __init__(self, path: str = _SOCKET) -> None:
        self._path = path
        self._lost = 0
        self._pid = os.getpid()

    def write(self, line: str, name: str, facts: "Mapping[str, object]", stream: int) -> None:
        """Write a line, as a datagram or as plain text."""
        if self._lost:
            told = f"nodectl: the journal did not take {self._lost} lines"
            if self._write(told, "log-lost", {}, stream):
                self._lost = 0
        if not self._write(line, name, facts, stream):
            self._lost += 1

    def _write(self, line: str, name: str, facts: "Mapping[str, object]", stream: int) -> bool:
        return self._send(datagram(line, name, facts)) or _pour(line, BY_NAME.get(name, ("", "", WARNING))[2], stream)

    def _send(self, data: bytes) -> bool:
        try:
            sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC, 0)
        except OSError:
            return False
        try:
            return self._send_by(sock, data, self._names()) or self._send_by(sock, data, [])
        finally:
            sock.close()

    def _names(self) -> "list[tuple[int, int, bytes]]":
        if os.getpid() == self._pid:
            return []
        ids = self._pid, os.geteuid(), os.getegid()
        raw = b"".join(number.to_bytes(_INT, sys.byteorder) for number in ids)
        return [(_socket.SOL_SOCKET, _socket.SCM_CREDENTIALS, raw)]

    def _send_by(self, sock: "_socket.socket", data: bytes, names: "list[tuple[int, int, bytes]]") -> bool:
        """Send a datagram. Return False without room or journal, or if `names` is refused.

        The kernel refuses `names` for a process that no longer exists, or if only root may name it.
        """
        try:
            sock.sendmsg([data], names, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL, self._path)
        except OSError:
            return False
        return True


def _pour(line: str, priority: object, stream: int) -> bool:
    """Write the line as text into the journal's stream, with sd-daemon(3)'s mark of the priority."""
    data = f"<{priority}>{line}\n".encode("utf-8", "replace")
    try:
        sock = _socket.socket(fileno=os.dup(stream))
    except OSError:
        return False
    try:
        return sock.send(data, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL) == len(data)
    except OSError:
        return False
    finally:
        sock.close()
