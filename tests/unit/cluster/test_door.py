"""The door: who comes, what they send, what they get; clients that vanish, are slow, or send rubbish."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl.cluster.agent import early
from nodectl.cluster.agent.calls import Calls
from nodectl.cluster.agent.door import Door
from nodectl.cluster.agent.hello import Hello
from nodectl.cluster.agent.launched import LaunchedSteps
from nodectl.cluster.agent.views import Views
from nodectl.cluster.tree import LEADER
from nodectl.wire import framing
from nodectl.wire.names import NODE

ENOUGH = 20.0  # seconds, for a machine that is busy
REQUEST = {"argv": ["true"], "environment": {}, "cwd": "/", "ntasks": 2}


class Post:
    """A mesh that keeps what is sent."""

    rank = 3

    def __init__(self) -> None:
        self.sent: list[tuple[int, str, Mapping[str, Any], bytes]] = []

    def send(self, to: int, kind: str, header: Mapping[str, object], body: bytes = b"") -> None:
        self.sent.append((to, kind, header, body))

    def send_each(self, kind: str, common: Mapping[str, object], each: Mapping[int, object], body: bytes = b"") -> None:
        self.sent += [(to, kind, {**common, "part": part}, body) for to, part in each.items()]

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [header for _, sent, header, _ in self.sent if sent == kind]


class House:
    """A door, and who stands before it."""

    def __init__(self, place: Path) -> None:
        self.post = Post()
        self.launched = LaunchedSteps(self.post)
        self.path = str(place / "nodectl.sock")
        self.views = Views(self.post, Calls(str(place / "node.sock")))
        self.door = Door(self.post, self.path, "/own/node", self.launched, self.views, Hello("n3", 7, 4), 4)
        self.door.open()
        self.handlers = {**self.door.handlers(), **self.launched.handlers()}

    def visit(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self.path)
        sock.setblocking(False)
        return sock

    def hear(self, kind: str, rank: int, header: Mapping[str, object], body: bytes = b"") -> None:
        self.handlers[kind](rank, header, body)

    async def asked(self, count: int = 1) -> Mapping[str, Any]:
        """The latest call of so many that the leader was asked."""
        await until(lambda: len(self.post.of("call")) >= count)
        return self.post.of("call")[-1]

    def launch(self, sock: socket.socket, fds: list[int], **more: object) -> None:
        framing.send(sock, {"method": f"{NODE}.Launch", "parameters": {"request": {**REQUEST, **more}}}, fds)

    async def begin(self, sock: socket.socket, fds: list[int], **more: object) -> tuple[int, int]:
        """Launches step 7.0: the client's ends of its pipes."""
        self.launch(sock, fds, **more)
        call = await self.asked()
        self.hear("reply", LEADER, {"id": call["id"], "parameters": {"job": 7, "step": 0, "ranks": "0-1"}})
        reply, (events, commands) = await received(sock)
        assert reply == {"parameters": {"job": 7, "step": 0}}
        return events, commands

    def say(self, *events: Mapping[str, object]) -> None:
        self.hear("event", LEADER, {"job": 7, "step": 0, "events": list(events)})


async def refused(house: House, sock: socket.socket) -> None:
    """A step has begun, and its client cannot have it."""
    call = await house.asked()
    house.hear("reply", LEADER, {"id": call["id"], "parameters": {"job": 7, "step": 0, "ranks": "0-1"}})
    answer, _ = await received(sock)
    assert answer is not None
    assert answer["error"] == f"{NODE}.LaunchRefused"
    assert house.post.of("order")[-1]["call"]["method"] == "hangup"
    house.hear("out", 1, {"job": 7, "step": 0, "fd": 1, "at": 0}, b"anybody?\n")
    assert house.post.of("more")[-1]["gone"]


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # of what is looked at nobody tells
        await asyncio.sleep(0.001)


async def received(sock: socket.socket) -> tuple[Mapping[str, Any] | None, list[int]]:
    """The next message, None at the end; and what came along."""
    inbox = framing.Inbox(1 << 20)
    while (message := inbox.next()) is None:
        try:
            if not inbox.receive(sock):
                return None, []
        except BlockingIOError:
            await asyncio.sleep(0.001)
        except ConnectionError:
            return None, []
    return message, inbox.take_descriptors()


