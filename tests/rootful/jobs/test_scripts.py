"""Batch jobs: a script as the first step of its job, its environment and streams, its steps, and its end."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, Node, running, wait_until

CPUS = len(os.sched_getaffinity(0))
# SLURM_* in a script, as recorded with Slurm 22.05.8 (sbatch -n1), without what differs on purpose.
RECORDED = {
    "CLUSTER_NAME", "CPUS_ON_NODE", "GTIDS", "JOBID", "JOB_CPUS_PER_NODE", "JOB_GID", "JOB_ID", "JOB_NAME",
    "JOB_NODELIST", "JOB_NUM_NODES", "JOB_PARTITION", "JOB_UID", "JOB_USER", "LOCALID", "NNODES", "NODEID", "NODELIST",
    "NPROCS", "NTASKS", "PROCID", "SUBMIT_DIR", "SUBMIT_HOST", "TASKS_PER_NODE", "TASK_PID", "TOPOLOGY_ADDR",
    "TOPOLOGY_ADDR_PATTERN",
}  # fmt: skip
OF_NEWER_SLURM = {"JOB_QOS", "JOB_START_TIME"}


@pytest.fixture(scope="module")
def shared_node() -> Iterator[Node]:
    """A node as it comes, where jobs get CPUs of their own."""
    with running(select_type="select/cons_tres", over_subscribe="no") as node:
        yield node


def submit(node: Node, script: str, *words: str) -> int:
    """The number of a job of nobody's."""
    path = node.scratch / "script"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    done = node.nodectl("submit", "--parsable", *words, str(path), user=NOBODY)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def state(node: Node, job: int) -> str:
    record: dict[str, object] = node.call("ShowJob", job=str(job)).get("record", {})  # type: ignore[assignment]
    return str(record.get("state", ""))


