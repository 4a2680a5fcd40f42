"""The PMIx server of a step: OpenPMIx's library, in a process of the step's user.

Two processes: the library's process, and the entrance to it (`nodectl/mpi/entrance.py`), which also removes the
programs' leftovers from the step's own directories. Either may be killed; the other one cleans up.

The library trusts any process that knows the name of the tasks' namespace: so the name is random, and only the tasks'
environment has it.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections import deque

from nodectl.kernel import signals
from nodectl.model.wire import framing
from nodectl.mpi import entrance, openpmix
from nodectl.mpi.others import Apart, Others, TooMuch
from nodectl.mpi.pmix_host import Host
from nodectl.mpi.words import Given, name_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PLACES = ("/tmp", "/dev/shm")
_END_SECONDS = 3.0  # for the library's end; the step runner waits for longer


class _Loop:
    """The loop of the library's process, beside the library: speaks with remote nodes until the step is over here."""

    def __init__(self, given: Given, other: socket.socket) -> None:
        self._given = given
        self._ends = given.life, other.fileno()
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        for fd in self._ends:
            self._poll.register(fd, 0)
        self._poll.register(self._wake, select.POLLIN)
        self._others: Others | None = None

    def later(self, call: "Callable[[], None]") -> None:
        """Run a function in the loop. Callable from any thread."""
        self._calls.append(call)
        os.eventfd_write(self._wake, 1)

    def run(self, host: Host, beyond: "dict[str, str]") -> None:
        """Run until the step is over or the entrance process has gone. Raises OSError, openpmix.Failed."""
        if self._given.others >= 0:
            self._others = Others(self._given.others, self._given.node, self._given.nodes, host.lose_node)
        try:
            host.meet(self._others, beyond)
            while self._turn():
                pass
        except Apart:
            self._part(host, "apart")
        except TooMuch:
            self._part(host, "crowded")

    def _turn(self) -> bool:
        if self._others is not None:
            self._poll.register(self._others.fd, self._others.interest())
        for fd, events in self._poll.poll():
            if fd in self._ends:
                if self._others is not None:
                    self._others.flush()
                return False
            if fd == self._wake:
                os.eventfd_read(self._wake)
                while self._calls:
                    self._calls.popleft()()
            elif self._others is not None:
                if events & select.POLLOUT:
                    self._others.write()
                if events & ~select.POLLOUT:
                    self._others.read()
        return True

    def _part(self, host: Host, word: str) -> None:
        """End the step: report `word`, close the connection to remote nodes, and wait for the step's end."""
        self._given.tell(f"{word} {self._given.node}")
        if self._others is not None:
            self._poll.unregister(self._others.fd)
            os.close(self._others.fd)
            self._others = None
        host.part()
        while self._turn():
            pass


def _serve(given: Given, directories: "list[str]", private: socket.socket, other: socket.socket) -> int:
    """Run the library's process. End of file on `other` means that the entrance process has gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # without cgroups it may be taken for a task, and has files to remove

    def hand_over() -> None:
        with entrance.replace_listener(private) as listener:
            socket.send_fds(other, [b"\0"], [listener.fileno()])

    beyond = {}
    if len(directories) > 1:
        beyond = {f"OMPI_MCA_btl_{name}_backing_directory": directories[1] for name in ("vader", "sm")}
    loop = _Loop(given, other)
    try:
        host = Host(given, directories[0], hand_over, loop.later)
        loop.run(host, beyond)
    except (OSError, openpmix.Failed) as error:
        given.tell(f"failed {error}")
        return 1
    _remove(directories)
    return 0


def _remove(directories: "list[str]") -> None:
    for path in directories:
        shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    """Run the process known to the step runner."""
    name_process("nodectl-pmix")
    given = Given()
    directories = []
    for place in _PLACES:
        with contextlib.suppress(OSError):
            directories.append(tempfile.mkdtemp(prefix="nodectl-mpi-", dir=place))
    if not directories:
        given.tell(f"failed no directory in {_PLACES[0]}")
        sys.exit(1)
    try:
        status = _serve_and_lead(given, directories)
    finally:
        _remove(directories)
    sys.exit(status != 0)


def _serve_and_lead(given: Given, directories: "list[str]") -> int:
    """Fork the library's process and run the entrance until the library's process ends."""
    path = f"{directories[0]}/entrance"
    private = socket.socket(socket.AF_UNIX)
    private.bind(path)
    private.listen(given.tasks + socket.SOMAXCONN)
    private.setblocking(False)
    own, other = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        own.close()
        os._exit(_serve(given, directories, private, other))  # without PMIx_server_finalize: nothing is left
    other.close()
    private.close()
    if given.others >= 0:
        os.close(given.others)  # its end is that of the library's process
    waiting = select.poll()
    waiting.register(own, select.POLLIN)
    waiting.register(given.life, 0)
    if given.life not in dict(waiting.poll()):
        try:
            _, fds = framing.receive_packet(own, 1, 1)
        except framing.DescriptorsLost as lost:
            given.tell(f"failed receive the library's socket: {lost.strerror}")
            fds = []
        if fds:
            entrance.Entrance(socket.socket(fileno=fds[0]), path).serve(own.fileno(), given.life)
    own.close()
    return _wait(pid)


def _wait(pid: int) -> int:
    """Wait for the library's process, whose library may wait for ever. Return the exit status."""
    process = os.pidfd_open(pid)
    ended = select.poll()
    ended.register(process, select.POLLIN)
    if not ended.poll(_END_SECONDS * 1000):
        signals.send(process, signals.KILL)
    return os.waitpid(pid, 0)[1]