async def read(fd: int) -> bytes:
    """What there is in a pipe, when there is something."""
    os.set_blocking(fd, False)
    while True:
        try:
            return os.read(fd, 65536)
        except BlockingIOError:
            await asyncio.sleep(0.001)


def visiting(place: Path, work: Callable[[House], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(ENOUGH):
            house = House(place)
            await work(house)
            house.door.close()

    asyncio.run(bounded())


def test_a_call_is_asked_of_the_leader(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        framing.send(sock, {"method": f"{NODE}.List", "parameters": {"ended": 3}})
        call = await house.asked()
        assert (call["method"], call["parameters"], call["streams"]) == ("List", {"ended": 3}, False)
        house.hear("reply", LEADER, {"id": call["id"], "parameters": {"steps": []}})
        assert await received(sock) == ({"parameters": {"steps": []}}, [])

    visiting(tmp_path, work)


def test_what_the_leader_refuses_is_refused(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        house.launch(sock, [0, 1, 2])
        call = await house.asked()
        house.hear("reply", LEADER, {"id": call["id"], "error": "Busy", "parameters": {"reason": "full"}})
        assert await received(sock) == ({"error": f"{NODE}.Busy", "parameters": {"reason": "full"}}, [])

    visiting(tmp_path, work)


def test_calls_of_one_client_are_answered_in_their_order(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        for job in (1, 2):
            framing.send(sock, {"method": f"{NODE}.Show", "parameters": {"job": job, "step": 0}})
        first = await house.asked()
        await asyncio.sleep(0.02)
        assert len(house.post.of("call")) == 1, "the second waits"
        house.hear("reply", LEADER, {"id": first["id"], "parameters": {"record": {}}})
        assert (await house.asked(2))["parameters"]["job"] == 2

    visiting(tmp_path, work)


def test_rubbish_is_refused_and_nobody_else_suffers(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        good = house.visit()
        for rubbish in (b"rubbish\0", b"[]\0", b'{"method": 7}\0', b'{"method": "a.b", "more": 1}\0', b"\xff\0"):
            sock = house.visit()
            sock.send(rubbish)
            answer, _ = await received(sock)
            assert answer is not None
            assert "error" in answer
        framing.send(good, {"method": f"{NODE}.List"})
        await house.asked()

    visiting(tmp_path, work)


def test_a_call_without_end_is_cut_off(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        sent = 0
        try:
            while sent < 64 << 20:
                try:
                    sent += sock.send(b"x" * 65536)
                except BlockingIOError:
                    await asyncio.sleep(0)
        except ConnectionError:
            pass
        assert sent < 16 << 20

    visiting(tmp_path, work)


def test_descriptors_that_nobody_wants_are_closed(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        reader, writer = os.pipe()
        framing.send(sock, {"method": f"{NODE}.List"}, [writer])
        os.close(writer)
        answer, _ = await received(sock)
        assert answer is not None
        assert answer["error"] == f"{NODE}.InvalidRequest"
        assert await read(reader) == b""

    visiting(tmp_path, work)


def test_who_vanishes_while_a_step_waits_does_not_get_it(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        house.launch(sock, [0, 1, 2])
        call = await house.asked()
        sock.close()
        await until(lambda: house.post.of("hang_up"))
        assert house.post.of("hang_up")[-1] == {"id": call["id"]}
        house.hear("reply", LEADER, {"id": call["id"], "parameters": {"job": 7, "step": 0}})
        await until(lambda: house.post.of("order"))  # it had begun by then
        assert house.post.of("order")[-1]["call"]["method"] == "hangup"

    visiting(tmp_path, work)


def test_a_step_is_told_of_as_by_a_node(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        reader, stdout = os.pipe()
        events, commands = await house.begin(house.visit(), [0, stdout, 2])
        house.say({"event": "start", "pids": [1, 2]})
        assert framing.decode((await read(events))[:-1])["continues"]
        os.write(
            commands, framing.encode({"method": "org.nodectl.step.Signal", "parameters": {"signal": 2}, "oneway": True})
        )
        await until(lambda: house.post.of("order"))
        assert house.post.of("order")[-1]["call"] == {"method": "Signal", "parameters": {"signal": 2}}
        house.hear("out", 1, {"job": 7, "step": 0, "fd": 1, "at": 0}, b"from n1\n")
        assert await read(reader) == b"from n1\n"
        house.say({"event": "end", "record": {"exit_status": 3}})
        message = framing.decode((await read(events))[:-1])
        assert message == {"parameters": {"event": {"event": "end", "record": {"exit_status": 3}}}}
        assert await read(events) == b""

    visiting(tmp_path, work)


def test_the_end_waits_for_output_that_is_not_read_yet(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        reader, stdout = os.pipe()
        events, _ = await house.begin(house.visit(), [0, stdout, 2])
        much = b"x" * 100_000
        house.hear("out", 0, {"job": 7, "step": 0, "fd": 1, "at": 0}, much)
        house.say({"event": "end", "record": {"exit_status": 0}})
        os.set_blocking(events, False)
        await asyncio.sleep(0.02)
        try:
            assert os.read(events, 100) != b""
            raise AssertionError("it was told too early")
        except BlockingIOError:
            pass
        found = b""
        while len(found) < len(much):
            found += await read(reader)
        assert b'"end"' in await read(events)

    visiting(tmp_path, work)


def test_output_that_is_quicker_than_the_answer_is_kept(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        reader, stdout = os.pipe()
        house.hear("out", 1, {"job": 7, "step": 0, "fd": 1, "at": 0}, b"early\n")
        house.say({"event": "end", "record": {"exit_status": 0}})
        events, _ = await house.begin(house.visit(), [0, stdout, 2])
        assert await read(reader) == b"early\n"
        assert b'"end"' in await read(events)

    visiting(tmp_path, work)


def test_early_output_for_which_there_is_no_room_is_asked_for(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        (reader, stdout), (other, stderr) = os.pipe(), os.pipe()
        much = b"x" * (1 << 20)
        for part in range(20):
            house.hear("out", 0, {"job": 7, "step": 0, "fd": 1, "at": part << 20}, much)
        house.hear("out", 1, {"job": 7, "step": 0, "fd": 2, "at": 0}, much)
        await house.begin(house.visit(), [0, stdout, stderr])
        more = [(to, told) for to, kind, told, _ in house.post.sent if kind == "more" and told.get("again")]
        asked = {(to, told["fd"]): told["have"] for to, told in more}
        assert asked == {(0, 1): 15 << 20, (0, 2): 0, (1, 1): 0, (1, 2): 0}
        house.hear("out", 1, {"job": 7, "step": 0, "fd": 2, "at": 0}, b"from n1\n")
        assert await read(other) == b"from n1\n"
        os.close(reader)

    visiting(tmp_path, work)


@pytest.mark.parametrize("kind", [{"bulk": True}, {"pty": [0, 24, 80]}])
def test_early_words_for_which_there_is_no_room_are_asked_for(tmp_path: Path, kind: dict[str, object]) -> None:
    async def work(house: House) -> None:
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        house.hear("out", 0, {"job": 7, "step": 0, "fd": 1, "at": 0}, b"x" * ((16 << 20) - 1024))
        house.hear("work", 1, {"job": 7, "step": 0, "n": 1, "heard": 0, "say": []})
        await house.begin(house.visit(), [end.fileno() for end in (*ends, ends[1])], **kind)
        to, _, told, _ = next(one for one in house.post.sent if one[1] == "deal")
        assert (to, told["heard"], told["again"]) == (1, 0, True)

    visiting(tmp_path, work)


def test_early_output_waits_as_long_as_a_launch_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_SECONDS", 0.01)

    async def work(house: House) -> None:
        reader, stdout = os.pipe()
        sock = house.visit()
        house.launch(sock, [0, stdout, 2])
        call = await house.asked()
        house.hear("out", 1, {"job": 7, "step": 0, "fd": 1, "at": 0}, b"early\n")
        await asyncio.sleep(0.05)  # another node needs long to begin its part
        house.hear("reply", LEADER, {"id": call["id"], "parameters": {"job": 7, "step": 0, "ranks": "0-1"}})
        assert await read(reader) == b"early\n"

    visiting(tmp_path, work)


def test_early_output_that_nobody_has_launched_is_not_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_SECONDS", 0.01)

    async def work(house: House) -> None:
        house.hear("out", 1, {"job": 7, "step": 0, "fd": 1, "at": 0}, b"x" * (16 << 20))
        house.hear("work", 2, {"job": 7, "step": 0, "n": 1, "heard": 0, "say": None})
        await until(lambda: house.post.of("deal"))
        assert {to for to, kind, told, _ in house.post.sent if kind == "deal" and told["gone"]} == {1, 2}

    visiting(tmp_path, work)


def test_a_client_that_dies_has_its_step_ended(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        events, commands = await house.begin(house.visit(), [0, 1, 2])
        os.close(events)
        os.close(commands)
        await until(lambda: house.post.of("order"))
        assert house.post.of("order")[-1]["call"]["method"] == "hangup"
        house.hear("out", 1, {"job": 7, "step": 0, "fd": 1, "at": 0}, b"anybody?\n")
        assert house.post.of("more")[-1]["gone"]

    visiting(tmp_path, work)


def test_a_leader_that_comes_back_hears_again_of_a_client_that_died(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        events, commands = await house.begin(house.visit(), [0, 1, 2])
        house.launched.ask_again()
        assert not house.post.of("order")
        os.close(events)
        os.close(commands)
        await until(lambda: house.post.of("order"))
        house.launched.ask_again()
        first, again = house.post.of("order")
        assert again == first

    visiting(tmp_path, work)


def test_the_end_of_a_step_whose_terminal_was_lost_is_told(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        shown, terminal = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = terminal.detach()
        events, _ = await house.begin(house.visit(), [fd, os.dup(fd), os.dup(fd)], pty=[0, 24, 80])
        house.hear("work", 1, {"job": 7, "step": 0, "n": 1, "heard": 0, "say": None})
        house.hear("work", 1, {"job": 7, "step": 0, "n": 2, "heard": 0, "say": "a packet"})
        assert shown.recv(100) == b"a packet"
        house.say({"event": "end", "record": {"exit_status": 1, "state": "NODE_FAIL"}})
        assert b"NODE_FAIL" in await read(events)
        shown.close()
        os.close(fd)

    visiting(tmp_path, work)


@pytest.mark.parametrize("stdout", ["a\0b", "\ud800", "/nonexistent/file"])
def test_a_file_that_cannot_be_opened_is_told_and_ends_the_step(tmp_path: Path, stdout: str) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        house.launch(sock, [0, 1, 2], stdout=stdout)
        await refused(house, sock)

    visiting(tmp_path, work)


def test_where_no_descriptor_is_left_for_a_step_its_client_is_told(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        house.launch(sock, [0, 1, 2])
        call = await house.asked()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, limits[1]), limits[1]))
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            for fd in taken[:2]:
                os.close(fd)  # one of two pipes can be made
            house.hear("reply", LEADER, {"id": call["id"], "parameters": {"job": 7, "step": 0, "ranks": "0-1"}})
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for fd in taken[2:]:
                os.close(fd)
        answer, _ = await received(sock)
        assert answer is not None
        assert "Too many open files" in answer["parameters"]["reason"]
        assert house.post.of("order")[-1]["call"]["method"] == "hangup"

    visiting(tmp_path, work)


def test_events_that_nobody_reads_end_the_step_before_the_memory(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        await house.begin(house.visit(), [0, 1, 2])
        for _ in range(100):
            house.say({"event": "message", "text": "x" * 65536})
        await until(lambda: house.post.of("order"))
        assert house.post.of("order")[-1]["call"]["method"] == "hangup"

    visiting(tmp_path, work)


def test_a_leader_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        framing.send(sock, {"method": f"{NODE}.Wait", "parameters": {"job": 7, "step": 0}})
        first = await house.asked()
        house.door.ask_again()
        again = await house.asked(2)
        assert again == first
        for _ in range(2):  # one answers twice
            house.hear("reply", LEADER, {"id": first["id"], "parameters": {"record": {}}})
        assert await received(sock) == ({"parameters": {"record": {}}}, [])

    visiting(tmp_path, work)