def ended(node: Node, job: int) -> str:
    """The state of the job when it is over."""
    wait_until(lambda: state(node, job) not in ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING"), f"job {job} ends")
    return state(node, job)


def output(node: Node, job: int) -> str:
    return (node.scratch / f"slurm-{job}.out").read_text(encoding="utf-8")


def test_a_script_is_a_step_of_its_own_name(served: Node) -> None:
    job = submit(served, "cat /proc/self/cgroup; id -u; pwd")
    assert ended(served, job) == "COMPLETED"
    said = output(served, job)
    if served.base:
        assert f"/job_{job}/step_batch/user/task_0\n" in said
    assert said.splitlines()[-2:] == [str(NOBODY.pw_uid), str(served.scratch)]
    record = json.loads(served.nodectl("show", "--json", f"{job}.batch").stdout)
    assert (record["state"], record["exit_status"]) == ("COMPLETED", 0)
    of_job = json.loads(served.nodectl("show", "--json", str(job)).stdout)  # a job alone means it, as it was submitted
    written = f"{served.scratch}/slurm-{job}.out"
    as_submitted = {"command": [f"{served.scratch}/script"], "output": written, "errors": written}
    assert of_job == {**record, **as_submitted}
    assert f"{job}.batch" in served.nodectl("ps", "--ended", "3").stdout
    assert {line["call"] for line in served.trace(job, record["step"])} >= {"task_p_slurmd_batch_request", "exec"}
    owner = (served.scratch / f"slurm-{job}.out").stat().st_uid
    assert owner == NOBODY.pw_uid


def test_a_script_finds_its_jobs_variables(served: Node) -> None:
    job = submit(served, "env", f"-n{CPUS}", "--job-name=mine", "--time=5")
    assert ended(served, job) == "COMPLETED"
    found = dict(line.split("=", 1) for line in output(served, job).splitlines() if "=" in line)
    wanted = {
        "SLURM_JOB_ID": str(job), "SLURM_JOB_NAME": "mine", "SLURM_NTASKS": str(CPUS), "SLURM_NPROCS": str(CPUS),
        "SLURM_TASKS_PER_NODE": str(CPUS), "SLURM_JOB_CPUS_PER_NODE": str(CPUS),
        "SLURM_JOB_USER": NOBODY.pw_name, "SLURM_JOB_UID": str(NOBODY.pw_uid), "SLURM_SUBMIT_DIR": str(served.scratch),
        "SLURM_JOB_NUM_NODES": "1", "SLURM_PROCID": "0", "ENVIRONMENT": "BATCH",
        "NODECTL_SOCKET": str(served.socket),
    }  # fmt: skip
    assert {name: found.get(name) for name in wanted} == wanted
    assert int(found["SLURM_JOB_END_TIME"]) - int(found["SLURM_JOB_START_TIME"]) == 300
    assert found["SLURM_JOB_NODELIST"] == found["SLURMD_NODENAME"]
    assert not {"SLURM_STEP_NUM_TASKS", "SLURM_CPU_BIND", "SLURM_ARRAY_JOB_ID", "SLURM_RESTART_COUNT"} & found.keys()


def test_a_script_finds_no_other_variables_of_slurms_than_a_recorded_one(served: Node) -> None:
    """Not those of a step above all: by them Open MPI 4.1 takes a program for a task of srun's, and aborts."""
    job = submit(served, "env", "-n1")
    assert ended(served, job) == "COMPLETED"
    names = {line.partition("=")[0] for line in output(served, job).splitlines()}
    found = {name.removeprefix("SLURM_") for name in names if name.startswith("SLURM_")}
    assert found == RECORDED | OF_NEWER_SLURM


def test_a_script_without_its_clients_environment_has_that_of_the_login(served: Node) -> None:
    job = submit(served, "env", "--export=A=1", "-n1")
    assert ended(served, job) == "COMPLETED"
    found = dict(line.split("=", 1) for line in output(served, job).splitlines() if "=" in line)
    wanted = {
        "A": "1", "HOME": NOBODY.pw_dir, "USER": NOBODY.pw_name, "LOGNAME": NOBODY.pw_name, "SHELL": NOBODY.pw_shell,
        "SLURM_EXPORT_ENV": "A=1", "SLURM_GET_USER_ENV": "1",
    }  # fmt: skip
    assert {name: found.get(name) for name in wanted} == wanted
    assert "/usr/local/bin" in found["PATH"].split(":")


def test_tasks_of_an_array_know_which_they_are(served: Node) -> None:
    told = "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN " \
           "$SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_STEP"  # fmt: skip
    job = submit(served, told, "--array=1-5:2", "--output=out-%A-%a-%b")
    files = [served.scratch / f"out-{job}-{task}-{task % 10}" for task in (1, 3, 5)]
    wait_until(lambda: all(path.exists() and path.read_text() for path in files), "all tasks have run")
    assert [path.read_text() for path in files] == [f"{job} {task} of 3 1 5 2\n" for task in (1, 3, 5)]
    wait_until(lambda: served.call("Queue")["jobs"] == [], "the queue is empty")


def test_a_scripts_steps_count_from_0_and_end_with_it(served: Node) -> None:
    words = shlex.join(served.command("run"))
    job = submit(
        served,
        f"{words} sh -c 'echo step $SLURM_STEP_ID'; {words} sh -c 'echo step $SLURM_STEP_ID'\n"
        ": >begun; until [ -e launched ]; do sleep 0.01; done; exit 3",
    )
    wait_until((served.scratch / "begun").exists, "two steps have run")
    request = {"argv": ["sleep", "1000"], "environment": {}, "cwd": "/", "ntasks": 1, "jobid": job, "stdout": "none"}
    assert served.call("Launch", request={**request, "uid": NOBODY.pw_name}) == {"job": job, "step": 2}
    (served.scratch / "launched").touch()
    assert ended(served, job) == "FAILED"
    assert output(served, job).splitlines() == ["step 0", "step 1"]
    assert [served.record(job, step)["state"] for step in (0, 1, 2)] == ["COMPLETED", "COMPLETED", "CANCELLED"]
    assert served.record(job, 2)["reason"] == f"step {job}.batch of its job has ended"
    for name in ("begun", "launched"):
        (served.scratch / name).unlink()


def test_a_job_whose_script_has_ended_takes_no_more_steps_however_long_one_takes_to_end() -> None:
    with running(kill_wait=1000) as node:
        job = submit(node, ": >begun; until [ -e go ]; do sleep 0.01; done")
        wait_until((node.scratch / "begun").exists, "the script runs")
        stays = "trap 'touch told' TERM; touch there; while :; do sleep 0.01; done"
        request = {
            "argv": ["sh", "-c", stays], "environment": {"PATH": "/usr/bin:/bin"}, "cwd": str(node.scratch),
            "ntasks": 1, "jobid": job, "stdout": "none", "layout": {"overlap": "1"}, "uid": NOBODY.pw_name,
        }  # fmt: skip
        assert node.call("Launch", request=request) == {"job": job, "step": 0}
        wait_until((node.scratch / "there").exists, "the step runs")
        (node.scratch / "go").touch()
        wait_until((node.scratch / "told").exists, "the step is told to end")
        for method in ("Launch", "Reserve"):
            parameters = {"request": request} if method == "Launch" else {"jobid": job}
            refused: dict[str, object] = node.call(method, **parameters)["parameters"]  # type: ignore[assignment]
            assert refused["reason"] == f"no job {job} is running"
        assert node.nodectl("signal", "-s", "KILL", f"{job}.0", user=NOBODY).returncode == 0
        assert ended(node, job) == "COMPLETED"


def test_a_cancelled_script_is_told_in_its_own_file(served: Node) -> None:
    job = submit(served, "echo begun; sleep 1000", "--output=said", "--error=complained")
    path = served.scratch / "said"
    wait_until(lambda: path.exists() and path.read_text() == "begun\n", "it runs")
    assert served.nodectl("cancel", str(job), user=NOBODY).returncode == 0
    assert ended(served, job) == "CANCELLED"
    complained = (served.scratch / "complained").read_text()
    assert f"*** JOB {job} ON " in complained
    assert "CANCELLED AT" in complained


def test_a_script_whose_output_cannot_be_opened_fails_and_everything_says_why(served: Node) -> None:
    job = submit(served, "echo ran > ran", "-o", "no/such/directory/out")
    assert ended(served, job) == "FAILED"
    record: dict[str, object] = served.call("ShowJob", job=str(job))["record"]  # type: ignore[assignment]
    assert (record["reason"], record["exit_code"]) == ("JobLaunchFailure", 128 + 53)
    why = f"task 0: open output file '{served.scratch}/no/such/directory/out': No such file or directory (as nobody)"
    assert record["words"] == why
    rows = served.nodectl("acct", "-n", "-P", "-j", str(job), "-o", "JobID,State,ExitCode,Reason").stdout.splitlines()
    assert rows == [f"{job}|FAILED|0:53|JobLaunchFailure", f"{job}.batch|FAILED|0:53|{why}"]
    assert why in served.nodectl("show", f"{job}.batch").stdout
    assert not (served.scratch / "ran").exists()


@pytest.mark.parametrize(
    ("script", "words", "wanted"),
    [
        ("exit 3", (), ("FAILED", "NonZeroExitCode", 3)),
        ("kill -KILL $$", (), ("FAILED", "JobLaunchFailure", 128 + 9)),
        ("exec sleep 1000", ("--time=0:01",), ("TIMEOUT", "TimeLimit", 128 + 15)),
        ("true", (), ("COMPLETED", "", 0)),
    ],
)
def test_the_reason_of_a_job_says_how_it_ended_in_slurms_word(
    served: Node, script: str, words: tuple[str, ...], wanted: tuple[str, str, int]
) -> None:
    job = submit(served, script, *words)
    ended(served, job)
    record: dict[str, object] = served.call("ShowJob", job=str(job))["record"]  # type: ignore[assignment]
    assert (record["state"], record["reason"], record["exit_code"]) == wanted


def test_a_scripts_files_are_emptied_or_kept(served: Node) -> None:
    for mode, wanted in (("append", "before\nnow\n"), ("truncate", "now\n")):
        path = served.scratch / "kept"
        path.unlink(missing_ok=True)
        path.write_text("before\n", encoding="utf-8")
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        assert ended(served, submit(served, "echo now", "--output=kept", f"--open-mode={mode}")) == "COMPLETED"
        assert path.read_text(encoding="utf-8") == wanted


def test_messages_for_a_script_do_not_wait_for_a_fifo_nor_write_to_a_file_of_others(served: Node) -> None:
    secret = served.dir / "secret"
    secret.write_text("", encoding="utf-8")
    secret.chmod(0o600)
    for number, where in enumerate(("fifo", str(secret))):
        if where == "fifo":
            os.mkfifo(served.scratch / where)
            os.chmod(served.scratch / where, 0o666)
        there = served.scratch / f"there{number}"
        begin = f"rm -f fifo; : >{there}; sleep 1000"
        if where == "fifo":
            reader = os.open(served.scratch / where, os.O_RDONLY | os.O_NONBLOCK)
            job = submit(served, f": >{there}; sleep 1000", "--output=none", f"--error={where}")
            wait_until(there.exists, "it runs")
            os.close(reader)
        else:
            job = submit(served, f"ln -sf {where} link; {begin}", "--output=none", "--error=link")
            wait_until(there.exists, "it runs")
        assert served.nodectl("cancel", str(job), user=NOBODY).returncode == 0
        assert ended(served, job) == "CANCELLED"
    assert secret.read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_script_outlives_the_daemon(served: Node, number: int) -> None:
    job = submit(served, "echo begun; until [ -e go ]; do sleep 0.05; done; echo ended")
    wait_until(lambda: Path(served.scratch / f"slurm-{job}.out").exists() and "begun" in output(served, job), "it runs")
    served.restart(number)
    assert state(served, job) == "RUNNING"
    (served.scratch / "go").touch()
    assert ended(served, job) == "COMPLETED"
    assert output(served, job) == "begun\nended\n"
    (served.scratch / "go").unlink()


def test_a_requeued_script_runs_again_with_a_record_of_each_run(served: Node) -> None:
    job = submit(
        served, "run=${SLURM_RESTART_COUNT:-0}; echo run $run; [ $run = 1 ] || sleep 1000", "--open-mode=append"
    )
    path = served.scratch / f"slurm-{job}.out"
    wait_until(lambda: path.exists() and path.read_text() == "run 0\n", "it runs")
    done = served.nodectl("requeue", str(job), user=NOBODY)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: "run 1\n" in path.read_text(), "it runs again")
    assert " DUE TO JOB REQUEUE ***" in path.read_text()
    assert ended(served, job) == "COMPLETED"
    record = json.loads(served.nodectl("show", "--json", f"{job}.batch").stdout)
    assert (record["restart"], record["state"]) == (1, "COMPLETED")


