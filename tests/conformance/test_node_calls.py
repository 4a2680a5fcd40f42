"""Every function of the documents on task and job_container plugins is called in a service's life: where, as whom and
with what the documents say. The plugins are `task_tracer.py` and `job_container_tracer.py`, written with nothing else.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.step import Step
from nodectl.model.step_number import BATCH
from nodectl.plugin_host.node_plugins import Host, load_node_plugins
from nodectl.service.daemon.jobs.task_plugins import call_request
from rootful.node import NOBODY, Node, wait_until

HERE = Path(__file__).parent
SERVING = "touch began; until [ -e end ]; do sleep 0.02; done"
USER = NOBODY.pw_uid
TASK, CONTAINER = "task_p_", "container_p_"

pytestmark = [
    pytest.mark.rootful,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


class Life:
    """From the service's start to its end: a job of two tasks that stands still for a while, a visitor, a reload."""

    def __init__(self) -> None:
        self.node = Node(
            task_plugin=["task/cgroup", "task/task_tracer"],
            job_container_type="job_container/job_container_tracer",
            suspend_grace_time=0,
        )
        self.file = self.node.dir / "calls"
        self.file.touch()
        self.file.chmod(0o666)
        for name, kind in (("task_tracer", "task"), ("job_container_tracer", "job_container")):
            path = self.node.plugins / kind / f"{name}.py"
            path.parent.mkdir()
            path.write_text((HERE / f"{name}.py").read_text())
        self.job = 0
        self.daemon = 0

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [call for call in self.calls() if call["call"] == name]

    def live(self) -> None:
        node = self.node.start()
        assert node.daemon is not None
        self.daemon = node.daemon.pid
        client = node.popen("-n2", "sh", "-c", SERVING, user=NOBODY)
        wait_until((node.scratch / "began").exists, "the job has begun")
        self.job = node.last_job()
        for word in ("suspend", "resume"):
            done = node.nodectl(word, f"{self.job}.0", user=NOBODY)
            assert done.returncode == 0, done.stderr
        node.daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: self.of("container_p_reconfig"), "the reload is told")
        (node.scratch / "end").touch()
        assert client.wait(60) == 0
        wait_until(lambda: self.of("container_p_delete"), "the job's container is deleted")
        wait_until(lambda: self.of("task_p_slurmd_release_resources"), "the job's resources are released")
        node.stop()


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    made = Life()
    try:
        made.live()
        yield made
    finally:
        made.node.close()


# By function: what it is told (the job as its number), as whom it runs, and whether in the daemon itself.
JOB, NODE, ROOT = "job", 0, 0
CALLED: dict[str, tuple[list[object], int, bool]] = {
    "task_p_slurmd_launch_request": ([JOB, NODE], ROOT, True),
    "task_p_slurmd_reserve_resources": ([JOB, NODE], ROOT, True),
    "task_p_slurmd_suspend_job": ([JOB], ROOT, True),
    "task_p_slurmd_resume_job": ([JOB], ROOT, True),
    "task_p_slurmd_release_resources": ([JOB], ROOT, True),
    "task_p_pre_setuid": ([JOB], ROOT, False),
    "task_p_pre_launch_priv": ([JOB], ROOT, False),
    "task_p_pre_launch": ([JOB], USER, False),
    "task_p_post_step": ([JOB], ROOT, False),
    "container_p_create": ([JOB], ROOT, False),
    "container_p_delete": ([JOB], ROOT, False),
    "container_p_reconfig": ([], ROOT, False),
}


@pytest.mark.parametrize("name", CALLED)
def test_function_is_called_where_and_as_whom_the_document_says(life: Life, name: str) -> None:
    told, euid, in_daemon = CALLED[name]
    seen = life.of(name)
    assert seen, "nobody calls it"
    for call in seen:
        assert call["told"] == [life.job if one == JOB else one for one in told]
        assert call["euid"] == euid
        assert (call["pid"] == life.daemon) == in_daemon


def test_functions_of_a_task_are_called_once_for_each(life: Life) -> None:
    for name in ("task_p_pre_launch_priv", "task_p_pre_launch", "task_p_post_term"):
        assert len(life.of(name)) == 2, name
    for name in (name for name in CALLED if name.startswith((f"{TASK}slurmd_", f"{TASK}post_step"))):
        assert len(life.of(name)) == 1, name


def test_end_of_a_task_is_told_as_the_jobs_owner_with_the_task(life: Life) -> None:
    for call in life.of("task_p_post_term"):
        assert call["told"][0] == life.job
        assert len(call["told"]) == 2
        assert call["euid"] == USER


def test_processes_of_the_job_are_added_to_its_container(life: Life) -> None:
    ((job, cont_id),) = [call["told"] for call in life.of("container_p_add_cont")]
    assert job == life.job
    assert type(cont_id) is int
    added = [call["told"] for call in life.of("container_p_add_pid")]
    assert len(added) >= 2
    assert {(told[0], told[2]) for told in added} == {(life.job, USER)}
    assert len({told[1] for told in added}) == len(added)


def test_init_comes_first_and_fini_last_in_each_process_that_loads_the_plugin(life: Life) -> None:
    by_process: dict[int, list[str]] = {}
    for call in life.calls():
        by_process.setdefault(call["pid"], []).append(call["call"])
    loaded = [names for names in by_process.values() if "init" in names]
    assert len(loaded) == 2
    for names in loaded:
        assert names[0] == "init"
        assert names[-1] == "fini"


def test_order_is_the_documents(life: Life) -> None:
    names = [call["call"] for call in life.calls()]
    order = ["task_p_slurmd_launch_request", "task_p_slurmd_reserve_resources", "container_p_create"]
    order += ["task_p_pre_setuid", "task_p_pre_launch_priv", "task_p_pre_launch", "task_p_slurmd_suspend_job"]
    order += ["task_p_slurmd_resume_job", "task_p_post_term", "task_p_post_step"]
    first = [names.index(name) for name in order]
    assert first == sorted(first)


def test_script_is_told_of_before_its_step(tmp_path: Path) -> None:
    """As the daemon does with the step of a script, which has no launch request: in this process, by the same call."""
    tmp_path.chmod(0o755)
    (tmp_path / "calls").touch()
    folder = tmp_path / "plugins" / "task"
    folder.mkdir(parents=True, mode=0o755)
    (folder / "task_tracer.py").write_text((HERE / "task_tracer.py").read_text())
    host = Host(10, print, forks=False)
    plugins = load_node_plugins({"task": ["task/task_tracer"]}, [str(folder.parent)], host)
    blank: dict[str, object] = dict.fromkeys(Step.FIELDS)
    step = Step(**{**blank, "job_id": 7, "step_id": BATCH, "verbose": 0, "told": []})
    call_request(step, plugins, -1, 10)
    plugins.end()
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [call["call"] for call in calls] == ["init", "task_p_slurmd_batch_request", "fini"]
    assert (calls[1]["told"], calls[1]["types"]) == ([7], ["Step"])
