"""The files of steps that have ended: what is looked for, and that no later run of a job loses its own."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.launch.stepd import record
from nodectl.model.wire.lean_json import dumps
from nodectl.service.daemon.history import batch as batch_module
from nodectl.service.daemon.history.batch import Batch
from nodectl.service.daemon.steps.files import StepFiles

RECORD: dict[str, object] = {"state": "COMPLETED", "exit_status": 0, "tasks": []}


def files_of(directory: Path) -> StepFiles:
    """Those of a step that a daemon has launched."""
    files = StepFiles(str(directory), 7, 0)
    files.write_spec(b"{}", 4096)
    os.close(files.open_trace())
    return files


def leave_record(directory: Path) -> None:
    """As a stepd does."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    record.save(fd, "7.0.record", dumps(RECORD))
    os.close(fd)


@pytest.fixture
def unlinked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What somebody tried to remove."""
    seen: list[str] = []
    unlink = os.unlink

    def see(path: str) -> None:
        seen.append(os.path.basename(path))
        unlink(path)

    monkeypatch.setattr(os, "unlink", see)
    return seen


def test_of_a_plain_step_no_files_are_looked_for_that_it_never_had(tmp_path: Path, unlinked: list[str]) -> None:
    files = files_of(tmp_path)
    leave_record(tmp_path)
    files.remove(may_be_plain=True)
    assert unlinked == ["7.0.sock", "7.0.json", "7.0.trace", "7.0.record"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rare", ["no record", "socket", "prolog", "plugin", "plugin's lines"])
def test_nothing_is_left_of_a_step_that_was_not_plain(tmp_path: Path, rare: str) -> None:
    files = files_of(tmp_path)
    if rare != "no record":
        leave_record(tmp_path)
    if rare == "socket":  # the stepd was killed after its record
        os.close(files.listen())
    if rare == "prolog":
        files.begin_prolog()
    if rare == "plugin's lines":
        (tmp_path / "7.0.stderr").touch()
    files.remove(may_be_plain=not rare.startswith("plugin"))
    assert not list(tmp_path.iterdir())


class Run:
    """A step that has ended, with files on a disk that may fail."""

    def __init__(self, job: int) -> None:
        self.key = job, 0
        self.step = SimpleNamespace(job_id=job, step_id=0, restart=0, stack=[])
        self.files = self
        self.fails = True
        self.removed = 0
        self.gone = asyncio.Event()

    def trace(self) -> bytes:
        return b""

    def has_record(self) -> bool:
        return True

    def remove(self, *, may_be_plain: bool) -> None:
        if self.fails:
            raise OSError(5, "Input/output error")
        self.removed += 1
        self.gone.set()


def test_the_description_for_containers_goes_before_the_spec_that_tells_of_the_step(
    tmp_path: Path, unlinked: list[str]
) -> None:
    (tmp_path / "steps").mkdir()
    files = files_of(tmp_path / "steps")
    files.write_cdi(b"{}", 65534)
    files.remove(may_be_plain=True)
    assert unlinked.index("nodectl.json") < unlinked.index("7.0.json")
    assert list((tmp_path / "cdi").iterdir()) == []


def test_files_of_a_later_run_are_not_removed_for_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "_SECONDS_AGAIN", 0.01)

    async def play() -> tuple[Any, Any]:
        store: Any = SimpleNamespace(add=lambda _: None, forget_pages=list)
        batch = Batch(store)
        earlier, other = Run(7), Run(8)
        for run in (earlier, other):
            batch.add(run, RECORD)  # type: ignore[arg-type]
        batch.flush()
        assert "cannot be removed" in batch.make_way(7, 0)
        earlier.fails = False
        assert batch.make_way(7, 0) == ""
        assert earlier.removed == 1  # and from here on the names are the later run's
        other.fails = False
        await other.gone.wait()
        await asyncio.sleep(0.05)
        return earlier, other

    earlier, other = asyncio.run(play())
    assert (earlier.removed, other.removed) == (1, 1)


def test_no_run_begins_before_the_end_of_the_one_before_is_in_the_history() -> None:
    async def play() -> None:
        def full(_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        store: Any = SimpleNamespace(add=full, forget_pages=list)
        batch, earlier = Batch(store), Run(7)
        earlier.fails = False
        batch.add(earlier, RECORD)  # type: ignore[arg-type]
        assert "cannot be written" in batch.make_way(7, 0)
        before = earlier.removed
        store.add = lambda _: None
        assert batch.make_way(7, 0) == ""
        assert (before, earlier.removed) == (0, 1)

    asyncio.run(play())