def test_a_script_ends_with_its_time_and_its_steps_too(served: Node) -> None:
    job = submit(served, "trap '' TERM; echo begun; sleep 1000; sleep 1000", "--time=0:01")
    assert ended(served, job) == "TIMEOUT"
    assert f"*** JOB {job} ON " in output(served, job)
    assert "DUE TO TIME LIMIT" in output(served, job)


class Told:
    """A task plugin that writes down which of a job's functions were called, in order."""

    FUNCTIONS = ("batch_request", "launch_request", "reserve_resources", "suspend_job", "resume_job",
                 "release_resources")  # fmt: skip

    def __init__(self, node: Node) -> None:
        self.log = node.dir / "told"
        text = f"""
def _note(name, subject):
    with open({str(self.log)!r}, "a") as file:
        file.write(f"{{name}} {{subject}}\\n")
    return 0
"""
        for name in self.FUNCTIONS:
            second = ", node_id" if name in ("launch_request", "reserve_resources") else ""
            text += f"\ndef task_p_slurmd_{name}(req{second}):\n    return _note({name!r}, req)\n"
        node.plugin("told", text, kind="task")

    def said(self, job: int) -> list[str]:
        words = (line.split() for line in self.log.read_text(encoding="utf-8").splitlines())
        return [f"{name} {subject}" for name, subject in words if subject.partition(".")[0] == str(job)]


