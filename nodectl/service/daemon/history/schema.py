"""The tables of the history file, and the upgrade of a file of an earlier version.

`user_version` of the file is the version of its tables. A file of an earlier version is brought up to date in one
transaction: it is the old one or the new one, whatever happens meanwhile, and nothing of it is lost. A later version is
refused. Used by `Store` when it opens the file.
"""

import sqlite3

VERSION = 3

_TABLES = (
    "CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS running (
        job INTEGER NOT NULL, step INTEGER NOT NULL, boot TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (job, step)
    )""",
    "CREATE TABLE IF NOT EXISTS container (plugin TEXT NOT NULL, base TEXT NOT NULL, PRIMARY KEY (plugin, base))",
)
# `restart` tells the runs of a job that was put into the queue again from each other: 0 for the first one.
_STEP = """CREATE TABLE {name} (
    job INTEGER NOT NULL, step INTEGER NOT NULL, uid INTEGER NOT NULL, ended REAL NOT NULL,
    record TEXT NOT NULL, trace BLOB NOT NULL, restart INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (job, step, restart)
)"""
# The database itself counts what each user has (`pruning.py`).
_COUNTS = (
    "CREATE TABLE kept (uid INTEGER PRIMARY KEY, steps INTEGER NOT NULL, bytes INTEGER NOT NULL)",
    "INSERT INTO kept SELECT uid, COUNT(*), SUM(LENGTH(record) + LENGTH(trace)) FROM step GROUP BY uid",
    """CREATE TRIGGER step_added AFTER INSERT ON step BEGIN
        INSERT OR IGNORE INTO kept VALUES (NEW.uid, 0, 0);
        UPDATE kept SET steps = steps + 1, bytes = bytes + LENGTH(NEW.record) + LENGTH(NEW.trace) WHERE uid = NEW.uid;
    END""",
    """CREATE TRIGGER step_removed AFTER DELETE ON step BEGIN
        UPDATE kept SET steps = steps - 1, bytes = bytes - LENGTH(OLD.record) - LENGTH(OLD.trace) WHERE uid = OLD.uid;
    END""",
    "CREATE INDEX step_by_user ON step (uid)",
    # Accounting reads along these (`pages.py`).
    "CREATE INDEX step_by_end ON step (ended)",
    "CREATE INDEX step_by_user_and_end ON step (uid, ended)",
)
TASK = "CASE WHEN json_valid(record) THEN json_extract(record, '$.array_task_id') END"
"""The index of a task of an array, of its row in `job`."""

# Version 2: jobs. `node` is the runtime directory of the daemon whose queue they are in: nodes share a file. A run of
# a job that has not ended has `ended` 0. `batch` holds what batch jobs are started with, under the number of the array.
_JOBS = (
    """CREATE TABLE job (
        id INTEGER NOT NULL, restart INTEGER NOT NULL, node TEXT NOT NULL, uid INTEGER NOT NULL, state TEXT NOT NULL,
        array INTEGER NOT NULL, submitted REAL NOT NULL, ended REAL NOT NULL, record TEXT NOT NULL,
        resources TEXT NOT NULL, PRIMARY KEY (id, restart)
    )""",
    "CREATE INDEX job_waiting ON job (node) WHERE ended = 0",
    "CREATE TABLE kept_jobs (uid INTEGER PRIMARY KEY, jobs INTEGER NOT NULL, bytes INTEGER NOT NULL)",
    # Not OR IGNORE: within a trigger the OR REPLACE of the statement that has set it off would hold.
    """CREATE TRIGGER job_added AFTER INSERT ON job WHEN NEW.ended > 0 BEGIN
        INSERT INTO kept_jobs SELECT NEW.uid, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM kept_jobs WHERE uid = NEW.uid);
        UPDATE kept_jobs SET jobs = jobs + 1, bytes = bytes + LENGTH(NEW.record) + LENGTH(NEW.resources)
            WHERE uid = NEW.uid;
    END""",
    """CREATE TRIGGER job_removed AFTER DELETE ON job WHEN OLD.ended > 0 BEGIN
        UPDATE kept_jobs SET jobs = jobs - 1, bytes = bytes - LENGTH(OLD.record) - LENGTH(OLD.resources)
            WHERE uid = OLD.uid;
    END""",
    "CREATE INDEX job_by_end ON job (ended)",
    "CREATE INDEX job_by_user_and_end ON job (uid, ended)",
    "CREATE INDEX job_by_array ON job (array, id, restart)",
    f"CREATE INDEX job_by_task ON job (array, {TASK}) WHERE array > 0",
    """CREATE TABLE batch (
        job INTEGER PRIMARY KEY, node TEXT NOT NULL, uid INTEGER NOT NULL, size INTEGER NOT NULL, script BLOB NOT NULL,
        request BLOB NOT NULL
    )""",
    """CREATE TABLE usage (
        node TEXT NOT NULL, uid INTEGER NOT NULL, used REAL NOT NULL, at REAL NOT NULL, PRIMARY KEY (node, uid)
    )""",
    """CREATE TABLE node (
        node TEXT PRIMARY KEY, state TEXT NOT NULL, reason TEXT NOT NULL, uid INTEGER NOT NULL, at REAL NOT NULL
    )""",
    """CREATE TABLE reservation (
        node TEXT NOT NULL, name TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (node, name)
    )""",
)
# Version 3. `week`: what users with a limit of hours used in the week of the time `at`, in seconds. `notice`: what
# people are to be told of jobs (`daemon/notices/`), by the way in which they are told; `done` rows were told and are
# kept until the job, or the array, is over, so that nothing is told twice.
_THIRD = (
    """CREATE TABLE week (
        node TEXT NOT NULL, user TEXT NOT NULL, cpu REAL NOT NULL, gpu REAL NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (node, user)
    )""",
    """CREATE TABLE notice (
        node TEXT NOT NULL, job INTEGER NOT NULL, restart INTEGER NOT NULL, event TEXT NOT NULL, way TEXT NOT NULL,
        uid INTEGER NOT NULL, done INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY (node, job, restart, event, way)
    )""",
    "CREATE INDEX notice_waiting ON notice (node, way, uid) WHERE done = 0",
)


class UnknownVersion(Exception):
    """Raised for a file of an unknown version; str() names the version."""


def prepare(db: sqlite3.Connection) -> None:
    """Create the tables, or upgrade tables of an earlier version. Raises sqlite3.Error, UnknownVersion.

    A file of this version is only read: the disk may be full.
    """
    if _version(db) == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        if _version(db) != VERSION:  # no other node has done it meanwhile
            _bring_up_to_date(db)
            db.execute(f"PRAGMA user_version={VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has ended it
            db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection) -> int:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= VERSION:
        raise UnknownVersion(f"written by another version of nodectl (format {version})")
    return version


def _bring_up_to_date(db: sqlite3.Connection) -> None:
    if _version(db) < 2:
        _bring_to_second(db)
    for statement in _THIRD:
        db.execute(statement)


def _bring_to_second(db: sqlite3.Connection) -> None:
    for statement in _TABLES:
        db.execute(statement)
    if _has(db, "step"):  # version 1, or a daemon that was killed before it set the version
        db.execute(_STEP.format(name="new_step"))
        columns = "rowid, job, step, uid, ended, record, trace"  # the rowid is the order of pruning
        db.execute(f"INSERT INTO new_step ({columns}) SELECT {columns} FROM step ORDER BY rowid")  # noqa: S608
        db.execute("DROP TABLE step")  # its triggers and indices go with it
        db.execute("DROP TABLE IF EXISTS kept")
        db.execute("ALTER TABLE new_step RENAME TO step")
    else:
        db.execute(_STEP.format(name="step"))
    for statement in (*_COUNTS, *_JOBS):
        db.execute(statement)


def _has(db: sqlite3.Connection, table: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone() is not None
