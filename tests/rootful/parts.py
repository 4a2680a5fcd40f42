"""Parts of steps over several nodes, each started by hand on a node of an ordinary user's own."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.cluster.leader.parts import Part, parts_of
from nodectl.model.wire import framing
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import Settings
from nodectl.placement.binding.step import place
from nodectl.placement.machine import topology
from nodectl.selection.planning import allocate
from rootful.node import PATIENCE
from rootful.own import OwnNode

NAMES = ("n1", "n2")
JOB = 4711
MACHINE = topology.read(allowed=os.sched_getaffinity(0))


def laid_out(step: int, *, job: int = JOB, environment: Mapping[str, str] | None = None, **given: object) -> list[Part]:
    """The parts of a step of these options on two nodes that are both like this machine."""
    request = request_of(given, {})
    machines = (MACHINE,) * len(NAMES)
    held = allocate(machines, request, (), Settings(), NAMES)
    layout = place(machines, held, request, Settings())
    cpus = dict.fromkeys(NAMES, MACHINE.usable.bit_count())
    whole, own = parts_of(layout, NAMES, (job, step), job_cpus=cpus, environment=environment)
    return [{**whole, **part} for part in own.values()]


def by_hand(step: int, tasks: Sequence[str], *, job: int = JOB, **more: object) -> list[Part]:
    """The parts of a step whose tasks have these numbers on its nodes, all unbound."""
    counts = [len(_numbers(text)) for text in tasks]
    cpus = f"{MACHINE.usable:x}"
    return [
        {
            "job": job, "step": step, "nodes": f"n[1-{len(tasks)}]", "nnodes": len(tasks), "ntasks": sum(counts),
            "tasks_per_node": ",".join(map(str, counts)), "node": f"n{nodeid + 1}", "nodeid": nodeid, "tasks": text,
            "cpus": cpus, "masks": ["0"] * counts[nodeid], **more,
        }
        for nodeid, text in enumerate(tasks)
    ]  # fmt: skip


def _numbers(text: str) -> list[int]:
    ranges = (word.partition("-") for word in text.split(","))
    return [task for low, _, high in ranges for task in range(int(low), int(high or low) + 1)]


def request(node: OwnNode, part: Part, argv: Sequence[str], **more: object) -> dict[str, object]:
    """The launch request of a part."""
    return {
        "argv": list(argv), "environment": {"PATH": "/usr/bin:/bin"}, "cwd": str(node.home),
        "ntasks": len(_numbers(str(part["tasks"]))), "part": part, **more,
    }  # fmt: skip


class PartRun:
    """One part, as its client sees it. `seen`: the ends of what shows it its terminal, in the place of stdin."""

    def __init__(
        self, node: OwnNode, asked: Mapping[str, object], stdin: bytes = b"",
        seen: tuple[socket.socket, socket.socket] | None = None,
    ) -> None:  # fmt: skip
        self.outputs = [b"", b""]
        self.seen = seen
        os.seteuid(node.user.pw_uid)
        try:
            self.sock = framing.connect(str(node.socket))
        finally:
            os.seteuid(0)
        self.sock.settimeout(PATIENCE)
        ours, theirs = zip(*(os.pipe() for _ in range(3)), strict=True)
        streams = [ours[0] if seen is None else seen[0].fileno(), theirs[1], theirs[2]]
        framing.send(self.sock, {"method": "org.nodectl.Launch", "parameters": {"request": dict(asked)}}, streams)
        inbox = framing.Inbox(1 << 22)
        self.reply: Mapping[str, Any] = framing.receive(self.sock, inbox) or {}
        framing.close([ours[0], theirs[1], theirs[2]])
        if seen is not None:
            seen[0].close()  # the other one is kept: who closes it hangs up
        with contextlib.suppress(BrokenPipeError):  # no task of this part reads it
            os.write(theirs[0], stdin)
        os.close(theirs[0])
        self.readers = [threading.Thread(target=self._read, args=(place, ours[place + 1])) for place in range(2)]
        for reader in self.readers:
            reader.start()
        self.events_fd, self.commands = (-1, -1) if "error" in self.reply else inbox.take_descriptors()
        self.events: list[Mapping[str, Any]] = []
        self._events = framing.Inbox(1 << 22)

    def _read(self, place: int, fd: int) -> None:
        while data := os.read(fd, 65536):
            self.outputs[place] += data
        os.close(fd)

    def until(self, event: str) -> Mapping[str, Any]:
        """Reads events until one of this name."""
        while True:
            while (message := self._events.next()) is not None:
                parameters: Any = message["parameters"]
                self.events.append(parameters["event"])
                if parameters["event"]["event"] == event:
                    return self.events[-1]
            data = os.read(self.events_fd, 65536)
            assert data, f"no event {event!r} came: {self.events}"
            self._events.feed(data)

    def end(self) -> Mapping[str, Any]:
        """Its record, when all is over."""
        assert "error" not in self.reply, self.reply
        record: Mapping[str, Any] = self.until("end")["record"]
        for reader in self.readers:
            reader.join(PATIENCE)
        framing.close([self.events_fd, self.commands])
        if self.seen is not None:
            self.seen[1].close()
        self.sock.close()
        return record

    @property
    def out(self) -> str:
        return self.outputs[0].decode()

    @property
    def err(self) -> str:
        return self.outputs[1].decode()

    def refusal(self) -> str:
        """Why it was not started."""
        assert "error" in self.reply, self.reply
        for reader in self.readers:
            reader.join(PATIENCE)
        self.sock.close()
        return str(self.reply["parameters"]["reason"])


def run(nodes: Sequence[OwnNode], parts: Sequence[Part], argv: Sequence[str], **more: object) -> list[PartRun]:
    """All parts of a step, each on its node, to their ends. They run at the same time."""
    begun = [PartRun(node, request(node, part, argv, **more)) for node, part in zip(nodes, parts, strict=True)]
    for one in begun:
        one.end()
    return begun


def call(node: OwnNode, method: str, user: int | None = None, **parameters: object) -> Mapping[str, Any]:
    """A call of the node's user, or of another one; the whole reply."""
    os.seteuid(node.user.pw_uid if user is None else user)
    try:
        sock = framing.connect(str(node.socket))
    finally:
        os.seteuid(0)
    with contextlib.closing(sock):
        sock.settimeout(PATIENCE)
        framing.send(sock, {"method": f"org.nodectl.{method}", "parameters": parameters})
        reply: Any = framing.receive(sock, framing.Inbox(1 << 22))
    return reply  # type: ignore[no-any-return]
