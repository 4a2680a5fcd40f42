"""Which jobs that have ended the daemon has in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nodectl.model.states import ENDED
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.controller.table import JobTable
from nodectl.service.daemon.history.job_store import JobStore
from nodectl.service.daemon.history.store import Store

MANY = 300


def test_those_that_the_history_lacks_and_few_others(tmp_path: Path) -> None:
    async def play() -> None:
        store = JobStore(Store(str(tmp_path / "state/history.db"), MANY), "/run/one", "boot", lambda _: {})
        table = JobTable(store, 1 << 30)

        def end(number: int) -> None:
            table.add_unwritten(JobRecord(number))
            table.ended(JobRecord(number, job_state=ENDED[0]))

        for number in range(1, MANY):
            end(number)
        assert [number for number in range(1, MANY) if table.get(number) is None] == [], "nothing is written yet"
        table.commits.now()
        end(MANY)
        known = [number for number in range(1, MANY + 1) if table.get(number) is not None]
        assert known[-1] == MANY
        assert len(known) < MANY / 10
        assert all(table.anywhere(number) for number in range(1, MANY + 1)), "the others are read"

    asyncio.run(play())
