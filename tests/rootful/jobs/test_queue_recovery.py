"""The queue over the death of its daemon: no accepted job is lost, none is started twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rootful.node import NOBODY, Node, wait_for_answer, wait_until
from rootful.queued import ENDED, all_cpus, queue, queue_running, show, state, submit, wait_for, wait_for_file


@pytest.fixture
def node() -> Iterator[Node]:
    with queue_running() as node:
        yield node
        assert "Traceback" not in node.logged()


def rows(node: Node, statement: str) -> list[Any]:
    with sqlite3.connect(f"file:{node.values['state_dir']}/history.db?mode=ro", uri=True) as db:
        return db.execute(statement).fetchall()


def as_running(text: str, **changed: str) -> str:
    """The record of a held job as that of one that is RUNNING."""
    record = json.loads(text)
    assert (record["job_state"], record["held"]) == ("PENDING", "user")
    return json.dumps({**record, "job_state": "RUNNING", "held": "", **changed})


def begun(node: Node, script: str, *options: str) -> tuple[int, Path]:
    """A job whose script has begun, and the pipe from which it reads a line before it does the rest. No kill of the
    daemon meets its launch.
    """
    pipe = node.scratch / "hold"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    job = submit(node, f"echo on > begun; read line < {pipe}; {script}", *options)
    wait_for_file(node.scratch / "begun")
    return job, pipe


def test_waiting_and_running_jobs_are_there_after_a_kill(node: Node) -> None:
    cpus = all_cpus(node)
    _, pipe = begun(node, "echo first >> order", f"-n{cpus}")
    second = submit(node, "echo second >> order", f"-n{cpus}", "--job-name=two", "--comment=kept", "--nice=5")
    array = submit(node, "echo $SLURM_ARRAY_TASK_ID >> tasks", f"-n{cpus}", "--array=1-3")
    held = submit(node, "true", "--hold")
    before = [(row["id"], row["state"], row["nice"], row["held"]) for row in queue(node)]
    node.restart(signal.SIGKILL)
    assert [(row["id"], row["state"], row["nice"], row["held"]) for row in queue(node)] == before
    assert show(node, second)["comment"] == "kept"
    pipe.write_text("go\n")
    wait_for(node, second, "COMPLETED")
    for task in range(1, 4):
        wait_for(node, f"{array}_{task}", "COMPLETED")
    assert (node.scratch / "order").read_text() == "first\nsecond\n"
    assert sorted((node.scratch / "tasks").read_text().split()) == ["1", "2", "3"]
    assert state(node, held) == "PENDING"
    node.call("Cancel", jobs=[str(held)])


def test_job_that_ended_while_no_daemon_lived_has_ended(node: Node) -> None:
    job, pipe = begun(node, "exit 3")
    node.stop(signal.SIGKILL)
    pipe.write_text("go\n")
    wait_until(lambda: not node.processes() or list(node.steps.glob("*.record")), "its step has ended")
    node.start()
    record = wait_for(node, job, *ENDED)
    assert (record["state"], record["exit_code"], record["restarts"]) == ("FAILED", 3, 0)


def test_job_that_never_began_waits_again_and_runs_once(node: Node) -> None:
    """As if the daemon had died between the commit and the start of the step."""
    job = submit(node, "echo ran >> ran", "--hold")
    node.stop(signal.SIGKILL)
    with sqlite3.connect(f"{node.values['state_dir']}/history.db") as db:
        text = db.execute("SELECT record FROM job WHERE id = ?", (job,)).fetchone()[0]
        db.execute("UPDATE job SET state = 'RUNNING', record = ? WHERE id = ?", (as_running(text), job))
    node.start()
    record = wait_for(node, job, "COMPLETED")
    assert record["restarts"] == 0
    assert wait_for_file(node.scratch / "ran") == "ran\n"


def test_job_of_an_earlier_boot_is_put_into_the_queue_again(node: Node) -> None:
    """The steps' files in /run do not outlive the machine."""
    again = submit(node, "echo $SLURM_RESTART_COUNT >> ran", "--hold")
    never = submit(node, "true", "--hold", "--no-requeue")
    node.stop(signal.SIGKILL)
    with sqlite3.connect(f"{node.values['state_dir']}/history.db") as db:
        for job, text in db.execute("SELECT id, record FROM job").fetchall():
            changed = as_running(text, boot="other")
            db.execute("UPDATE job SET state = 'RUNNING', record = ? WHERE id = ?", (changed, job))
    node.start()
    assert wait_for(node, again, "COMPLETED")["restarts"] == 1
    assert wait_for(node, never, *ENDED)["state"] == "NODE_FAIL"
    assert [
        row[1:] for row in rows(node, "SELECT id, restart, state FROM job ORDER BY restart") if row[0] == again
    ] == [
        (0, "NODE_FAIL"),
        (1, "COMPLETED"),
    ]


