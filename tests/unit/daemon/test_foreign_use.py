"""Devices that may be used outside of all jobs are given to none before the service knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from nodectl.launch.cgroup import corner, device_access
from nodectl.launch.cgroup.delegation import Base
from nodectl.placement.machine.declared_devices import Device
from nodectl.service.config_file.reader import build
from nodectl.service.daemon.jobs import foreign_use
from nodectl.service.daemon.jobs.foreign_use import ForeignUse

BASE = Base("/mnt", "/steps.service/nodectl", (), {})
USE = {"device": "gpu:0", "pid": 7, "uid": 1001, "user": "ann", "command": "python3"}


class Look:
    """A process that looks: `answers` has a report for each look, None for one that fails."""

    answers: ClassVar[list[str | None]] = []
    running = False

    def __init__(self, *_: object, **__: object) -> None:
        answer = Look.answers.pop(0)
        if answer is None:
            raise OSError("it cannot be executed")
        self.results = [answer]

    async def reported(self) -> None:
        """At once."""

    def kill(self) -> None:
        """It has ended."""


def watch(answers: list[str | None], base: Base = BASE, rule: str = "wait") -> list[Mapping[str, str]]:
    """What the queue is told until all looks are over."""
    told: list[Mapping[str, str]] = []

    async def play() -> None:
        devices: Any = [Device("gpu", number, file=f"/dev/gpu{number}") for number in range(2)]
        one = ForeignUse(build({"foreign_gpu_use": rule}), base, "", devices)
        one.on_change = told.append
        begin: Callable[[], None] = one.begin
        for _ in range(len(answers) or 1):
            begin()
            begin = one._tick
            await one._tasks.finish(None)
            one.stop()

    Look.answers = list(answers)
    asyncio.run(play())
    return told


@pytest.fixture(autouse=True)
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_use, "ReportingProcess", Look)
    monkeypatch.setattr(corner, "keep", lambda *_: "")
    monkeypatch.setattr(
        device_access, "keys_by_node", lambda _: {(2, 195, number): [f"gpu:{number}"] for number in range(2)}
    )


def test_no_device_is_given_before_the_service_has_looked() -> None:
    none = '{"uses": []}'
    before, after = watch([none])
    assert (set(before), dict(after)) == ({"gpu:0", "gpu:1"}, {})
    before, after = watch([None, none])  # the first one fails
    assert (set(before), dict(after)) == ({"gpu:0", "gpu:1"}, {})
    assert len(watch([None, None])) == 1


def test_a_device_in_use_stays_withheld_after_the_first_look() -> None:
    _, after = watch([f'{{"uses": [{str(USE).replace(chr(39), chr(34))}]}}'])
    assert after == {"gpu:0": "is used outside of all jobs: process 7 (python3) of ann"}


def test_nothing_is_withheld_where_nobody_looks_or_nothing_waits() -> None:
    assert watch([], base=Base("/mnt", "", (), {})) == []
    assert watch(['{"uses": []}'], rule="tell") == []
