"""A relay: a process of the step copying streams where this cannot be avoided, as the user, never as root.

The output relay labels lines (-l), reads the ptys of -u, and shows the output to attached viewers. It is in the stepd's
cgroup, so that a kill of the step's processes does not cut off their output, and it ends when every stream that it
reads has ended. The input relay copies one stdin to several tasks. It is killed with the step, because a terminal's
input has no end.
"""

import errno
import os
import select
import stat

from nodectl.kernel import children, signals, user_path
from nodectl.kernel.closing import close_all_but
from nodectl.launch.streams import client_streams
from nodectl.launch.streams.stdio import OUT, of_client
from nodectl.launch.streams.viewers import Viewers
from nodectl.model.wire import terminal_packets as packets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import NoReturn

    from nodectl.launch.streams.stdio import Copy

_CHUNK = 65536
_LONGEST_LINE = 1 << 20
_GONE = (errno.EPIPE, errno.ECONNRESET)  # the reader has gone: no error of the relay
_LARGEST_ERROR = 0x7F
_OF_ERR = 0x80  # in the status of a relay: standard error could not be written
_OLD_KERNEL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # where pipes have no RWF_NOWAIT


class Relays:
    """The relays of a step, in the stepd: the pids, and whether the stepd waits for each relay.

    While `leash` is open, the step's terminal may have more output.
    """

    __slots__ = ("_awaited", "_unneeded", "leash")

    def __init__(self) -> None:
        self._awaited: dict[int, bool] = {}
        self._unneeded: set[int] = set()
        self.leash = -1

    def let_go(self) -> None:
        """Close the leash, when all processes of the step have ended."""
        if self.leash >= 0:
            os.close(self.leash)
        self.leash = -1

    def add(self, pid: int, *, awaited: bool) -> None:
        """Add a forked relay."""
        self._awaited[pid] = awaited

    def __iter__(self) -> "Iterator[tuple[int, bool]]":
        return iter(self._awaited.items())

    def end(self, pid: int) -> None:
        """Kill a relay no longer needed."""
        self._unneeded.add(pid)
        signals.send_child(pid, signals.KILL)

    def ended(self, pid: int, status: int) -> str:
        """Return an error if a needed relay has failed, else "". Called for each ended child."""
        if pid not in self._awaited or pid in self._unneeded:
            return ""
        self._unneeded.add(pid)  # a later child may get its pid
        if os.WIFEXITED(status) and (code := os.WEXITSTATUS(status)) > 1:
            stream = "standard error" if code & _OF_ERR else "standard output"
            return f"its {stream} could not be written: {os.strerror(code & _LARGEST_ERROR)}"
        return f"a process that copies its streams {children.said(status)}" if status else ""


