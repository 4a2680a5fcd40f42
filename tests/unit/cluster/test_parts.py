"""A part of a step: what is ordered, told and ended, with a node's daemon in whose place the test answers."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nodectl.client.command import Failed
from nodectl.cluster.agent.exchange import Exchange
from nodectl.cluster.agent.parts import Parts
from nodectl.cluster.tree import LEADER
from nodectl.model.wire import framing

ENOUGH = 20.0  # seconds, for a machine that is busy
PART = {"tasks": "2-3", "masks": ["0", "0"], "nodeid": 1}
ORDER: dict[str, Any] = {
    "job": 7,
    "step": 1,
    "client": 0,
    "request": {"argv": ["true"], "environment": {}},
    "whole": {"nnodes": 2},
}


class Daemon:
    """Of the part's node: one step, whose pipes are in the test's hands."""

    def __init__(self) -> None:
        self.refuses: Failed | OSError | None = None
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.events = self.commands = self.stdout = -1
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(
        self, method: str, parameters: Mapping[str, object], fds: Sequence[int] = ()
    ) -> tuple[Mapping[str, Any], list[int]]:
        self.asked.append((method, parameters))
        await self.may_answer.wait()
        if self.refuses is not None:
            raise self.refuses
        self.stdout = os.dup(fds[1])
        events, self.events = os.pipe()
        self.commands, commands = os.pipe()
        return {"job": 7, "step": 1}, [events, commands]

    def say(self, event: Mapping[str, object]) -> None:
        os.write(self.events, framing.encode({"parameters": {"event": event}, "continues": True}))


class Stage:
    """An agent's parts, and what they send."""

    def __init__(self) -> None:
        self.rank = 1
        self.sent: list[tuple[int, str, Mapping[str, Any]]] = []
        self.daemon = Daemon()
        exchange = Exchange(self, "/mpi")  # type: ignore[arg-type]  # no server comes
        self.parts = Parts(self, "n1", self.daemon, "/gateway", exchange)  # type: ignore[arg-type]  # it answers as a daemon's calls do
        self.handlers = self.parts.handlers()

    def send(self, to: int, kind: str, header: Mapping[str, object], body: bytes = b"") -> None:
        del body
        self.sent.append((to, kind, header))

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [header for _, sent, header in self.sent if sent == kind]

    def hear(self, kind: str, header: Mapping[str, object], sender: int = LEADER) -> None:
        self.handlers[kind](sender, header, b"")

    async def begin(self, **more: object) -> None:
        self.hear("start", {**ORDER, "request": {**ORDER["request"], **more}, "part": PART})
        await until(lambda: self.of("begun"))


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # of what is looked at nobody tells
        await asyncio.sleep(0.001)


