"""The PMI server of a step: the conversations with all tasks in a single loop. Runs as the step's user.

The server reads nothing from a task that does not read its answers. A task that violates the protocol ends its step,
and nothing else.
"""

import os
import select

from nodectl.mpi.others import Apart, Others, TooMuch
from nodectl.mpi.pmi1 import Malformed, Pmi1
from nodectl.mpi.pmi2 import Pmi2
from nodectl.mpi.words import Given, name_process
from nodectl.mpi.world import World

_CHUNK = 16384
_MOST_UNREAD = 65536  # bytes of answers that wait for a task
_IN, _OUT, _END = select.POLLIN, select.POLLOUT, select.POLLHUP | select.POLLERR | select.POLLNVAL


class Connection:
    """The connection to a task. `begun`: a program there has sent init and not yet finalize."""

    def __init__(self, world: World, rank: int, fd: int) -> None:
        self.rank = rank
        self.fd = fd
        self.begun = False
        self._world = world
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._speaker: Pmi1 | Pmi2 = Pmi1(world, rank, self._send)
        os.set_blocking(fd, False)

    def interest(self) -> int:
        """Return the events to wait for: poll(2)."""
        return (_OUT if self._outbox else 0) | (_IN if len(self._outbox) < _MOST_UNREAD else 0)

    def read(self) -> bool:
        """Read and answer available messages. Return False at the end of the connection. Raises Malformed."""
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._inbox += data
        while (message := self._speaker.take(self._inbox)) is not None:
            self._answer(message)
        return bool(data)

    def _answer(self, message: bytes) -> None:
        begins = isinstance(self._speaker, Pmi1) and message.startswith(b"cmd=init ")
        if not begins and not self.begun:
            raise Malformed  # a program must begin with init
        self._speaker.answer(message)
        if begins:
            self.begun = True
            if b" pmi_version=2" in message:
                self._speaker = Pmi2(self._world, self.rank, self._send)
        elif self._speaker.finalized:
            self.begun = False  # another program may follow
            self._speaker = Pmi1(self._world, self.rank, self._send)

    def _send(self, data: bytes) -> None:
        self._outbox += data
        self.write()

    def write(self) -> None:
        """Write queued answers, as far as the task reads."""
        while self._outbox:
            try:
                del self._outbox[: os.write(self.fd, self._outbox)]
            except BlockingIOError:
                return
            except OSError:
                self._outbox.clear()  # reading will report the end


class Server:
    """All conversations of a step on this node, including the conversation with the servers of remote nodes."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._world = World(given.size, given.job, given.tell, given.numbers)
        self._poll = select.poll()
        self._poll.register(given.life, 0)
        sockets = zip(given.numbers, given.sockets, strict=True)
        self._connections = {fd: Connection(self._world, rank, fd) for rank, fd in sockets}
        self._waits: dict[int, int] = {}
        self._others: Others | None = None
        if given.others >= 0:
            self._others = Others(given.others, given.node, given.nodes, self._world.lose_node)
        self._world.begin(self._others, given.listed)
        self._renew()

    def serve(self) -> None:
        """Serve until the step is over."""
        while True:
            for fd, events in self._poll.poll():
                if fd == self._given.life:
                    if self._others is not None:
                        self._others.flush()
                    return
                try:
                    if fd in self._connections:
                        self._turn(self._connections[fd], events)
                    elif self._others is not None:
                        self._hear_others(self._others, events)
                except Apart:
                    self._part("apart")
                except TooMuch:
                    self._part("crowded")
            self._renew()

    def _hear_others(self, others: Others, events: int) -> None:
        if events & _OUT:
            others.write()
        if events & (_IN | _END):
            others.read()

    def _part(self, word: str) -> None:
        """End the step: report `word`, and close the connection to remote nodes."""
        self._world.tell(f"{word} {self._given.node}")
        if self._others is not None:
            self._poll.unregister(self._others.fd)
            del self._waits[self._others.fd]
            os.close(self._others.fd)
            self._others = None

    def _turn(self, one: Connection, events: int) -> None:
        if events & _OUT:
            one.write()
        if not events & (_IN | _END):
            return
        try:
            if one.read():
                return
        except Malformed:
            self._world.tell(f"bad {one.rank}")
        if one.begun:
            self._world.tell(f"lost {one.rank}")
        self._poll.unregister(one.fd)
        del self._waits[one.fd], self._connections[one.fd]
        os.close(one.fd)
        self._world.leave(one.rank)

    def _renew(self) -> None:
        """Update the poll masks of all connections: a message may have produced answers for several tasks."""
        wants = {fd: one.interest() for fd, one in self._connections.items()}
        if self._others is not None:
            wants[self._others.fd] = self._others.interest()
        for fd, wanted in wants.items():
            if self._waits.get(fd) != wanted:
                self._poll.register(fd, wanted)
                self._waits[fd] = wanted


def main() -> None:
    """Run the server process."""
    name_process("nodectl-pmi")
    Server(Given()).serve()
