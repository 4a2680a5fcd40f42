"""A history that another process has locked, or that is damaged: who waits, who does not, and what is said."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.selection.records import JobRecord
from nodectl.service.daemon.controller.commits import Commits, NotWritten
from nodectl.service.daemon.history import connection
from nodectl.service.daemon.history.job_store import JobStore
from nodectl.service.daemon.history.store import Ended, Store, StoreError

FOR_EVER = 3600.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state/history.db")


@pytest.fixture
def store(path: str) -> Iterator[Store]:
    made = Store(path, 100_000)
    made.serve()
    yield made
    made.close()


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Another process has the lock; to SQLite another connection is one."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


def ended(job: int, size: int = 10) -> Ended:
    record = {"job": job, "step": 0, "uid": 1001, "ended": 1.0, "state": "COMPLETED", "exit_status": 0}
    return Ended(record, os.urandom(size))


def read_all(store: Store) -> None:
    for job in range(1, 500):
        store.trace(job, 0)


def table_of(store: Store) -> JobStore:
    return JobStore(store, "/run/one", "boot", lambda job: {})


def test_others_are_served_while_a_job_waits_for_the_lock(
    store: Store, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_PATIENCE_SECONDS", FOR_EVER)

    async def act() -> None:
        table = table_of(store)
        commits = Commits(table)
        with locked(path):
            number = asyncio.ensure_future(connection.patiently(store.draw))
            table.put(JobRecord(7))
            written = commits.durable()
            await asyncio.sleep(0.5)  # others have turns of the event loop meanwhile
            assert not number.done()
            assert not written.done()
            assert store.record(1, 0) is None  # reading goes on
        await number
        await written
        assert table.find(7) is not None

    asyncio.run(act())


def test_a_file_that_stays_locked_is_told_once_and_refuses_at_once(
    store: Store, path: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connection, "_PATIENCE_SECONDS", 0.3)

    async def act() -> None:
        table = table_of(store)
        commits = Commits(table)
        with locked(path):
            for job in (7, 8):
                table.put(JobRecord(job))
                with pytest.raises(NotWritten, match=f"{path} is locked by another process, which `fuser"):
                    await commits.durable()
            with pytest.raises(sqlite3.Error, match="is locked by another process"):
                await connection.patiently(store.draw)
        await commits.durable()
        assert table.find(8) is not None

    asyncio.run(act())
    said = capfd.readouterr().err
    assert said.count("until it is free, nothing is written") == 1
    assert said.count("is not locked any more") == 1


def test_what_a_round_could_not_write_is_written_when_the_file_is_free(
    store: Store, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        table = table_of(store)
        commits = Commits(table)
        written = asyncio.Event()
        monkeypatch.setattr(table, "written", written.set)
        with locked(path):
            table.put(JobRecord(7))
            assert "locked by another process" in commits.now()
        await written.wait()
        assert table.find(7) is not None

    asyncio.run(act())


def test_a_store_that_is_closed_while_the_file_is_locked_fails_nobody(path: str) -> None:
    store = Store(path, 10)
    store.serve()
    store.next_job()
    store.draw()
    with locked(path):
        store.close()


def test_a_damaged_file_is_named_while_the_daemon_runs_with_what_to_do(
    store: Store, path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    store.add([ended(job, 4000) for job in range(1, 500)])
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    for _ in range(2):
        with pytest.raises(sqlite3.Error, match=f"{path} is damaged: .*move {path}"):
            read_all(store)
    assert capfd.readouterr().err.count("is damaged") == 1


def test_a_file_that_is_none_of_a_database_is_named_at_the_start_with_what_to_do(path: str) -> None:
    os.makedirs(os.path.dirname(path))
    Path(path).write_bytes(b"these are not the bytes of a database " * 1000)
    with pytest.raises(StoreError, match=f"{path} is damaged: file is not a database; stop the service.*move {path}"):
        Store(path, 10)


def test_errors_of_other_kinds_keep_their_words_behind_the_path(path: str) -> None:
    error: Any = sqlite3.OperationalError("database or disk is full")
    assert connection.why_unusable(path, error) == f"{path}: database or disk is full"
