"""Launches that wait for jobs that are about to be over: in order, and not for long."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import cast

import pytest

from nodectl.model.wire.dispatch import Refused
from nodectl.service.daemon.controller import departures
from nodectl.service.daemon.controller.departures import Departures
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.jobs.registry import Registry


class Leaving(Departures):
    """One job leaves, or none."""

    def __init__(self, *, leaves: bool = True) -> None:
        super().__init__(cast("Registry", None), cast("FurtherSteps", None))
        self.leaves = leaves

    def any(self) -> bool:
        return self.leaves


class Room:
    """Free CPUs, and who got one."""

    def __init__(self) -> None:
        self.free = 0
        self.got: list[str] = []

    def take(self, name: str) -> str:
        if not self.free:
            raise Refused("Busy", "Resources")
        self.free -= 1
        self.got.append(name)
        return name


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _refused_at_once(leaving: Departures, start: Callable[[], object]) -> str:
    """The error with which it was refused, before any time has passed."""

    async def play() -> str:
        task = asyncio.ensure_future(leaving.attempt(start))
        await _turns()
        assert task.done(), "it waits"
        error = task.exception()
        assert isinstance(error, Refused)
        return error.error.rpartition(".")[2]

    return asyncio.run(play())


def test_launches_try_again_in_the_order_in_which_they_came() -> None:
    async def play() -> None:
        leaving, room = Leaving(), Room()
        tasks = [asyncio.ensure_future(leaving.attempt(functools.partial(room.take, name))) for name in "ab"]
        await _turns()
        assert not leaving.others_first
        room.free = 3
        leaving.over()
        assert leaving.others_first, "who comes now does not take what the others have waited for"
        tasks.append(asyncio.ensure_future(leaving.attempt(lambda: room.take("c"))))
        assert await asyncio.gather(*tasks) == ["a", "b", "c"]
        assert room.got == ["a", "b", "c"]
        assert not leaving.others_first

    asyncio.run(play())


def test_who_has_waited_long_enough_is_told_that_it_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "_PATIENCE", 0.01)

    async def play() -> None:
        with pytest.raises(Refused, match="Resources"):
            await Leaving().attempt(lambda: Room().take("a"))

    asyncio.run(play())


def test_nobody_waits_where_no_job_leaves() -> None:
    assert _refused_at_once(Leaving(leaves=False), lambda: Room().take("a")) == "Busy"


def test_other_refusals_are_not_waited_for() -> None:
    def refuse() -> None:
        raise Refused("LaunchRefused", "never")

    assert _refused_at_once(Leaving(), refuse) == "LaunchRefused"