def staged(work: Callable[[Stage], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(ENOUGH):
            await work(Stage())

    asyncio.run(bounded())


def test_a_part_is_launched_as_it_was_ordered() -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        ((method, parameters),) = stage.daemon.asked
        request = parameters["request"]
        assert (method, request["ntasks"], request["environment"]) == ("Launch", 2, {"NODECTL_SOCKET": "/gateway"})
        assert request["part"] == {**PART, "nnodes": 2, "job": 7, "step": 1}

    staged(work)


def test_what_its_mpi_server_ends_everywhere_is_told_at_once_and_with_its_end() -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        stage.daemon.say({"event": "fatal", "state": "FAILED", "reason": "task 2 called MPI_Abort with code 7"})
        await until(lambda: len(stage.of("begun")) == 2)
        fatal = {"fatal": ["FAILED", "task 2 called MPI_Abort with code 7"]}
        assert stage.of("begun") == [{"job": 7, "step": 1}, {"job": 7, "step": 1, **fatal}]
        stage.daemon.say({"event": "end", "record": {"exit_status": 143}})
        await until(lambda: stage.of("ended"))
        assert stage.of("ended") == [{"job": 7, "step": 1, "record": {"exit_status": 143}, **fatal}]

    staged(work)


def test_its_end_is_told_once_and_again_to_a_leader_that_asks() -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        stage.daemon.say({"event": "start", "pids": [10, 11]})
        stage.daemon.say({"event": "end", "record": {"exit_status": 0}})
        await until(lambda: stage.of("ended"))
        await asyncio.sleep(0.05)
        assert stage.of("ended") == [{"job": 7, "step": 1, "record": {"exit_status": 0}}]
        assert stage.of("told")[0]["events"][0]["node"] == "n1"
        stage.parts.tell_all(LEADER, {"token": 5}, b"")
        assert len(stage.of("ended")) == 2
        assert stage.of("here") == [{"steps": [], "token": 5}]
        stage.hear("over", {"job": 7, "step": 1})
        stage.parts.tell_all(LEADER, {"token": 6}, b"")
        assert len(stage.of("ended")) == 2

    staged(work)


def test_its_end_waits_for_its_output_to_arrive() -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        os.write(stage.daemon.stdout, b"result\n")
        stage.daemon.say({"event": "end", "record": {"exit_status": 0}})
        await until(lambda: any(header.get("end") for header in stage.of("out")))
        assert not stage.of("ended")
        stage.hear("more", {"job": 7, "step": 1, "fd": 1, "bytes": 0, "have": 7}, sender=0)
        assert len(stage.of("ended")) == 1

    staged(work)


def test_what_the_daemon_refuses_the_leader_is_told() -> None:
    async def work(stage: Stage) -> None:
        stage.daemon.refuses = Failed("no such directory", 4, "org.nodectl.LaunchRefused")
        await stage.begin()
        error = {"name": "org.nodectl.LaunchRefused", "reason": "no such directory", "exit_status": 4}
        assert stage.of("begun") == [{"job": 7, "step": 1, "error": error}]

    staged(work)


def test_where_no_descriptor_is_left_for_its_streams_the_leader_is_told() -> None:
    async def work(stage: Stage) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken: list[int] = []
        most = max(map(int, os.listdir("/proc/self/fd"))) + 16  # other tests may have left some open
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            os.close(taken.pop())
            os.close(taken.pop())  # one of three pipes can be made
            stage.hear("start", {**ORDER, "part": PART})
            await asyncio.sleep(0.01)
            left = [os.dup(0), os.dup(0)]  # which is closed then
            taken += left
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for fd in taken:
                os.close(fd)
        await until(lambda: stage.of("begun"))
        assert "Too many open files" in stage.of("begun")[0]["error"]["reason"]
        stage.parts.tell_all(LEADER, {"token": 1}, b"")
        assert stage.of("here") == [{"steps": [], "token": 1}]

    staged(work)


def test_a_daemon_whose_answer_is_none_has_lost_the_step() -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        stage.daemon.refuses = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        os.close(stage.daemon.events)
        await until(lambda: stage.of("ended"))
        assert stage.of("ended")[0]["record"]["state"] == "NODE_FAIL"

    staged(work)


def test_an_order_that_comes_before_the_step_has_begun_waits_for_it() -> None:
    async def work(stage: Stage) -> None:
        stage.daemon.may_answer.clear()
        stage.hear("start", {**ORDER, "part": PART})
        call = {"method": "Signal", "parameters": {"signal": 15}}
        stage.hear("order", {"job": 7, "step": 1, "call": call})
        await asyncio.sleep(0.02)
        stage.daemon.may_answer.set()
        await until(lambda: stage.of("begun"))
        message = framing.decode(os.read(stage.daemon.commands, 65536)[:-1])
        assert message["method"] == "org.nodectl.step.Signal"

    staged(work)


def test_an_order_that_two_leaders_pass_on_is_done_once() -> None:
    async def work(stage: Stage) -> None:
        stage.daemon.may_answer.clear()
        stage.hear("start", {**ORDER, "part": PART})
        orders = [
            {"job": 7, "step": 1, "call": {"method": "Signal", "parameters": {"signal": 10}}, "by": [0, number]}
            for number in (-1, -2)
        ]
        for order in orders:
            stage.hear("order", order)
        stage.daemon.may_answer.set()
        await until(lambda: stage.of("begun"))
        for order in reversed(orders):
            stage.hear("order", order)
        stage.hear("order", {"job": 7, "step": 1, "call": {"method": "End"}})
        told = b""
        while b".End" not in told:
            told += os.read(stage.daemon.commands, 65536)
        assert told.count(b".Signal") == 2

    staged(work)


def test_when_its_client_has_gone_its_step_is_told_by_the_end_of_the_pipe() -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        stage.hear("order", {"job": 7, "step": 1, "call": {"method": "hangup", "parameters": {}}})
        assert os.read(stage.daemon.commands, 100) == b""

    staged(work)


def test_the_end_of_a_part_for_commands_is_told_to_who_sends_them() -> None:
    async def work(stage: Stage) -> None:
        await stage.begin(bulk=True)
        stage.daemon.say({"event": "end", "record": {"state": "NODE_FAIL"}})
        await until(lambda: stage.of("ended"))
        gone = {"job": 7, "step": 1, "heard": 0, "gone": True}
        assert stage.of("work") == [gone]
        stage.hear("deal", {"job": 7, "step": 1, "heard": 0, "n": 1, "say": {"method": "Run"}}, sender=0)
        assert stage.of("work") == [gone, gone], "who has not heard it sends more"
        stage.hear("deal", gone, sender=0)
        assert len(stage.of("work")) == 2, "nobody answers that"

    staged(work)


def test_commands_of_a_step_that_was_cancelled_go_nowhere_else() -> None:
    async def work(stage: Stage) -> None:
        await stage.begin(bulk=True)
        stage.daemon.say({"event": "end", "record": {"state": "CANCELLED"}})
        await until(lambda: stage.of("ended"))
        assert not stage.of("work")

    staged(work)


def test_an_order_of_no_sense_is_refused_and_not_fatal() -> None:
    async def work(stage: Stage) -> None:
        stage.hear("start", {"job": 7, "step": 1, "part": {}})
        stage.hear("start", {**ORDER, "step": 2, "request": {**ORDER["request"], "pty": []}, "part": PART})
        stage.hear("start", {**ORDER, "step": 3, "request": [], "part": PART})
        assert ["no order of a part" in told["error"]["reason"] for told in stage.of("begun")] == [True] * 3
        await stage.begin()

    staged(work)
