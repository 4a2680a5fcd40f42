"""What comes for a step before the answer to its launch is kept, or asked for again."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from nodectl.cluster.agent import early
from nodectl.cluster.tree import LEADER
from unit.cluster.house import House, read, until, visiting


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


def test_an_early_end_for_which_there_is_no_room_is_asked_of_the_leader(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        house.hear("out", 0, {"job": 7, "step": 0, "fd": 1, "at": 0}, b"x" * ((16 << 20) - 1024))
        house.say({"event": "end", "record": {"exit_status": 0}})
        await house.begin(house.visit(), [0, os.open(os.devnull, os.O_WRONLY), 2])
        assert [told for to, _, told, _ in house.post.sent if to == LEADER][-1] == {"steps": [[7, 0]]}

    visiting(tmp_path, work)
