"""The daemon's end: one limit for all that is waited for, not one for each."""

from __future__ import annotations

import asyncio

from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks, TimeToEnd


def test_what_never_ends_costs_the_others_half_of_the_time_at_most() -> None:
    async def both() -> tuple[float | None, float | None]:
        endless = BackgroundTasks()
        endless.begin(asyncio.sleep(3600))
        to_end = TimeToEnd(0.2)
        await endless.finish(to_end.half())
        after_the_first = to_end.left()
        await endless.settle(to_end)
        return after_the_first, to_end.left()

    first, last = asyncio.run(both())
    assert first is not None
    assert first > 0
    assert last == 0


def test_a_private_node_waits_as_long_as_its_steps_take() -> None:
    assert TimeToEnd(None).left() is None
    assert TimeToEnd(None).half() is None
