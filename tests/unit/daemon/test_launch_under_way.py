"""Launches that wait for a look-up when their node ends, or when their client wants them no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.model.wire.dispatch import Call, Refused
from nodectl.model.wire.framing import Peer
from nodectl.service.daemon.methods.launch import Launch

STARTED = {"job": 7, "step": 0}


class Levels:
    """Every level is ready."""

    def level_of(self, *_: object) -> str:
        return "none"

    async def ready(self, _: str) -> None:
        return


class Maker:
    """Looks a user up until it is told to come to an end."""

    def __init__(self) -> None:
        self.found = asyncio.Event()
        self.binder = SimpleNamespace(allocation=1)
        self.levels = Levels()

    def shaped(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return request

    def known_user(self, *_: object) -> None:
        return None

    async def user_of(self, *_: object) -> str:
        await self.found.wait()
        return "somebody"


class Numbers:
    """There are enough."""

    def must_wait(self, _: object) -> bool:
        return False

    async def ready(self, _: object) -> None:
        return


class Looking(Launch):
    """Nothing of a node but the look-up."""

    def __init__(self, maker: Maker) -> None:
        parts: Any = dict.fromkeys(("budget", "job_cpus", "controller", "start", "slurm_jobs", "cgroup_removals"))
        super().__init__(SimpleNamespace(partition_name=""), "", None, maker=maker, numbers=Numbers(), **parts)  # type: ignore[arg-type]
        self.admitted = 0

    def _admit(self, *_: object) -> Mapping[str, object]:
        self.admitted += 1
        return STARTED


def call() -> Call:
    made = Call({"method": "org.nodectl.Launch"}, Peer(1, 2, 3), 3)
    made.parameters = {"request": {}}
    return made


def test_a_node_ends_when_what_is_looked_up_has_begun_and_launches_nothing_more() -> None:
    async def act() -> None:
        maker = Maker()
        launch = Looking(maker)
        begun = launch.launch(call())
        assert isinstance(begun, Awaitable)
        settling = asyncio.ensure_future(launch.settle())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not settling.done()
        with pytest.raises(Refused, match="the service ends"):
            launch.launch(call())
        maker.found.set()
        await settling
        assert await begun == STARTED
        await launch.settle()

    asyncio.run(act())


def test_a_launch_that_is_withdrawn_while_its_user_is_looked_up_begins_nothing() -> None:
    async def act() -> None:
        maker = Maker()
        launch, asked = Looking(maker), call()
        begun = launch.launch(asked)
        assert isinstance(begun, Awaitable)
        asked.withdrawn = True
        maker.found.set()
        with pytest.raises(Refused) as refused:
            await begun
        assert refused.value.error == "org.nodectl.Withdrawn"
        assert not launch.admitted

    asyncio.run(act())