class _Channel:
    """A Copy at work. `rest` is the beginning of an incomplete line. Writing to `_pipes` does not wait."""

    __slots__ = ("_pipes", "_viewers", "copy", "kind", "label", "lost", "rest")

    def __init__(self, copy: "Copy", viewers: "Viewers | None") -> None:
        self.copy = copy
        self.kind = packets.OUT if copy.number == OUT else packets.ERR
        self._viewers = viewers
        self._pipes = {sink for sink in copy.sinks if stat.S_ISFIFO(os.fstat(sink).st_mode)} if viewers else set()
        self.label = None if copy.label is None else copy.label.encode()
        self.rest = b""
        self.lost = 0  # the status of a relay that could not write to a sink

    def feed(self, data: bytes) -> None:
        """Write data to the sinks; with a label, whole lines only. At the end (b"") a partial line gets a newline."""
        if self.label is None:
            self._show(data)
            self.write(data)
            return
        data_at_hand = self.rest + data
        end = data_at_hand.rfind(b"\n")
        lines, self.rest = data_at_hand[: end + 1], data_at_hand[end + 1 :]
        if self.rest and (not data or len(self.rest) > _LONGEST_LINE):
            lines += self.rest + b"\n"
            self.rest = b""
        if lines:
            self._show(lines)
            self.write(self.label + lines[:-1].replace(b"\n", b"\n" + self.label) + b"\n")

    def _show(self, data: bytes) -> None:
        if data and self._viewers is not None:
            self._viewers.show(self.kind, data, self.copy.task)

    def write(self, data: bytes) -> None:
        """Write to every sink and wait: a slow reader slows the tasks down, as without a relay.

        A sink that fails is dropped, and reported at the end unless its reader has gone.
        """
        for sink in list(self.copy.sinks):
            view = memoryview(data)
            while view:
                try:
                    view = view[self._write_some(sink, view) :]
                except BlockingIOError:
                    self._wait_until_writable(sink)
                except OSError as error:
                    self.copy.sinks.remove(sink)
                    self.lost = self.lost or self._loss(sink, error.errno)
                    break

    def _loss(self, sink: int, number: "int | None") -> int:
        hung_up = number == errno.EIO and stat.S_ISCHR(os.fstat(sink).st_mode)  # a terminal
        if number in _GONE or hung_up:
            return 0
        told = number if number and errno.EPERM < number <= _LARGEST_ERROR else errno.EIO
        return told | (_OF_ERR if self.kind == packets.ERR else 0)

    def _write_some(self, sink: int, data: memoryview) -> int:
        """Write some data to a sink. Raises OSError.

        A pipe is the client's, and other processes have it open: so it is not set to O_NONBLOCK.
        """
        if sink in self._pipes:
            try:
                return os.pwritev(sink, (data,), -1, os.RWF_NOWAIT)
            except OSError as error:
                if error.errno not in _OLD_KERNEL:
                    raise
                self._pipes.clear()  # viewers wait while a write waits
        return os.write(sink, data)

    def _wait_until_writable(self, sink: int) -> None:
        """Wait for room in a sink, serving attached viewers meanwhile."""
        poll = select.poll()
        poll.register(sink, select.POLLOUT)
        if self._viewers is not None:
            poll.register(self._viewers.fd, select.POLLIN)
        while sink not in (ready := [fd for fd, _ in poll.poll()]):
            _serve(self._viewers)
        if len(ready) > 1:
            _serve(self._viewers)

    def finish(self) -> None:
        """End the channel after the end of the source: close the fed pipes, unless further channels write there."""
        self.feed(b"")
        if self.copy.ends_sinks:
            for sink in self.copy.sinks:
                os.close(sink)


def _serve(viewers: "Viewers | None") -> None:
    for _ in viewers.serve() if viewers is not None else ():
        pass  # input of viewers has no reader here


def main(copies: "list[Copy]", streams: int, become_user: "Callable[[], bool]", listener: int) -> "NoReturn":
    """Run the whole life of a relay. The stepd forks the relay when all tasks are forked and before the gate opens.

    `streams` holds the client's streams; viewers attach at `listener`, -1 for none. `become_user` makes the process
    the user's, and returns False if the job's container cannot be joined.
    """
    status = 1
    try:
        if not become_user():
            os._exit(1)
        if any(copy.of_client() for copy in copies):
            _resolve(copies, client_streams.take(streams))
        keep = {fd for copy in copies for fd in (copy.source, *copy.sinks)}
        close_all_but({*keep, listener})  # not the gate, not the stepd's connections, not the tasks' ends of the pipes
        _open_files(copies)
        viewers = None if listener < 0 else Viewers(-1, listener)
        status = _run({copy.source: _Channel(copy, viewers) for copy in copies}, viewers)
    finally:
        os._exit(status)


def _resolve(copies: "list[Copy]", clients: "Sequence[int]") -> None:
    for copy in copies:
        copy.source = of_client(copy.source, clients)
        copy.sinks = [of_client(sink, clients) for sink in copy.sinks]


def _open_files(copies: "list[Copy]") -> None:
    opened: dict[str, int] = {}
    for copy in copies:
        if not copy.path:
            continue
        if copy.path not in opened:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY | (0 if copy.keeps else os.O_TRUNC)
            try:
                opened[copy.path] = user_path.open_file(copy.path, flags)
            except OSError:
                continue  # its task has failed to open it, too, and has reported that
        copy.sinks = [opened[copy.path]]


def _run(channels: "dict[int, _Channel]", viewers: "Viewers | None") -> int:
    """Copy until every source has ended. Returns the relay's exit status, which tells the stepd about lost output."""
    lost = 0
    poll = select.poll()
    for source in channels:
        poll.register(source, select.POLLIN)
    if viewers is not None:
        poll.register(viewers.fd, select.POLLIN)
    while channels:
        for source, _ in poll.poll():
            if source not in channels:
                _serve(viewers)
                continue
            try:
                data = os.read(source, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:
                data = b""  # EIO: no process has the pty's other end any more
            channel = channels[source]
            if data:
                channel.feed(data)
            if not data or not channel.copy.sinks:
                poll.unregister(source)
                channels.pop(source).finish()
                lost = lost or channel.lost
                os.close(source)  # writers get SIGPIPE, as without a relay
    if viewers is not None:
        viewers.farewell()
    return lost