@pytest.fixture(scope="module")
def told_node() -> Iterator[tuple[Node, Told]]:
    """A node with such a plugin."""
    node = Node(
        select_type="select/cons_tres", over_subscribe="no", suspend_grace_time=0,
        task_plugin=["task/cgroup", "task/affinity", "task/told"],
    )  # fmt: skip
    told = Told(node)
    try:
        yield node.start(), told
        node.assert_clean()
    finally:
        node.close()


def test_task_plugins_are_told_of_a_script_its_suspension_and_its_end(told_node: tuple[Node, Told]) -> None:
    node, told = told_node
    job = submit(node, "echo begun; until [ -e go ]; do sleep 0.05; done")
    path = node.scratch / f"slurm-{job}.out"
    wait_until(lambda: path.exists() and path.read_text() == "begun\n", "it runs")
    begun = [f"batch_request {job}.batch", f"reserve_resources {job}.batch"]
    assert told.said(job) == begun
    assert node.nodectl("suspend", str(job)).returncode == 0
    wait_until(lambda: state(node, job) == "SUSPENDED", "it stands still")
    assert told.said(job) == [*begun, f"suspend_job {job}"]
    other = node.run(f"-n{CPUS}", "--immediate=30", "echo", "on its CPUs", user=NOBODY)
    assert (other.returncode, other.stdout) == (0, "on its CPUs\n" * CPUS), other.stderr
    assert node.nodectl("resume", str(job)).returncode == 0
    (node.scratch / "go").touch()
    assert ended(node, job) == "COMPLETED"
    wanted = [*begun, f"suspend_job {job}", f"resume_job {job}", f"release_resources {job}"]
    wait_until(lambda: told.said(job) == wanted, "its resources are released")
    (node.scratch / "go").unlink()


def test_task_plugins_are_told_of_an_allocation_and_of_steps_in_it(told_node: tuple[Node, Told]) -> None:
    node, told = told_node
    words = shlex.join(node.command("run"))
    done = node.nodectl("alloc", "sh", "-c", f"echo $SLURM_JOB_ID; {words} echo step; exit 4", user=NOBODY)
    assert done.returncode == 4, done.stderr
    number, said = done.stdout.splitlines()
    job = int(number)
    assert said == "step"
    assert ended(node, job) == "COMPLETED"
    wanted = [f"launch_request {job}.extern", f"reserve_resources {job}.extern", f"launch_request {job}.0"]
    wait_until(lambda: told.said(job) == [*wanted, f"release_resources {job}"], "its resources are released")
    assert node.record(job, 0)["state"] == "COMPLETED"
    record = json.loads(node.nodectl("show", "--json", f"{job}.extern").stdout)
    assert (record["state"], record["exit_status"]) == ("COMPLETED", 0)
