"""What steps use is read in pieces: the event loop has other work."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.launch.cgroup.usage import Usage
from nodectl.service.daemon.methods import show
from nodectl.service.daemon.methods.show import Show

STEPS = 100


class Reader:
    """Counts what is read at a time."""

    read_now = 0
    most = 0

    def __init__(self, in_all: int) -> None:
        assert in_all < 1000

    def read(self, cgroup: str) -> Usage:
        """Of each the same."""
        assert cgroup
        Reader.read_now += 1
        Reader.most = max(Reader.most, Reader.read_now)
        return Usage(1.0, 2, None, None, {})


def running(number: int, *, ended: bool = False, in_prolog: bool = False) -> Any:
    step = SimpleNamespace(job_id=number, step_id=0, uid=1000 + number % 2, cgroup=f"/job_{number}")
    done = SimpleNamespace(done=lambda: ended)
    return SimpleNamespace(step=step, key=(number, 0), in_prolog=in_prolog, ended=done)


async def ask(calls: int) -> list[Any]:
    lives = [running(number, ended=number == 3, in_prolog=number == 5) for number in range(STEPS)]
    registry: Any = SimpleNamespace(
        live={live.step.job_id: live for live in lives},
        permissions=SimpleNamespace(is_admin=lambda peer: peer.uid == 0),
    )
    methods = Show("", registry, *(None, None))  # type: ignore[arg-type]  # neither is used
    over = False

    async def others() -> None:
        while not over:
            Reader.read_now = 0
            await asyncio.sleep(0)

    other = asyncio.ensure_future(others())
    answers = await asyncio.gather(
        *(methods.usage(SimpleNamespace(peer=SimpleNamespace(uid=uid))) for uid in [0, 1000] * calls)  # type: ignore[arg-type]
    )
    over = True
    await other
    return [answer["steps"] for answer in answers]


def test_others_have_their_turn_while_it_is_read_what_many_steps_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "UsageReader", Reader)
    all_steps, own = asyncio.run(ask(20))[:2]
    assert [step["job"] for step in all_steps] == [number for number in range(STEPS) if number not in (3, 5)]
    assert [step["job"] for step in own] == list(range(0, STEPS, 2))
    assert Reader.most <= 24, "also when many ask"
