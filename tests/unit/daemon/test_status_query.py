"""A step's runner that does not answer, and many who ask for it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from nodectl.model.step import Step
from nodectl.model.wire import framing
from nodectl.service.daemon.steps import status_query
from nodectl.service.daemon.steps.files import StepFiles
from nodectl.service.daemon.steps.live import LiveStep

MANY = 200


async def ask(tmp_path: Path) -> None:
    step = Step.from_json({"job_id": 1, "cpu_masks": [], "stack": []})
    live = LiveStep(step, StepFiles(str(tmp_path), 1, 0), lambda live: live.ended.set_result({}))
    ours, theirs = socket.socketpair()
    live.connect(ours)
    nothing = await asyncio.gather(*(status_query.status(live, 0.01) for _ in range(MANY)))
    assert nothing == [{}] * MANY
    assert theirs.recv(1 << 20).count(b"org.nodectl.step.Status") == 1
    framing.send(theirs, {"parameters": {"step": {"state": "RUNNING"}}})
    assert await status_query.status(live, 30) == {"state": "RUNNING"}  # what was asked is answered
    later = asyncio.gather(*(status_query.status(live, 30) for _ in range(2)))
    await asyncio.sleep(0)
    theirs.close()
    assert await later == [{}, {}]
    live.close()


def test_runner_that_does_not_answer_is_asked_once_however_many_ask(tmp_path: Path) -> None:
    asyncio.run(ask(tmp_path))
