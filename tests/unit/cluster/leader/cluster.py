"""A leader's core among nodes of its own kind: agents that answer as agents do, links between, no clock and no sockets.

`Agent` is what the leader may rely on, in few words: a part begins, runs until it is told to end, and is told of again
until the leader says that it is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from nodectl.cluster.leader.core import Core
from nodectl.cluster.leader.effects import Keep, Send
from nodectl.cluster.machine import Machine, described
from nodectl.model.cpu_list import parse_cpulist
from nodectl.model.wire import lean_json
from nodectl.placement.machine.spec import from_spec

JOB = 4711
NOW = 1_000_000.0
Header = dict[str, Any]
_KILLED = 15


class Agent:
    """One node. `parts`: what runs, by number; `kept`: what the leader has not said to be over."""

    def __init__(self, rank: int, name: str, spec: str = "2s:4c:1t", memory: int = 1000) -> None:
        self.rank = rank
        self.name = name
        self.machine = Machine(from_spec(spec), memory)
        self.parts: dict[int, Header] = {}
        self.kept: dict[int, tuple[str, Header]] = {}
        self.refuses: dict[str, Any] | None = None
        self.inbox: deque[tuple[str, Header]] = deque()
        self.outbox: deque[tuple[str, Header]] = deque()
        self.standing: dict[int, Header] = {}  # what is told of a part beside its state, by number
        self.ended: list[int] = []
        self.orders: list[str] = []
        self.given: set[tuple[int, ...]] = set()  # orders with a name, by step
        self.survives: tuple[str, ...] = ()  # orders that do not end its parts

    def said(self) -> Any:
        return plain(described(self.machine))

    def say(self, kind: str, header: Header) -> None:
        self.outbox.append((kind, header))

    def hear(self) -> None:
        """The oldest message."""
        kind, header = self.inbox.popleft()
        {"start": self._start, "order": self._order, "over": self._over, "leader": self._leader}[kind](header)

    def _name(self, number: int) -> Header:
        return {"job": JOB, "step": number}

    def stand(self, number: int, **standing: Any) -> None:
        """There is more to say of a part, now and whenever it is spoken of."""
        self.standing[number] = {**self.standing.get(number, {}), **standing}
        self.say("begun", {**self._name(number), **self.standing[number]})

    def _start(self, header: Header) -> None:
        number = header["step"]
        part: Header = {**header["whole"], **header["part"]}
        if number in self.parts or number in self.kept:
            return
        if self.refuses is not None:
            told = {**self._name(number), "error": self.refuses}
            self.kept[number] = ("begun", told)
            self.say("begun", told)
            return
        if not header["request"].get("_shares"):
            cpus = int(part["cpus"], 16)
            for other, held in self.parts.items():
                assert not int(held["cpus"], 16) & cpus, f"{self.name}: steps {other} and {number} have the same CPUs"
        self.parts[number] = part
        self.say("begun", self._name(number))
        pids = [100 + task for task in sorted(parse_cpulist(part["tasks"]))]
        self.say("told", {**self._name(number), "events": [{"event": "start", "pids": pids}]})

    def end(self, number: int, status: int = 0, state: str = "") -> None:
        """The tasks of a part end so."""
        part = self.parts.pop(number)
        tasks = sorted(parse_cpulist(part["tasks"]))
        state = state or ("FAILED" if status else "COMPLETED")
        rows = [
            {"task": task, "status": status, "user_seconds": 1.0, "system_seconds": 0.5, "max_rss_kib": 1}
            for task in tasks
        ]
        record = {
            "state": state, "exit_status": 0, "reason": "" if state == "COMPLETED" else f"{state} on {self.name}",
            "tasks": rows, "cpu_seconds": [1.0, 0.5], "peak_memory": 100 + self.rank, "started": NOW, "ended": NOW + 1,
        }  # fmt: skip
        self.say("told", {**self._name(number), "events": [{"event": "exit", "tasks": tasks, "status": status}]})
        told = {**self._name(number), **self.standing.get(number, {}), "record": record}
        self.kept[number] = ("ended", told)
        self.ended.append(number)
        self.say("ended", told)

    def _order(self, header: Header) -> None:
        number, call = header["step"], header["call"]
        if "by" in header:
            if (name := (number, *header["by"])) in self.given:
                return
            self.given.add(name)
        words = [call["method"], *map(str, call.get("parameters", {}).values())]
        self.orders.append(" ".join(words))
        if self.orders[-1] in self.survives:
            return
        if number in self.parts and call["method"] in ("End", "hangup", "Signal"):
            self.end(number, _KILLED, "CANCELLED")
        elif number not in self.parts and number not in self.kept:
            return

    def _over(self, header: Header) -> None:
        self.kept.pop(header["step"], None)

    def _leader(self, header: Header) -> None:
        for number in self.parts:
            self.say("begun", {**self._name(number), **self.standing.get(number, {})})
        for kind, told in self.kept.values():
            self.say(kind, told)
        steps = [[JOB, number] for number in (*self.parts, *self.kept)]
        self.say("here", {"token": header["token"], "steps": steps})


class Cluster:
    """`told`: what was answered to gateways and clients, by rank: ("reply", header) and ("event", header)."""

    def __init__(
        self, count: int = 3, spec: str = "2s:4c:1t", memory: int = 1000, *, join: bool = True, tells_job: bool = False
    ) -> None:
        self.tells_job = tells_job
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self.agents = {rank: Agent(rank, name, spec, memory) for rank, name in enumerate(self.names)}
        self.now = NOW
        self.journal: list[Mapping[str, Any]] = []
        self.core = self._core()
        self.replies: dict[tuple[int, int], Header] = {}
        self.events: dict[int, list[Header]] = {}
        self.ends: dict[int, Header] = {}
        self.asks: list[tuple[int, Header]] = []
        self.heard: list[int] = []  # orders of clients, of which the core has said so
        self.asked: dict[tuple[int, int], Header] = {}  # calls of gateways, by their names
        self.calls = 0
        if join:
            self.join()

    def _core(self) -> Core:
        owner = {"user": "alice", "uid": 1000, "gid": 1000}
        return Core(JOB, self.names, self.now, owner=owner, journal=self.journal, tells_job=self.tells_job)

    def join(self, *ranks: int) -> None:
        for rank in ranks or list(self.agents):
            self.core.joined(rank, self.agents[rank].said(), self.now)
        self.send()

    def send(self) -> None:
        """What the core wants done reaches the nodes' inboxes, and callers."""
        for effect in self.core.take():
            if isinstance(effect, Keep):
                self.journal.append(plain(effect.entry))
            elif isinstance(effect, Send):
                self._deliver(effect.to, effect.kind, plain(effect.header))
            else:
                for rank, part in effect.each.items():
                    self._deliver(rank, effect.kind, plain({**effect.common, "part": part}))

    def _deliver(self, rank: int, kind: str, header: Header) -> None:
        if rank not in self.agents:
            return
        if kind == "reply":
            self.replies.setdefault((rank, header["id"]), header)
        elif kind == "event":
            for event in header["events"]:
                if event["event"] == "end":
                    known = self.ends.setdefault(header["step"], event["record"])
                    assert known == event["record"], "a step ended in two ways"
                else:
                    assert header["step"] not in self.ends, "something is told of a step that has ended"
                    self.events.setdefault(header["step"], []).append(event)
        elif kind == "ordered":
            self.heard.append(header["id"])
        elif kind == "ask":
            self.asks.append((rank, header))
        else:
            self.agents[rank].inbox.append((kind, header))

    def hear(self, rank: int) -> None:
        """The leader takes a node's oldest message."""
        kind, header = self.agents[rank].outbox.popleft()
        self.core.received(kind, rank, plain(header), self.now)
        self.send()

    def settle(self) -> None:
        """Until nothing is on its way."""
        self.send()
        while busy := [one for one in self.agents.values() if one.inbox or one.outbox]:
            for agent in busy:
                if agent.inbox:
                    agent.hear()
                if agent.outbox and agent.rank in self.agents:
                    self.hear(agent.rank)

    def call(self, method: str, rank: int = 0, *, streams: bool = False, **parameters: Any) -> tuple[int, int]:
        """A call from a gateway; its name."""
        self.calls += 1
        header = {"id": self.calls, "method": method, "parameters": parameters, "streams": streams}
        self.asked[rank, self.calls] = header
        self.core.received("call", rank, plain(header), self.now)
        self.send()
        return rank, self.calls

    def comes_again(self, call: tuple[int, int]) -> None:
        """A call that was on its way when a link was cut, or whose answer was."""
        self.replies.pop(call, None)
        self.core.received("call", call[0], plain(self.asked[call]), self.now)
        self.send()

    def gateway_asks_again(self, rank: int) -> None:
        """The way to the leader was broken, or it is another one."""
        for call, header in list(self.asked.items()):
            if call[0] == rank and call not in self.replies:
                self.core.received("call", rank, plain(header), self.now)
        known = {reply["parameters"]["step"] for call, reply in self.launched() if call[0] == rank}
        steps = [[JOB, number] for number in sorted(known - self.ends.keys())]
        self.core.received("again", rank, {"steps": steps}, self.now)
        self.send()

    def launched(self) -> list[tuple[tuple[int, int], Header]]:
        """Calls that have launched a step, and their answers."""
        good = [(call, reply) for call, reply in self.replies.items() if "error" not in reply]
        return [(call, reply) for call, reply in good if self.asked[call]["method"] == "Launch"]

    def pass_time(self, seconds: float) -> None:
        """As a process does that has set itself a timer."""
        self.now += seconds
        moment = self.core.deadline()
        if moment is not None and moment <= self.now:
            self.core.tick(self.now)
        self.send()

    def ask(self, method: str, **parameters: Any) -> Any:
        """What a call is answered at once."""
        reply = self.replies[self.call(method, **parameters)]
        return reply["parameters"] if "error" not in reply else reply

    def launch(self, rank: int = 0, *, streams: bool = True, **given: Any) -> tuple[int, int]:
        """A launch of `true`; options of layout by name."""
        return self.call("Launch", rank, streams=streams, request=request(**given))

    def run(self, **given: Any) -> int:
        """A step that has begun: its number."""
        call = self.launch(**given)
        self.settle()
        return self.number(call)

    def number(self, call: tuple[int, int]) -> int:
        """Of the step that a call has launched."""
        reply = self.replies[call]
        assert "error" not in reply, reply
        assert reply["parameters"]["job"] == JOB
        return int(reply["parameters"]["step"])

    def end(self, number: int, status: int = 0) -> Header:
        """All parts of a step end so; its record."""
        for agent in self.agents.values():
            if number in agent.parts:
                agent.end(number, status)
        self.settle()
        return self.record(number)

    def record(self, number: int) -> Header:
        return dict(self.ask("Show", job=JOB, step=number)["record"])

    def lose(self, rank: int, why: str = "it does not answer") -> None:
        """A node dies."""
        del self.agents[rank]
        self.core.lost(rank, why, self.now)
        self.send()

    def new_leader(self, *ranks: int) -> None:
        """The leader is killed, and what was on its way from and to it is lost; another one reads the journal, and
        these join it, or all.
        """
        for agent in self.agents.values():
            agent.outbox.clear()
        lost = set(range(len(self.names))) - self.agents.keys()
        self.core = self._core()
        for rank in lost:
            self.core.lost(rank, "it does not answer", self.now)
        self.join(*ranks)
        for rank in ranks or self.agents:
            self.gateway_asks_again(rank)

    def is_idle(self) -> bool:
        """Whether nothing is held, nobody waits and nothing is remembered of what has ended but its records."""
        table = self.core.books.table
        return (
            not any(table.cpus_used(rank) for rank in self.agents)
            and not self.core.books.line
            and not self.core.books.life.steps
            and not any(agent.kept or agent.parts for agent in self.agents.values())
        )


def request(**given: Any) -> Header:
    """A launch request: options of layout, and members of the request where they are such."""
    members = ("mem", "mem_per_cpu", "kill_on_bad_exit", "immediate", "no_kill", "name", "time_limit", "jobid", "job",
               "step", "bulk", "pty", "argv", "environment")  # fmt: skip
    made: Header = {"argv": ["/bin/true"], "environment": {}, "cwd": "/", "ntasks": int(given.pop("ntasks", 1))}
    made |= {name: given.pop(name) for name in members if name in given}
    if given:
        made["layout"] = {name: str(value) for name, value in given.items()}
    return made


def plain(value: Any) -> Any:
    """As it comes out of a message."""
    return lean_json.loads(lean_json.dumps(value))
