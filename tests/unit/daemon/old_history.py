"""Files of the history as earlier versions made them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

TABLES_1 = """
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE step (
    job INTEGER NOT NULL, step INTEGER NOT NULL, uid INTEGER NOT NULL, ended REAL NOT NULL,
    record TEXT NOT NULL, trace BLOB NOT NULL, PRIMARY KEY (job, step)
);
CREATE TABLE running (
    job INTEGER NOT NULL, step INTEGER NOT NULL, boot TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (job, step)
);
CREATE TABLE container (plugin TEXT NOT NULL, base TEXT NOT NULL, PRIMARY KEY (plugin, base));
PRAGMA user_version = 1;
"""
COUNTS_1 = """
CREATE TABLE kept (uid INTEGER PRIMARY KEY, steps INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO kept SELECT uid, COUNT(*), SUM(LENGTH(record) + LENGTH(trace)) FROM step GROUP BY uid;
CREATE TRIGGER step_added AFTER INSERT ON step BEGIN
    INSERT OR IGNORE INTO kept VALUES (NEW.uid, 0, 0);
    UPDATE kept SET steps = steps + 1, bytes = bytes + LENGTH(NEW.record) + LENGTH(NEW.trace) WHERE uid = NEW.uid;
END;
CREATE TRIGGER step_removed AFTER DELETE ON step BEGIN
    UPDATE kept SET steps = steps - 1, bytes = bytes - LENGTH(OLD.record) - LENGTH(OLD.trace) WHERE uid = OLD.uid;
END;
CREATE INDEX step_by_user ON step (uid);
"""
INDEX_BEFORE_COUNTS = "CREATE INDEX step_by_end ON step (ended);"


def make(path: Path, *tables: str) -> sqlite3.Connection:
    """A file of these tables, with the write-ahead log that all versions use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    for text in tables:
        db.executescript(text)
    return db
