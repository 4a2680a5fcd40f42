"""A node as its cluster sees it: the answers of an agent to the leader and to the client's agent, each as long after
what was asked as a real agent of a real node took, and with the CPU that it took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.scale.loop import Loop
from nodectl.bulk.runner.window import MOST_BYTES, Window
from nodectl.cluster.agent.channel import Channel
from nodectl.cluster.leader.holding import ranks_of
from nodectl.cluster.mesh.mesh import LEADER, Mesh

Header = Mapping[str, Any]
_TOLD_EVERY = 0.01  # seconds, as bulk/runner/work.py has it


class Launch(NamedTuple):
    """One launch of a part on a real node, in seconds: from the order to the answer, to the start of its tasks, from
    the end of these to the record. `cpu`: of the agent.
    """

    begun: float = 0.003
    started: float = 0.005
    ended: float = 0.002
    cpu: float = 0.001


class Habits(NamedTuple):
    """How nodes are: `launches`, of which each node has one after the other; `slots` of a bulk step, and seconds that
    its runner works for one command.
    """

    launches: Sequence[Launch] = (Launch(),)
    slots: int = 64
    command: float = 0.0005
    task: float = 0.0  # seconds that a task runs


class Node:
    """One of them. Tasks of a step run for `habits.task`; commands of a bulk step for as long as these say."""

    def __init__(self, loop: Loop, mesh: Mesh, name: str, habits: Habits) -> None:
        self._loop = loop
        self._mesh = mesh
        self._name = name
        self._habits = habits
        self._count = mesh.rank
        self._parts: dict[tuple[int, int], Part] = {}
        self._kept: dict[tuple[int, int], Header] = {}
        self.tell: Callable[[int, Header], None] | None = None  # who carries what it says of commands, but for the mesh
        for kind, handler in (
            ("start", self._start), ("over", self._over), ("leader", self._leader), ("order", self._order),
            ("deal", self.deal), ("in", _ignore), ("more", _ignore), ("ask", _ignore),
        ):  # fmt: skip
            mesh.handle(kind, handler)

    def _start(self, sender: int, header: Header, body: bytes) -> None:
        key = int(header["job"]), int(header["step"])
        if key in self._parts or key in self._kept:
            return
        launches = self._habits.launches
        self._count += 1
        self._parts[key] = Part(self, self._loop, header, launches[self._count % len(launches)], self._habits)

    def send(self, to: int, kind: str, header: Header) -> None:
        if kind == "work" and self.tell is not None:
            self.tell(self._mesh.rank, header)
        else:
            self._mesh.send(to, kind, header)

    def event(self, event: Mapping[str, object]) -> Mapping[str, object]:
        return {**event, "node": self._name}

    def over(self, key: tuple[int, int], record: Header) -> None:
        """A part has ended: the leader is told, and again until it has the record."""
        del self._parts[key]
        self._kept[key] = record
        self.send(LEADER, "ended", {"job": key[0], "step": key[1], "record": record})

    def _over(self, sender: int, header: Header, body: bytes) -> None:
        self._kept.pop((int(header["job"]), int(header["step"])), None)

    def _leader(self, sender: int, header: Header, body: bytes) -> None:
        for (job, step), record in self._kept.items():
            self.send(LEADER, "ended", {"job": job, "step": step, "record": record})
        steps = [list(key) for key in self._parts]
        self.send(LEADER, "here", {"steps": steps, "token": header["token"]})

    def _order(self, sender: int, header: Header, body: bytes) -> None:
        part = self._parts.get((int(header["job"]), int(header["step"])))
        if part is not None and header["call"]["method"] in ("End", "hangup", "Signal"):
            part.end()

    def deal(self, sender: int, header: Header, body: bytes) -> None:
        part = self._parts.get((int(header["job"]), int(header["step"])))
        if part is not None and part.slots is not None:
            part.slots.channel.hear(header)


class Part:
    """A part of a step there."""

    def __init__(self, node: Node, loop: Loop, order: Header, launch: Launch, habits: Habits) -> None:
        self.key = int(order["job"]), int(order["step"])
        self._name = {"job": self.key[0], "step": self.key[1]}
        self._node = node
        self._loop = loop
        self._launch = launch
        self._tasks = ranks_of(str(order["part"]["tasks"]))
        self._client = order.get("client")
        self._task = habits.task
        self._is_over = False
        self.slots = Slots(node, loop, self, habits) if order["request"].get("bulk") else None
        loop.charge(launch.cpu / 4)
        loop.call_later(launch.begun, self._begin)
        loop.call_later(launch.started, self._has_started)

    def _begin(self) -> None:
        self._loop.charge(self._launch.cpu / 4)
        self._node.send(LEADER, "begun", self._name)

    def _has_started(self) -> None:
        self._loop.charge(self._launch.cpu / 4)
        if self.slots is not None:
            self.slots.open()
            return
        pids = list(range(1000, 1000 + len(self._tasks)))
        self._tell({"event": "start", "pids": pids})
        self._loop.call_later(self._task, self.end)

    def _tell(self, *events: Mapping[str, object]) -> None:
        self._node.send(LEADER, "told", {**self._name, "events": [self._node.event(one) for one in events]})

    def to_client(self, header: Header) -> None:
        if self._client is not None:
            self._node.send(self._client, "work", {**self._name, **header})

    def end(self) -> None:
        """Its tasks have ended."""
        if self._is_over:
            return
        self._is_over = True
        if self.slots is None:
            self._tell({"event": "exit", "tasks": self._tasks, "status": 0})
        self._loop.call_later(self._launch.ended, self._finish)

    def _finish(self) -> None:
        self._loop.charge(self._launch.cpu / 4)
        task = {"status": 0, "user_seconds": 0.001, "system_seconds": 0.001, "max_rss_kib": 2000}
        tasks = [{"task": one, **task} for one in self._tasks]
        now = self._loop.time()
        self._node.over(self.key, {
            "state": "COMPLETED", "exit_status": 0, "reason": "", "tasks": tasks,
            "cpu_seconds": [0.001, 0.001], "peak_memory": 4 << 20, "started": now, "ended": now,
        })  # fmt: skip


class Slots:
    """What runs the commands of a bulk step there: one process, which starts one after the other."""

    def __init__(self, node: Node, loop: Loop, part: Part, habits: Habits) -> None:
        self._loop = loop
        self._part = part
        self._slots = habits.slots
        self._each = habits.command
        self._window = Window(habits.slots)
        self._task = habits.task
        self._waiting: deque[int] = deque()
        self._running = 0
        self._free_at = 0.0  # when the runner has time for the next command
        self._begun: list[list[int]] = []
        self._ended: list[dict[str, object]] = []
        self._told_at = -1.0
        self._due = False
        self.channel = Channel(part.to_client, self._take)

    def open(self) -> None:
        facts = {"window": self._window.most, "window_bytes": MOST_BYTES}
        self.channel.say([{"event": "start", "pids": [], "slots": self._slots, **facts}])

    def _take(self, said: Any) -> None:
        if said["method"] == "NoMore":
            self._part.end()
            return
        self._waiting += [int(one["seq"]) for one in said["parameters"]["commands"]]
        assert len(self._waiting) + self._running <= self._window.most
        self._fill()

    def _fill(self) -> None:
        now = self._loop.time()
        while self._waiting and self._running < self._slots:
            seq = self._waiting.popleft()
            self._running += 1
            self._free_at = max(now, self._free_at) + self._each
            self._begun.append([seq, 0, 4711])
            self._loop.call_at(self._free_at + self._task, self._end, seq, self._free_at)
        self._tell()

    def _end(self, seq: int, begun: float) -> None:
        self._running -= 1
        self._ended.append({
            "seq": seq, "slot": 3, "status": 0, "started": round(begun, 6), "seconds": round(self._task, 6),
            "user": 0.001, "system": 0.001, "memory": 2000, "read": 0, "written": 0, "pid": 4711, "alone": True,
        })  # fmt: skip
        self._fill()

    def _tell(self) -> None:
        """As the runner does: later, where that was just now and enough waits."""
        now = self._loop.time()
        if not (self._begun or self._ended) or self._due:
            return
        if now < self._told_at + _TOLD_EVERY and 4 * len(self._waiting) > self._window.most:
            self._due = True
            self._loop.call_at(self._told_at + _TOLD_EVERY, self._tell_late)
            return
        self._told_at = now
        event: dict[str, object] = {"event": "tasks"}
        if self._begun:
            event["begun"], self._begun = self._begun, []
        if self._ended:
            event["ended"], self._ended = self._ended, []
        self.channel.say([event])

    def _tell_late(self) -> None:
        self._due = False
        self._tell()


def _ignore(sender: int, header: Header, body: bytes) -> None:
    """Of streams: tasks here neither read nor write."""
