"""A pump: a process of the step that copies streams where copying cannot be avoided, as the user, never as root.

The output pump labels lines (-l) and reads the ptys of -u. It is in the stepd's cgroup, so that a kill of the step's
processes does not cut off what they have written, and it ends when every stream that it reads has ended. The input pump
copies one stdin to several tasks. It is killed with the step, because a terminal's input has no end.
"""

import os
import select

from nodectl.kernel import children, signals, user_path
from nodectl.kernel.closing import close_all_but
from nodectl.kernel.identity import become_user
from nodectl.task import client_streams
from nodectl.task.stdio import of_client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import NoReturn

    from nodectl.model.step import Step
    from nodectl.task.stdio import Copy

_CHUNK = 65536
_LONGEST_LINE = 1 << 20


class Pumps:
    """The pumps of a step, in the stepd: their pids, and whether the stepd waits for each. `leash`: while it is open,
    the step's terminal may have more to say.
    """

    __slots__ = ("_awaited", "_unneeded", "leash")

    def __init__(self) -> None:
        self._awaited: dict[int, bool] = {}
        self._unneeded: set[int] = set()
        self.leash = -1

    def let_go(self) -> None:
        """All processes of the step have ended."""
        if self.leash >= 0:
            os.close(self.leash)
        self.leash = -1

    def add(self, pid: int, *, awaited: bool) -> None:
        """Adds one that has been forked."""
        self._awaited[pid] = awaited

    def __iter__(self) -> "Iterator[tuple[int, bool]]":
        return iter(self._awaited.items())

    def end(self, pid: int) -> None:
        """Kills a pump that nobody needs any more."""
        self._unneeded.add(pid)
        signals.send_child(pid, signals.KILL)

    def ended(self, pid: int, status: int) -> str:
        """Called for each child that has ended. Returns what is wrong: a pump has failed that was needed. "" where
        nothing is.
        """
        if pid not in self._awaited or pid in self._unneeded:
            return ""
        self._unneeded.add(pid)  # a later child may get its pid
        return f"a process that copies its streams {children.said(status)}" if status else ""


class _Channel:
    """One Copy at work; `rest` is the beginning of a line that is not complete yet."""

    __slots__ = ("copy", "label", "rest")

    def __init__(self, copy: "Copy") -> None:
        self.copy = copy
        self.label = None if copy.label is None else copy.label.encode()
        self.rest = b""

    def feed(self, data: bytes) -> None:
        """Writes data on; with a label, whole lines only. At the end (b"") a partial line gets its newline."""
        if self.label is None:
            self.write(data)
            return
        data_at_hand = self.rest + data
        end = data_at_hand.rfind(b"\n")
        lines, self.rest = data_at_hand[: end + 1], data_at_hand[end + 1 :]
        if self.rest and (not data or len(self.rest) > _LONGEST_LINE):
            lines += self.rest + b"\n"
            self.rest = b""
        if lines:
            self.write(self.label + lines[:-1].replace(b"\n", b"\n" + self.label) + b"\n")

    def write(self, data: bytes) -> None:
        """Writes to every sink and blocks: a slow reader slows the tasks down, as it would without a pump. A sink that
        fails is dropped.
        """
        for sink in list(self.copy.sinks):
            view = memoryview(data)
            while view:
                try:
                    view = view[os.write(sink, view) :]
                except BlockingIOError:
                    _wait_until_writable(sink)  # the client has set that, and may need it
                except OSError:
                    self.copy.sinks.remove(sink)
                    break

    def finish(self) -> None:
        """The source has ended: closes the pipes that it fed, unless other channels write to them, too."""
        self.feed(b"")
        if self.copy.ends_sinks:
            for sink in self.copy.sinks:
                os.close(sink)


def _wait_until_writable(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll()


def main(copies: "list[Copy]", streams: int, step: "Step", enter: "Callable[[], bool]") -> "NoReturn":
    """The whole life of a pump. The stepd forks it when all tasks are forked and before the gate opens. The client's
    streams are in `streams`.

    Where it opens a file it joins the job's container first, as the tasks do.
    """
    status = 1
    try:
        if any(copy.path for copy in copies) and not enter():
            os._exit(1)
        become_user(step.identity)
        if any(copy.of_client() for copy in copies):
            _resolve(copies, client_streams.take(streams))
        keep = {fd for copy in copies for fd in (copy.source, *copy.sinks)}
        close_all_but(keep)  # not the gate, not the stepd's connections, not the tasks' ends of the pipes
        os.umask(step.umask)
        _open_files(copies)
        _run({copy.source: _Channel(copy) for copy in copies})
        status = 0
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
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOCTTY
            try:
                opened[copy.path] = user_path.open_file(copy.path, flags)
            except OSError:
                continue  # its task has failed to open it, too, and has reported that
        copy.sinks = [opened[copy.path]]


def _run(channels: "dict[int, _Channel]") -> None:
    poll = select.poll()
    for source in channels:
        poll.register(source, select.POLLIN)
    while channels:
        for source, _ in poll.poll():
            try:
                data = os.read(source, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:
                data = b""  # EIO: nobody has the pty's other end any more
            channel = channels[source]
            if data:
                channel.feed(data)
            if not data or not channel.copy.sinks:
                poll.unregister(source)
                channels.pop(source).finish()
                os.close(source)  # writers get SIGPIPE, as without a pump
