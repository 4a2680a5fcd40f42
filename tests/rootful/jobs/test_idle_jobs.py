"""Jobs that do nothing are told of it, listed, and ended with that reason; others run on.

None computes here, since it could get no CPU time on a busy machine: see `tests/unit/daemon/test_idleness.py`.
"""

from __future__ import annotations

import json

from rootful.node import NOBODY, Node, wait_until
from rootful.queued import QUEUE, state, submit, wait_for


def watching(**config: object) -> Node:
    return Node(**{**QUEUE, "idle_after": 2, "idle_grace": 1, **config})


def test_a_job_that_does_nothing_is_told_and_ended_with_that_reason_and_no_other() -> None:
    node = watching(idle_action="end", gres=["Name=gpu File=/dev/null"])  # it tells no load
    try:
        node.start()
        busy = submit(node, "sleep 1000", "--gres=gpu:1")
        idle = submit(node, "sleep 1000", "--notify=echo $NODECTL_EVENT >>told; cat >>texts")
        assert "it has done nothing for" in str(wait_for(node, idle, "CANCELLED")["words"])
        assert state(node, busy) == "RUNNING"
        told = node.scratch / "told"
        wait_until(lambda: told.exists() and len(told.read_text().split()) == 3, "all is told")
        assert told.read_text().split() == ["BEGIN", "IDLE", "END"]
        assert "is ended in 00:00:01 if it goes on so" in (node.scratch / "texts").read_text(encoding="utf-8")
        said = (node.scratch / f"slurm-{idle}.out").read_text(encoding="utf-8")
        assert f"nodectl: job {idle}: it has done nothing for" in said
        node.nodectl("cancel", str(busy))
        node.assert_clean()
    finally:
        node.close()


def test_idle_jobs_are_listed_and_only_told_where_no_more_is_configured() -> None:
    node = watching()
    try:
        node.start()
        job = submit(node, "sleep 1000", "-J", "notebook")
        output = node.scratch / f"slurm-{job}.out"
        wait_until(lambda: output.exists() and "it has done nothing" in output.read_text(), "it is told")
        (row,) = json.loads(node.nodectl("report", "--idle", "--json", user=NOBODY).stdout)["idle"]
        assert (row["id"], row["user"], row["name"]) == (str(job), "nobody", "notebook")
        assert "notebook" in node.nodectl("report", "--idle").stdout
        assert "no running job does nothing" in node.nodectl("report", "--idle", "--user", "daemon").stdout
        assert state(node, job) == "RUNNING"
        node.nodectl("cancel", str(job))
        node.assert_clean()
    finally:
        node.close()
