"""The gateway: who comes, what they send, what they get; clients that vanish, are slow, or send rubbish."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from pathlib import Path
from typing import Any

import pytest

from nodectl.cluster.agent.gateway import Gateway
from nodectl.cluster.tree import LEADER
from nodectl.model.wire import framing
from nodectl.model.wire.names import NODE
from unit.cluster.house import House, read, received, refused, until, visiting


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


def test_descriptors_of_who_has_gone_before_the_call_is_looked_at_are_closed(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            sock = house.visit()
            await asyncio.sleep(0)  # it has been let in when what follows is there at once
            framing.send(sock, {"method": f"{NODE}.Hello", "oneway": True})
            house.launch(sock, [0, 1, 2])
            sock.close()
        await until(lambda: len(os.listdir("/proc/self/fd")) == before)
        assert not house.post.of("call")

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


def test_who_withdraws_a_launch_hears_what_the_leader_says_of_it(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        house.launch(sock, [0, 1, 2])
        call = await house.asked()
        framing.send(sock, {"method": f"{NODE}.Withdraw", "oneway": True})
        await until(lambda: house.post.of("withdraw"))
        assert house.post.of("withdraw") == [{"id": call["id"]}]
        house.gateway.ask_again()  # of a leader that knows nothing of it
        assert house.post.of("withdraw")[1:] == [{"id": call["id"]}]
        house.hear("reply", LEADER, {"id": call["id"], "error": "Withdrawn", "parameters": {"reason": "in time"}})
        assert await received(sock) == ({"error": f"{NODE}.Withdrawn", "parameters": {"reason": "in time"}}, [])
        framing.send(sock, {"method": f"{NODE}.List"})
        assert (await house.asked(3))["method"] == "List"

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


def test_a_signal_is_said_again_until_a_leader_has_heard_it(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        _, commands = await house.begin(house.visit(), [0, 1, 2])
        for number in (2, 15):
            call = {"method": "org.nodectl.step.Signal", "parameters": {"signal": number}, "oneway": True}
            os.write(commands, framing.encode(call))
        await until(lambda: len(house.post.of("order")) == 2)
        first, second = house.post.of("order")
        house.launched.ask_again()
        assert house.post.of("order")[2:] == [first, second]
        house.hear("ordered", LEADER, {"id": first["id"]})
        house.launched.ask_again()
        assert house.post.of("order")[4:] == [second]

    visiting(tmp_path, work)


@pytest.mark.parametrize(
    ("method", "parameters", "named"),
    [
        ("Signal", {"signal": 2, "note": "x" * 1000}, "note"),
        ("Signal", {"signal": "x" * 1000}, "signal"),
        ("Signal", {"signal": 65}, "signal"),
        ("Signal", {}, "signal"),
        ("End", {"reason": "x" * 1000}, "reason"),
        ("End", ["x" * 1000], "parameters"),
    ],
)
def test_what_is_no_order_is_not_kept_for_a_leader(tmp_path: Path, method: str, parameters: object, named: str) -> None:
    async def work(house: House) -> None:
        events, commands = await house.begin(house.visit(), [0, 1, 2])
        os.write(commands, framing.encode({"method": f"org.nodectl.step.{method}", "parameters": parameters}))
        refused: Any = framing.decode((await read(events))[:-1])
        assert refused["error"] == "org.varlink.service.InvalidParameter"
        assert refused["parameters"]["parameter"] == named
        house.launched.ask_again()
        assert not house.post.of("order")

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
        house.gateway.ask_again()
        again = await house.asked(2)
        assert again == first
        for _ in range(2):  # one answers twice
            house.hear("reply", LEADER, {"id": first["id"], "parameters": {"record": {}}})
        assert await received(sock) == ({"parameters": {"record": {}}}, [])

    visiting(tmp_path, work)


def test_a_terminal_that_is_none_is_refused(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        sock = house.visit()
        house.launch(sock, [0, 1, 2], pty=[0, 24, 80, 0, 0])
        answer, _ = await received(sock)
        assert answer is not None
        assert answer["parameters"]["parameter"] == "pty"

    visiting(tmp_path, work)


def test_a_gateway_without_descriptors_waits_for_some_and_does_not_spin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Gateway] = []
    accept = Gateway._accept

    def counted(gateway: Gateway) -> None:
        tried.append(gateway)
        accept(gateway)

    monkeypatch.setattr(Gateway, "_accept", counted)

    async def work(house: House) -> None:
        sock = socket.socket(socket.AF_UNIX)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(map(int, os.listdir("/proc/self/fd"))) + 8
        taken: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            sock.connect(house.path)
            sock.setblocking(False)
            await until(lambda: tried)
            await asyncio.sleep(0.05)
            assert len(tried) < 10
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for fd in taken:
                os.close(fd)
        framing.send(sock, {"method": f"{NODE}.List"})
        await house.asked()

    visiting(tmp_path, work)
