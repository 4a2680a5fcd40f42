"""The distribution of a bulk step's commands over several nodes: each command goes to the node with the most room.

Runs in the client's agent, which collects the events of all nodes for the client. Without I/O. To the client, the step
looks like one node with the slots of all. Commands that a lost node had begun begin once more elsewhere; so do those it
had not begun. Nodes get NoMore only after all commands have ended.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nodectl.launch.stepd.bulk_commands import BadCommand, BulkCommand

Tell = Callable[[Mapping[str, object]], None]
_LOST = 1 << 8  # a wait status
_MOST_AT_ONCE = 256 << 10  # bytes of commands in one message
_MOST_AHEAD = 65_536  # commands beyond the slots of all nodes; kept here until they end
_MOST_BYTES = 256 << 20  # of all commands that are kept here


class _Sent(NamedTuple):
    """A command as given, and the size counted in a window."""

    given: Mapping[str, object]
    size: int


class _Node:
    """A node of the step. `sent`: the commands waiting or running there."""

    __slots__ = ("begun", "bytes", "most", "most_bytes", "sent", "slots")

    def __init__(self, started: Mapping[str, Any]) -> None:
        self.slots = max(1, int(started["slots"]))
        self.most = int(started["window"])
        self.most_bytes = int(started["window_bytes"])
        self.sent: dict[int, _Sent] = {}
        self.begun: set[int] = set()
        self.bytes = 0

    def load(self) -> float:
        return len(self.sent) / self.slots

    def has_room(self, size: int) -> bool:
        return len(self.sent) < self.most and (not self.sent or self.bytes + size <= self.most_bytes)

    def take(self, seq: int, command: _Sent) -> None:
        self.sent[seq] = command
        self.bytes += command.size

    def give_back(self, seq: int) -> int:
        """Remove a command and return 1, or 0 where the node did not have the command."""
        self.begun.discard(seq)
        command = self.sent.pop(seq, None)
        if command is None:
            return 0
        self.bytes -= command.size
        return 1


class Dispatcher:
    """The commands of a bulk step.

    `ranks`: of the step's nodes. `send(rank, method, parameters)` calls the step on a node; `tell` sends the client an
    event.
    """

    def __init__(
        self, ranks: Iterable[int], send: Callable[[int, str, Mapping[str, object]], None], tell: Tell
    ) -> None:
        self._awaited = set(ranks)
        self._nodes: dict[int, _Node] = {}
        self._send = send
        self._tell = tell
        self._queue: deque[tuple[int, _Sent]] = deque()
        self._order: list[tuple[float, int]] = []  # a heap of loads and ranks, including outdated loads
        self._second: set[int] = set()  # commands that begin for the second time
        self._flying = 0  # commands sent to nodes and not ended
        self._no_more = self._withdrew = self._closed = False

    # Calls of the client.

    def call(self, method: str, parameters: Mapping[str, Any]) -> None:
        """Handle a call of org.nodectl.step about commands. Raises BadCommand."""
        if method == "Run":
            commands = parameters.get("commands")
            self._take(commands if isinstance(commands, list) else [None])
        elif method == "NoMore":
            self._no_more = True
        else:
            self._withdraw()
        self._go_on()

    def _take(self, given: Sequence[Any]) -> None:
        for one in given:
            if not isinstance(one, dict):
                raise BadCommand("commands: not objects")
            command = BulkCommand(one)
            self._queue.append((command.seq, _Sent(one, command.size)))

    def _withdraw(self) -> None:
        """Withdraw all commands not begun. Nodes report the commands withdrawn there."""
        self._withdrew = True
        here, self._queue = [seq for seq, _ in self._queue], deque()
        self._tell({"event": "tasks", "withdrawn": here})
        for rank in self._nodes:
            self._send(rank, "Withdraw", {})

    # Events of nodes.

    def heard(self, rank: int, event: Mapping[str, Any]) -> None:
        """Handle a node's event: slots, or begun, ended and withdrawn commands."""
        if event.get("event") == "start":
            self._nodes[rank] = _Node(event)
            self._enter(rank, self._nodes[rank])
            self._has_come(rank)
        elif (node := self._nodes.get(rank)) is not None:
            node.begun.update(int(row[0]) for row in event.get("begun", ()))
            for told in event.get("ended", ()):
                self._flying -= node.give_back(int(told["seq"]))
            for seq in event.get("withdrawn", ()):
                self._flying -= node.give_back(int(seq))
            self._enter(rank, node)
            self._tell(event)
        self._go_on()

    def _has_come(self, rank: int) -> None:
        """Note a node's slots or loss; send the client the start event after the last of the nodes."""
        if rank not in self._awaited:
            return
        self._awaited.discard(rank)
        if not self._awaited and self._nodes:
            nodes = self._nodes.values()
            slots = sum(node.slots for node in nodes)
            self._tell({
                "event": "start", "pids": [], "slots": slots,
                "window": min(sum(node.most for node in nodes), slots + _MOST_AHEAD),
                "window_bytes": min(sum(node.most_bytes for node in nodes), _MOST_BYTES),
            })  # fmt: skip

    def lost(self, rank: int, why: str) -> None:
        """Requeue or fail the commands of a lost node."""
        node = self._nodes.pop(rank, None)
        self._has_come(rank)
        failed: list[Mapping[str, object]] = []
        if node is None:
            self._go_on()
            return
        self._flying -= len(node.sent)
        for seq, command in reversed(node.sent.items()):
            again = not self._withdrew and not (seq in node.begun and seq in self._second)
            if again and self._nodes:
                if seq in node.begun:
                    self._second.add(seq)
                self._queue.appendleft((seq, command))
            else:
                failed.append({
                    "seq": seq, "slot": 0, "status": _LOST, "started": 0.0, "seconds": 0.0, "user": 0.0, "system": 0.0,
                    "memory": 0, "read": 0, "written": 0, "failed": why,
                })  # fmt: skip
        if failed:
            self._tell({"event": "tasks", "ended": failed})
        self._go_on()

    # Sending commands to nodes.

    def _go_on(self) -> None:
        chosen: dict[int, list[Mapping[str, object]]] = {}
        sizes: dict[int, int] = {}
        while self._queue and not self._awaited:
            seq, command = self._queue[0]
            rank = self._with_most_room(command.size)
            if rank is None:
                break
            self._queue.popleft()
            self._nodes[rank].take(seq, command)
            self._flying += 1
            self._enter(rank, self._nodes[rank])
            if rank in chosen and sizes[rank] + command.size > _MOST_AT_ONCE:
                self._send(rank, "Run", {"commands": chosen.pop(rank)})
                sizes[rank] = 0
            chosen.setdefault(rank, []).append(command.given)
            sizes[rank] = sizes.get(rank, 0) + command.size
        for rank, commands in chosen.items():
            self._send(rank, "Run", {"commands": commands})
        if self._no_more and not self._closed and not self._queue and not self._flying:
            self._closed = True
            for rank in self._nodes:
                self._send(rank, "NoMore", {})

    def _with_most_room(self, size: int) -> int | None:
        """Return the node with the fewest commands per slot. The node leaves the heap until `_enter`."""
        full = []
        found = None
        while self._order and found is None:
            load, rank = heapq.heappop(self._order)
            node = self._nodes.get(rank)
            if node is None or node.load() != load:
                continue
            if node.has_room(size):
                found = rank
            elif len(node.sent) < node.most:
                full.append((load, rank))  # full only for a command of this size
        for one in full:
            heapq.heappush(self._order, one)
        return found

    def _enter(self, rank: int, node: _Node) -> None:
        """Enter a node's new load into the heap."""
        heapq.heappush(self._order, (node.load(), rank))
        if len(self._order) > 4 * len(self._nodes) + 16:
            self._order = [(one.load(), of) for of, one in self._nodes.items()]
            heapq.heapify(self._order)
