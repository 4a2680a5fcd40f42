"""nodectl acct and nodectl report of batch jobs, arrays and jobs that were queued again."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rootful.node import NOBODY, OTHER, Node, wait_until
from rootful.queued import queue_running, submit, wait_for, wait_for_file

MIB = 1 << 20
WORK = f"""
import time
while time.process_time() < 0.5: pass
data = b"x" * {50 * MIB}
open("written", "wb").write(data[:{10 * MIB}])
"""


@pytest.fixture
def node() -> Iterator[Node]:
    with queue_running(max_cpus_per_user=1) as node:
        yield node
        assert "Traceback" not in node.logged()


def acct(node: Node, *words: str) -> list[list[str]]:
    done = node.nodectl("acct", "-nP", *words)
    assert done.returncode == 0, done.stderr
    return [line.split("|") for line in done.stdout.splitlines()]


def test_batch_job_and_its_steps_are_told_with_what_they_used(node: Node) -> None:
    (node.scratch / "work.py").write_text(WORK)
    run = shlex.join(node.command("run", sys.executable, "work.py"))
    job = submit(node, f"{run}\nexit 3", "--job-name=two", "--mem=200M", "-t", "5")
    wait_for(node, job, "FAILED")
    fields = "jobid,jobname,state,exitcode,derivedexitcode,reqmem,timelimit,ncpus"
    assert acct(node, "-j", str(job), "-o", fields) == [
        ["1", "two", "FAILED", "3:0", "3:0", "200M", "00:05:00", "1"],
        ["1.batch", "batch", "FAILED", "3:0", "", "", "", "1"],
        ["1.0", sys.executable.rpartition("/")[2], "COMPLETED", "0:0", "", "", "", "1"],
    ]
    found = json.loads(node.nodectl("acct", "--json", "-j", "1").stdout)["jobs"][0]
    batch, step = found["steps"]
    assert 0.5 <= step["used"]["user"] + step["used"]["system"] < 5
    assert 50 * MIB <= step["used"]["max_rss"][0] < 200 * MIB
    assert 10 * MIB <= step["used"]["written"] < 11 * MIB
    assert batch["used"]["written"] < MIB
    assert found["used"]["user"] == pytest.approx(step["used"]["user"] + batch["used"]["user"])
    assert found["submitted"] <= found["eligible"] <= found["started"] < found["ended"]


def test_tasks_of_an_array_are_told_by_their_numbers(node: Node) -> None:
    array = submit(node, "exit $SLURM_ARRAY_TASK_ID", "--array=0-2")
    for task, state in ((0, "COMPLETED"), (1, "FAILED"), (2, "FAILED")):
        wait_for(node, f"{array}_{task}", state)
    assert acct(node, "-X", "-j", str(array), "-o", "jobid,exitcode") == [
        [f"{array}_0", "0:0"], [f"{array}_1", "1:0"], [f"{array}_2", "2:0"],
    ]  # fmt: skip
    assert [row[0] for row in acct(node, "-j", f"{array}_1", "-o", "jobid")] == [f"{array}_1", f"{array}_1.batch"]
    assert acct(node, "-j", f"{array}_1", "-o", "jobid", "-s", "CD") == []


def test_jobs_that_wait_are_told_and_those_that_never_ran(node: Node) -> None:
    held = submit(node, "true", "--hold", "--array=3-9:2")
    cancelled = submit(node, "true", "--hold")
    node.call("Cancel", jobs=[str(cancelled)])
    assert acct(node, "-o", "jobid,state,start,elapsed,ncpus") == [
        [f"{held}_[3-9:2]", "PENDING", "Unknown", "00:00:00", "0"],
        [str(cancelled), "CANCELLED", "Unknown", "00:00:00", "0"],
    ]
    node.call("Cancel", jobs=[str(held)])


def test_each_run_of_a_job_that_was_queued_again_is_told_on_request(node: Node) -> None:
    job = submit(node, 'echo $SLURM_RESTART_COUNT >> runs; [ "$SLURM_RESTART_COUNT" = 1 ] || exec sleep 600')
    wait_for_file(node.scratch / "runs")
    node.call("Requeue", jobs=[str(job)])
    wait_for(node, job, "COMPLETED")
    assert acct(node, "-X", "-o", "jobid,state,restarts") == [[str(job), "COMPLETED", "1"]]
    runs = acct(node, "-D", "-o", "jobid,state,restarts")
    assert runs == [
        [str(job), "REQUEUED", "0"], [f"{job}.batch", "CANCELLED", ""],
        [str(job), "COMPLETED", "1"], [f"{job}.batch", "COMPLETED", ""],
    ]  # fmt: skip
    rows: Any = json.loads(node.nodectl("report", "--json", "--by=total").stdout)["rows"]
    assert [row["jobs"] for row in rows] == [2]


def test_wait_of_a_job_is_the_time_for_which_it_could_have_started(node: Node) -> None:
    pipe = node.scratch / "hold"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    first = submit(node, f"read line < {pipe}")
    wait_for(node, first, "RUNNING")
    second = submit(node, "true")
    other = submit(node, "true", user=OTHER)
    wait_until(lambda: node.call("ShowJob", job=str(second))["record"]["reason"] != "None", "it waits")  # type: ignore[index]
    pipe.write_text("go\n")
    wait_for(node, second, "COMPLETED")
    wait_for(node, other, "COMPLETED")
    found = {one["job"]: one for one in json.loads(node.nodectl("acct", "--json").stdout)["jobs"]}
    assert found[second]["waited"] == pytest.approx(found[second]["started"] - found[second]["eligible"])
    assert found[second]["started"] >= found[first]["ended"]
    mine = json.loads(node.nodectl("acct", "--json", user=NOBODY).stdout)["jobs"]
    assert {one["job"] for one in mine} == {first, second}
