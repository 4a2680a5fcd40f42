"""The calls of a job_container plugin: what a failure costs, what is called again, and what a kill leaves to do."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.model.launch_order import HOOKS
from rootful.hook_faults import HOOK_SECONDS, LATE
from rootful.node import NOBODY, Node, wait_until
from rootful.stage import Stage, ended, finished, staged
from rootful.steps.test_hook_failures import FAULTS, check, in_task_one

ROWS = [row.call for row in HOOKS if row.kind == "job_container"]
BEFORE_THE_END = [call for call in ROWS if call != "container_p_delete"]


@pytest.fixture(scope="module")
def module_stage() -> Iterator[Stage]:
    with staged(jobs=True) as started:
        yield started


def calls(stage: Stage) -> list[str]:
    """The container's calls of the last job, in their order, after its end."""
    job = stage.last_job()
    stage.node.call("Wait", job=job, step=0, epilog=True)
    return [str(line["call"]) for line in stage.node.trace(job) if line["kind"] == "job_container"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", BEFORE_THE_END)
def test_failure_costs_what_the_table_says_and_the_container_is_deleted(stage: Stage, call: str, fault: str) -> None:
    code, words = FAULTS[fault]
    stage.order(f"container.{call}", in_task_one(call, code))
    check(stage, call, "plugin job_container/puppet", words)
    assert calls(stage)[-1] == "container_p_delete"


@pytest.mark.parametrize("fault", FAULTS)
def test_failing_delete_is_noted_in_the_record_and_logged(stage: Stage, fault: str) -> None:
    code, words = FAULTS[fault]
    stage.order("container.container_p_delete", code)
    assert stage.node.run("true", user=NOBODY).returncode == 0
    assert calls(stage)[-1] == "container_p_delete"
    record = stage.last()
    assert (record["state"], record["exit_status"]) == ("COMPLETED", 0)
    assert f"plugin job_container/puppet: container_p_delete: {words}" in str(record["container"])
    assert str(record["container"]) in stage.node.logged()


def test_the_calls_of_a_job_come_once_and_those_of_its_tasks_once_each(stage: Stage) -> None:
    assert stage.node.run("-n2", "true", user=NOBODY).returncode == 0
    assert calls(stage) == ["container_p_create", "container_p_add_cont", *["container_p_add_pid"] * 2,
                            "container_p_delete"]  # fmt: skip


def test_a_hook_that_hangs_in_the_end_of_a_container_costs_its_time(stage: Stage) -> None:
    stage.node.stop()
    stage.node.configure(spank_hook_timeout=HOOK_SECONDS)
    stage.node.start()
    stage.order("container.container_p_delete", "time.sleep(100)")
    assert stage.node.run("true", user=NOBODY).returncode == 0
    assert calls(stage)[-1] == "container_p_delete"
    assert LATE in str(stage.last()["container"])
    stage.node.stop()
    stage.node.configure(spank_hook_timeout=60)


def test_an_errand_that_is_killed_is_run_again(stage: Stage) -> None:
    once = "first = not os.path.exists(SCRATCH + '/once'); open(SCRATCH + '/once', 'w').close()\n"
    stage.order("container.container_p_delete", once + "if first: os.kill(os.getpid(), signal.SIGKILL)")
    assert stage.node.run("true", user=NOBODY).returncode == 0
    assert calls(stage)[-1] == "container_p_delete"
    assert "container" not in stage.last()


def test_an_errand_that_always_dies_is_given_up_and_noted(stage: Stage) -> None:
    stage.order("container.container_p_delete", "os.kill(os.getpid(), signal.SIGKILL)")
    assert stage.node.run("true", user=NOBODY).returncode == 0
    calls(stage)
    assert "died, 3 times" in str(stage.last()["container"])


@pytest.mark.parametrize("victim", ["daemon", "forkserver"])
def test_a_container_is_deleted_whoever_is_killed_while_it_is_being_deleted(stage: Stage, victim: str) -> None:
    stage.block("container.container_p_delete")
    assert stage.node.run("true", user=NOBODY).returncode == 0
    job = stage.last_job()
    wait_until((stage.node.scratch / "there").exists, "it is being deleted")
    stage.reset_orders()
    stage.order("container.container_p_delete", "open(SCRATCH + '/deleted', 'w').close()")
    if victim == "daemon":
        stage.node.restart(signal.SIGKILL)
        wait_until((stage.node.scratch / "deleted").exists, "the next daemon deletes it")
        stage.release()
    else:
        assert stage.node.daemon is not None
        (forkserver,) = [
            int(pid)
            for pid in os.listdir("/proc")
            if pid.isdecimal() and _is_forkserver(int(pid), stage.node.daemon.pid)
        ]
        os.kill(forkserver, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(f"/proc/{forkserver}"), "the daemon has noticed")
        stage.release()  # the errand lives on
    record = ended(stage, job)
    stage.node.call("Wait", job=job, step=0, epilog=True)
    assert (record["state"], record["exit_status"]) == ("COMPLETED", 0)
    stage.node.assert_clean()


def _is_forkserver(pid: int, parent: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            name, _, rest = file.read().partition(") ")
    except OSError:
        return False
    return name.endswith("(nodectl-fork") and int(rest.split()[1]) == parent


@pytest.mark.parametrize("call", BEFORE_THE_END)
def test_the_container_of_a_step_runner_that_is_killed_is_deleted(stage: Stage, call: str) -> None:
    stage.block(f"container.{call}")
    client = stage.node.popen("true", user=NOBODY)
    stage.wait_there(client)
    os.kill(stage.stepd(), signal.SIGKILL)
    status, _, _ = finished(client)
    assert status == 1
    assert calls(stage)[-1] == "container_p_delete"
    stage.node.assert_clean()


def test_sighup_tells_the_plugin_in_the_process_from_which_steps_are_forked(stage: Stage) -> None:
    path = stage.node.plugins / "job_container" / "puppet.py"
    stage.node.stop()
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text + "\n_told = []\ndef container_p_reconfig():\n    _told.append(1)\n"
        "def container_p_add_cont(a, b):\n    return _obey('container.container_p_add_cont')\n",
        encoding="utf-8",
    )
    stage.node.start()
    stage.order("container.container_p_add_cont", "open(SCRATCH + '/told', 'w').write(str(len(_told)))")
    for times in ("0", "1", "2"):
        assert stage.node.run("true", user=NOBODY).returncode == 0
        assert (stage.node.scratch / "told").read_text(encoding="ascii") == times
        assert stage.node.daemon is not None
        stage.node.daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: "version" in stage.node.call("Hello"), "it still answers")
    path.write_text(text, encoding="utf-8")