def test_client_that_waits_goes_on_waiting_over_a_restart(node: Node) -> None:
    cpus = all_cpus(node)
    _, pipe = begun(node, "true", f"-n{cpus}")
    with node.popen(f"-n{cpus}", "echo", "ran", user=NOBODY) as client:
        assert client.stderr is not None
        client.stderr.readline()
        node.restart(signal.SIGKILL)
        pipe.write_text("go\n")
        out, err = client.communicate(timeout=60)
    assert (client.returncode, out) == (0, "ran\n" * cpus), err


def test_job_whose_prolog_is_interrupted_runs_after_it(node: Node) -> None:
    """The daemon dies while the prolog runs: the job had not begun, and is not lost."""
    script, prologs = node.dir / "prolog", node.scratch / "prologs"
    script.write_text(f"#!/bin/sh\nbefore=$(ls {prologs})\necho on >> {prologs}\n[ $before ] || sleep 600\n")
    script.chmod(0o755)
    node.configure(prolog=str(script))
    node.restart()
    job = submit(node, "echo ran >> ran")
    wait_for_file(prologs)
    node.restart(signal.SIGKILL)
    assert wait_for(node, job, "COMPLETED")["restarts"] == 1
    assert (node.scratch / "ran").read_text() == "ran\n"
    assert prologs.read_text() == "on\non\n"


def test_drained_node_stays_drained_over_a_restart(node: Node) -> None:
    assert node.nodectl("node", "drain", "new", "disks").returncode == 0
    node.restart(signal.SIGKILL)
    answer: Any = node.call("Nodes")
    assert (answer["nodes"][0]["state"], answer["nodes"][0]["reason"]) == ("DRAINED", "new disks")


def test_run_whose_daemon_dies_keeps_its_cpus(node: Node) -> None:
    cpus = all_cpus(node)
    with node.popen(f"-n{cpus}", "sh", "-c", "echo on; exec sleep 600", user=NOBODY) as client:
        assert client.stdout is not None
        client.stdout.readline()
        wait_for_answer(client)
        node.restart(signal.SIGKILL)
        job = submit(node, "true")
        assert state(node, job) == "PENDING"
        (running,) = [row for row in queue(node) if row["state"] == "RUNNING"]
        assert running["cpus"] == cpus
        client.terminate()
        client.wait()
    wait_for(node, job, "COMPLETED")


def test_jobs_survive_kills_at_any_moment(node: Node) -> None:
    """Forty short jobs, and a daemon that is killed again and again: each job leaves one line."""
    jobs = []
    for number in range(40):
        jobs.append(submit(node, f"echo {number} >> lines"))
        if number % 8 == 7:
            node.restart(signal.SIGKILL)
    for job in jobs:
        assert wait_for(node, job, *ENDED)["state"] == "COMPLETED"
    lines = Path(node.scratch / "lines").read_text().split()
    assert sorted(map(int, lines)) == list(range(40))
    wait_until(lambda: not os.listdir(f"{node.values['state_dir']}/spool"), "copies of scripts are gone")


def test_job_that_is_to_run_again_does_so_though_the_daemon_dies_before_it_has_ended(node: Node) -> None:
    script = "[ -e began ] && exit\ntrap '' TERM\ntouch began\nwhile [ ! -e over ]; do sleep 0.05; done"
    job = submit(node, script)
    wait_until((node.scratch / "began").exists, "it runs")
    assert node.nodectl("requeue", str(job), user=NOBODY).returncode == 0
    node.stop(signal.SIGKILL)
    (node.scratch / "over").touch()
    node.start()
    record = wait_for(node, job, *ENDED)
    assert (record["state"], record["restarts"]) == ("COMPLETED", 1)


@pytest.mark.parametrize("wait", ["PENDING", "COMPLETING"])
def test_job_that_waits_again_is_not_ended_by_what_is_left_of_its_run(node: Node, wait: str) -> None:
    job = submit(node, "touch began; exec sleep 1000")
    wait_until((node.scratch / "began").exists, "it runs")
    assert node.nodectl("requeue", "--hold", str(job), user=NOBODY).returncode == 0
    wait_for(node, job, *{wait, "PENDING"})
    node.restart(signal.SIGKILL)
    record = wait_for(node, job, "PENDING", *ENDED)
    assert (record["state"], record["held"], record["restarts"]) == ("PENDING", "user", 1)
    node.call("Cancel", jobs=[str(job)])
