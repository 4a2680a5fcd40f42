"""What surrounds a job of the queue: its prolog and epilog, what is kept of it and who may read that."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rootful.jobs.machine import Client, typed
from rootful.node import NOBODY, OTHER, Node, wait_until
from rootful.queued import all_cpus, queue, queue_node, show, submit, wait_for


@pytest.fixture
def node() -> Iterator[Node]:
    node = queue_node(drain_on_failure=["prolog", "epilog"])
    yield node
    try:
        node.assert_clean()
        assert "Traceback" not in node.logged()
    finally:
        node.close()


def noting(node: Node, *, failing: str = "") -> Path:
    """Prolog and epilog of the node note their job; the one named fails as long as there is a file `broken`."""
    log = node.dir / "noted"
    for name in ("prolog", "epilog"):
        fails = f"[ ! -e {node.dir}/broken ]" if name == failing else ":"
        script = node.dir / name
        script.write_text(f"#!/bin/sh\necho {name} $SLURM_JOB_ID >> {log}\n{fails}\n", encoding="utf-8")
        script.chmod(0o755)
        node.configure(**{name: str(script)})
    log.touch()
    return log


def node_state(node: Node) -> tuple[str, str]:
    """State and reason of the machine."""
    answer: Any = node.call("Nodes")
    found = answer["nodes"][0]
    return str(found["state"]), str(found.get("reason") or "")


def test_prolog_and_epilog_come_once_for_a_script_and_for_an_allocation(node: Node) -> None:
    log = noting(node)
    node.start()
    step = typed(node, "run", "true")
    job = submit(node, f"{step}; {step}")
    wait_for(node, job, "COMPLETED")
    client = Client(node, "alloc", "sh", "-c", f"echo $SLURM_JOB_ID; {step}; {step}")
    allocated = client.line()
    assert client.end()[0] == 0
    wait_until(lambda: not queue(node), "both are over")
    assert log.read_text().splitlines() == [
        f"{name} {one}" for one in (job, allocated) for name in ("prolog", "epilog")
    ]


def test_prolog_comes_once_more_for_each_run_of_a_job(node: Node) -> None:
    log = noting(node)
    node.start()
    job = submit(node, "[ -e began ] && exit\ntouch began\nexec sleep 1000")
    wait_until((node.scratch / "began").exists, "its script runs")
    assert node.nodectl("requeue", str(job), user=NOBODY).returncode == 0
    wait_for(node, job, "COMPLETED")
    wait_until(lambda: not queue(node), "it is over")
    assert log.read_text().split() == ["prolog", str(job), "epilog", str(job)] * 2


def test_a_failing_epilog_drains_the_node_until_an_admin_resumes_it(node: Node) -> None:
    noting(node, failing="epilog")
    broken = node.dir / "broken"
    broken.touch()
    node.start()
    job = submit(node, "true")
    wait_until(lambda: "DRAIN" in node_state(node)[0], "the node is drained")
    assert f"job {job}: epilog" in node_state(node)[1]
    node.restart(signal.SIGKILL)
    assert "DRAIN" in node_state(node)[0]
    other = submit(node, "true")
    broken.unlink()
    wait_until(lambda: "drain" in str(show(node, other)["words"]) or "epilog" in str(show(node, other)["words"]), "why")
    assert show(node, other)["state"] == "PENDING"
    assert node.nodectl("node", "resume", user=NOBODY).returncode != 0, "an admin says so"
    assert node.nodectl("node", "resume").returncode == 0
    wait_for(node, other, "COMPLETED")
    wait_until(lambda: not queue(node), "they are over")


def test_what_a_job_is_started_with_is_roots_and_gone_after_its_end_where_none_is_kept(node: Node) -> None:
    node.configure(kept_scripts_per_user=0)
    node.start()
    blocker = submit(node, "exec sleep 1000", f"-n{all_cpus(node)}")
    wait_for(node, blocker, "RUNNING")
    job = submit(node, "read line < go; echo $SECRET > said", "--export=ALL,SECRET=hidden")
    os.mkfifo(node.scratch / "go")
    (node.scratch / "go").chmod(0o666)
    state_dir = Path(str(node.values["state_dir"]))
    for file in state_dir.glob("history.db*"):
        assert file.stat().st_mode & 0o077 == 0, file
    assert texts(node) == {blocker, job}
    node.call("Cancel", jobs=[str(blocker)])
    wait_for(node, job, "RUNNING")
    copy = state_dir / f"spool/job{job}/slurm_script"
    wait_until(copy.exists, "its script is there")
    assert (copy.stat().st_uid, copy.stat().st_mode & 0o007) == (0, 0)
    answer = node.nodectl("show", "--json", str(job), user=OTHER)
    assert "hidden" not in answer.stdout + answer.stderr
    (node.scratch / "go").write_text("go\n")
    wait_for(node, job, "COMPLETED")
    assert (node.scratch / "said").read_text() == "hidden\n"
    wait_until(lambda: texts(node) == set(), "nothing of them is kept")
    assert not copy.parent.exists()


def texts(node: Node) -> set[int]:
    """The jobs of which script and environment are kept."""
    with sqlite3.connect(f"file:{node.values['state_dir']}/history.db?mode=ro", uri=True) as db:
        return {number for (number,) in db.execute("SELECT job FROM batch")}