def test_fini_is_called_as_often_as_init_also_where_it_fails() -> None:
    said = Path(tempfile.mkdtemp(dir="/run")) / "said"
    body = f"""
def say(word):
    with open({str(said)!r}, "a") as file:
        file.write(word + "\\n")
def init():
    say(plugin_type)
def fini():
    say("-" + plugin_type)
    raise OSError(5, "at the end")
"""
    node = Node(task_plugin=["task/one"], job_container_type="job_container/two")
    try:
        node.plugin("one", body, "task")
        node.plugin("two", body, "job_container")
        node.start()
        assert node.run("true", user=NOBODY).returncode == 0
        node.stop()
        wait_until(lambda: said.read_text(encoding="ascii").count("-") == 4, "the forkserver has ended, too")
        lines = said.read_text(encoding="ascii").split()
        begin, end = ["task/one", "job_container/two"], ["-job_container/two", "-task/one"]
        assert lines[:4] == [*begin, *begin]
        assert sorted(lines[4:]) == sorted([*end, *end])
        line = "plugin task/one: fini(): OSError: [Errno 5] at the end"
        wait_until(lambda: node.logged().count(line) == 2, "both have told")
        node.plugin("two", "import time\ndef fini():\n    time.sleep(60)\n", "job_container")
        node.start()
        node.restart()
        assert "plugin job_container/two: fini(): took longer than 2 s" in node.logged()
    finally:
        node.close()
        shutil.rmtree(said.parent)
