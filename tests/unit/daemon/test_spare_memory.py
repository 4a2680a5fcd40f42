"""An idle service gives back what its steps needed, and a busy one does not look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from nodectl.kernel import _kernel
from nodectl.service.daemon.steps.spare_memory import SpareMemory


def test_memory_is_given_back_once_when_no_step_has_ended_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    due: list[Callable[[], None]] = []
    monkeypatch.setattr(_kernel, "trim", lambda: given.append("back"))

    async def act() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", lambda _, call, *words: due.append(lambda: call(*words)))
        spare = SpareMemory(lambda: given.append("pages"))
        for _ in range(3):
            spare.used()
        assert len(due) == 1, "one look, however many steps end"
        due.pop()()
        assert (given, len(due)) == ([], 1), "steps have ended since the look was planned"
        due.pop()()
        assert (given, len(due)) == (["pages", "back"], 0), "an idle service is left alone"
        spare.used()
        due.pop()()
        assert given == ["pages", "back"] * 2

    asyncio.run(act())


def test_the_heap_can_be_trimmed() -> None:
    rooms = [bytes(2000) for _ in range(5000)]
    del rooms[::2]
    _kernel.trim()
    assert all(room == bytes(2000) for room in rooms)
