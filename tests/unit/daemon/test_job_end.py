"""The end of a job whose epilog fails: what the next daemon finds if this one ends in the midst of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from nodectl.model.step import Step
from nodectl.service.config_file.reader import build
from nodectl.service.daemon.jobs import prolog_epilog
from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks, TimeToEnd
from nodectl.service.daemon.jobs.containers import Containers
from nodectl.service.daemon.jobs.job_end import JobEnds
from nodectl.service.daemon.jobs.prolog_epilog import PrologEpilog
from nodectl.service.daemon.jobs.registry import EndingJob
from nodectl.service.daemon.jobs.resources import Resources
from nodectl.service.daemon.steps.files import StepFiles
from nodectl.service.daemon.steps.live import LiveStep

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

RECORD = {"state": "COMPLETED", "exit_status": 0, "tasks": []}


class Nothing:
    """Neither a container nor resources."""

    def must_delete(self, step: Step) -> bool:
        return bool(step.container)

    def release(self, live: LiveStep) -> str:
        return live.failure


async def end(tmp_path: Path) -> object:
    step = Step.from_json({"job_id": 1, "cpu_masks": [], "stack": [], "cgroup": "/base/job_1/step_0"})
    live = LiveStep(step, StepFiles(str(tmp_path), 1, 0), lambda _: None)
    live.needs_epilog = True
    config = build({"epilog": "/absent/epilog", "trace": False})
    tasks, ending, done = BackgroundTasks(), dict[tuple[int, int], EndingJob](), list[object]()
    begun: list[int] = []
    (tmp_path / "base").mkdir()

    async def empty(path: str) -> None:
        assert path == step.cgroup

    parts = PrologEpilog(config, str(tmp_path), tasks), cast("Containers", Nothing()), cast("Resources", Nothing())
    ends = JobEnds(parts, ending, tasks, empty, begun.append, lambda _, record: done.append(record))
    ends.begin(live, RECORD, waits=False)
    await tasks.settle(TimeToEnd(None))
    assert not ending
    assert begun == [1]
    return done


def test_failed_epilog_is_on_record_before_its_cgroup_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []

    async def remove(mount: str, path: str) -> bool:
        """Processes that do not die would keep the daemon here until it is told to end."""
        found.append((path.rpartition("/")[2], "epilog" in (StepFiles(mount, 1, 0).record() or {})))
        return True

    monkeypatch.setattr(prolog_epilog, "remove_step_cgroup", remove)
    why = "job 1: epilog /absent/epilog: No such file or directory"
    assert asyncio.run(end(tmp_path)) == [{**RECORD, "epilog": why}]
    assert found == [("prolog", False), ("epilog", False), ("epilog", True)]


def test_a_script_that_has_done_its_work_has_not_failed_for_want_of_its_line_in_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine would be drained."""

    async def run(*_: object) -> str:
        return ""

    async def epilog() -> str:
        step = Step.from_json({"job_id": 1, "cpu_masks": [], "stack": []})
        live = LiveStep(step, StepFiles(str(tmp_path / "absent"), 1, 0), lambda _: None)
        config = build({"epilog": "/bin/true", "trace": True})
        return await PrologEpilog(config, str(tmp_path), BackgroundTasks()).epilog(live, RECORD)

    monkeypatch.setattr(PrologEpilog, "_execute", run)
    assert asyncio.run(epilog()) == ""
