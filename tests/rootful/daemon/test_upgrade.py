"""The daemon of before there were jobs is replaced by this one, while steps of it run: nothing of them is lost."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path

from rootful.node import NOBODY, Node, wait_for_answer, wait_until
from rootful.queued import queue, queue_node, show, state, submit, wait_for
from rootful.stage import finished
from unit.daemon import old_history

NEWER = ("array_job", "array_task", "first_step", "job_began", "job_ends", "open_append", "restart")


def as_before(node: Node, jobs: int) -> None:
    """What is on the disk as that daemon left it, who had given out so many numbers."""
    for spec in node.steps.glob("*.json"):
        fields = json.loads(spec.read_text(encoding="ascii"))
        old = {name: value for name, value in fields.items() if name not in NEWER}
        spec.write_text(json.dumps(old), encoding="ascii")
    path = Path(str(node.values["state_dir"])) / "history.db"
    with sqlite3.connect(path) as new:
        steps = new.execute("SELECT job, step, uid, ended, record, trace FROM step").fetchall()
    new.close()
    for file in path.parent.glob("history.db*"):
        file.unlink()
    db = old_history.make(path, old_history.TABLES_1, old_history.COUNTS_1)
    db.execute("INSERT INTO counter VALUES ('job', ?)", (jobs,))
    db.executemany("INSERT INTO step VALUES (?, ?, ?, ?, ?, ?)", steps)
    db.close()


def test_steps_of_the_version_before_jobs_go_on_and_are_jobs() -> None:
    node = queue_node(over_subscribe="force:100")
    node.start()
    try:
        assert node.run("true", user=NOBODY).returncode == 0
        go = node.scratch / "go"
        loop = f"until [ -e {go} ]; do sleep 0.05; done; echo ran"
        clients = [node.popen("sh", "-c", loop, user=NOBODY) for _ in range(2)]
        wait_until(lambda: [row["state"] for row in queue(node)] == ["RUNNING"] * 2, "both run")
        wait_until(lambda: len(list(node.steps.glob("*.json"))) == 2, "their files are there")
        assert node.nodectl("suspend", "3.0", user=NOBODY).returncode == 0
        for client in clients:
            wait_for_answer(client)
        node.stop(signal.SIGKILL)
        as_before(node, 3)
        node.start()
        assert [row["job"] for row in queue(node)] == [2, 3]
        assert node.record(1)["state"] == "COMPLETED"
        assert state(node, 2) == "RUNNING"
        assert show(node, 2)["user"] == NOBODY.pw_name
        job = submit(node, "true")
        assert job == 4
        wait_for(node, job, "COMPLETED")
        go.touch()
        assert node.nodectl("resume", "3.0", user=NOBODY).returncode == 0
        assert [finished(client)[:2] for client in clients] == [(0, "ran\n")] * 2
        for number in (2, 3):
            wait_for(node, number, "COMPLETED")
        node.assert_clean()
        assert "Traceback" not in node.logged()
    finally:
        node.close()
