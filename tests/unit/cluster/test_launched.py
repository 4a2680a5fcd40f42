"""A step that a client of an agent has launched, as its client sees it."""

from __future__ import annotations

import asyncio
import os

from nodectl.cluster.agent.launched import LaunchedSteps
from nodectl.cluster.agent.messages import Reader
from unit.cluster.house import ENOUGH, Post

_EVENTS, _LONG = 100, 1 << 16  # more than a client may leave of another step's


def test_a_client_of_bulk_that_is_busy_for_long_keeps_its_step() -> None:
    """With many nodes the ends of thousands of commands come at the same moment."""

    async def play() -> None:
        post = Post()
        launched = LaunchedSteps(post)
        streams = [os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC) for _ in range(3)]
        events, commands = launched.add((7, 1), streams, [0], reads=False, bulk=True)
        started = {"event": "start", "slots": 1, "window": 65, "window_bytes": 1 << 20}
        work = [{"event": "tasks", "number": number, "text": "x" * _LONG} for number in range(1, _EVENTS + 1)]
        for number, event in enumerate([started, *work], 1):
            launched.handlers()["work"](0, {"job": 7, "step": 1, "n": number, "heard": 0, "say": [event]}, b"")
        await asyncio.sleep(0)
        told: list[int] = []
        all_told = asyncio.Event()

        def take(messages: list[dict[str, dict[str, dict[str, int]]]]) -> None:
            told.extend(message["parameters"]["event"].get("number", 0) for message in messages)
            if len([one for one in told if one]) == _EVENTS:
                all_told.set()

        reader = Reader(events, 1 << 20, take, all_told.set)  # type: ignore[arg-type]  # messages are these
        await asyncio.wait_for(all_told.wait(), ENOUGH)
        assert [one for one in told if one] == [*range(1, _EVENTS + 1)]
        assert not post.of("order")
        reader.close()
        os.close(commands)
        launched.close()

    asyncio.run(play())
