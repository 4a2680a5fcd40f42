"""A client of bulk steps by hand: what it sends, and what it is told."""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from nodectl.model.wire import framing
from rootful.node import NOBODY, PATIENCE, Node
from rootful.raw import connect, launch

STEP = "org.nodectl.step"


class BulkClient:
    """One bulk step; `conftest.py` closes what a test leaves. `ended` are the ends by number, `numbers` these as they
    came, `record` is the step's.
    """

    made: ClassVar[list[BulkClient]] = []

    def __init__(
        self, node: Node, slots: int, *, user: pwd.struct_passwd = NOBODY, output: int | None = None, **request: object
    ) -> None:
        self.node = node
        self.ended: dict[int, dict[str, Any]] = {}
        self.numbers: list[int] = []
        self.begun: dict[int, list[int]] = {}
        self.withdrawn: list[int] = []
        self.withdrawals = 0
        self.sent = 0
        self.refused: list[Mapping[str, object]] = []
        self.messages: list[str] = []
        self.record: dict[str, Any] | None = None
        self.start: dict[str, Any] = {}
        null = os.open("/dev/null", os.O_RDWR)
        try:
            os.setegid(user.pw_gid)
            os.seteuid(user.pw_uid)
            try:
                sock = connect(node)
            finally:
                os.seteuid(0)
                os.setegid(0)
            with sock:
                fds = [null, null if output is None else output, null if output is None else output]
                socket.send_fds(
                    sock, [launch(**{"ntasks": slots, "bulk": True, "argv": ["bulk", "{}"], **request})], fds
                )
                inbox = framing.Inbox(1 << 20)
                self.answer = framing.receive(sock, inbox) or {}
                ends = inbox.take_descriptors()
        finally:
            os.close(null)
        assert len(ends) == 2, self.answer
        self.events, self.orders = ends
        self.job = int(str(self.answer["parameters"]["job"]))  # type: ignore[index]  # a launch's answer
        self._inbox = framing.Inbox(8 << 20)
        self.made.append(self)

    def call(self, method: str, **parameters: object) -> None:
        data = framing.encode({"method": f"{STEP}.{method}", "parameters": parameters, "oneway": True})
        while data:
            data = data[os.write(self.orders, data) :]

    def run(self, *commands: dict[str, object]) -> None:
        self.sent += len(commands)
        with contextlib.suppress(BrokenPipeError):  # the step has ended: its record says why
            self.call("Run", commands=list(commands))

    def read(self, patience: float = PATIENCE) -> bool:
        """Reads once; False at the end of the events."""
        assert select.select([self.events], [], [], patience)[0], f"nothing came; {len(self.numbers)} have ended"
        data = os.read(self.events, 65536)
        self._inbox.feed(data)
        while (message := self._inbox.next()) is not None:
            if "error" in message:
                self.refused.append(message)
            else:
                self._take(message["parameters"]["event"])  # type: ignore[index]  # an event
        return bool(data)

    def _take(self, event: dict[str, Any]) -> None:
        if event["event"] == "start":
            self.start = event
        elif event["event"] == "message":
            self.messages.append(event["text"])
        elif event["event"] == "end":
            self.record = event["record"]
        elif event["event"] == "tasks":
            for seq, *place in event.get("begun", ()):
                self.begun[seq] = place
            for one in event.get("ended", ()):
                self.ended[one["seq"]] = one
                self.numbers.append(one["seq"])
            self.withdrawals += "withdrawn" in event
            self.withdrawn += event.get("withdrawn", ())

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, what
            assert self.read() or condition(), f"the events ended: {what}; {self.record}; {self.messages}"

    def ready(self) -> BulkClient:
        self.until(lambda: self.start, "the step takes commands")
        return self

    def all(self, commands: Iterable[dict[str, object]], *, ahead: int = 0) -> dict[str, Any]:
        """Runs them, however many, and ends the step; its record. `ahead`: not the whole window, but so many."""
        self.ready()
        for command in commands:
            self.until(
                lambda: self.sent - len(self.numbers) < (ahead or self.start["window"]), "there is room in the window"
            )
            self.run(command)
        self.call("NoMore")
        return self.end()

    def shown(self) -> dict[str, Any]:
        """What `nodectl show` has of the running step."""
        found: dict[str, Any] = self.node.call("Show", job=self.job, step=0)["record"]  # type: ignore[assignment]
        return found

    def stepd(self) -> int:
        """The pid of its stepd."""
        return int(self.shown()["pid"])

    def end(self) -> dict[str, Any]:
        """The step's record, when it has ended."""
        self.until(lambda: self.record is not None, "the step ends")
        assert self.record is not None
        self.close()
        return self.record

    def close(self) -> None:
        for fd in (self.events, self.orders):
            if fd >= 0:
                os.close(fd)
        self.events = self.orders = -1


def shell(seq: int, script: str, **members: object) -> dict[str, object]:
    """A command that a shell runs."""
    return {"seq": seq, "argv": ["/bin/sh", "-c", script], "stdout": "none", "stderr": "none", **members}
