"""nodectl run --jobid: further steps of a running job, and that the job is over when its last step is, whoever dies."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.contained import Contained, contained
from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_for_answer, wait_until
from rootful.stage import Stage, staged

EVERYTHING = "--container-ns=user,pid,net,ipc,uts,time"
WAIT = "echo ready; read x; echo ended"


class Step:
    """A step that waits; `end` lets it go."""

    def __init__(self, node: Node, *words: str, user: pwd.struct_passwd | None = NOBODY) -> None:
        self.client = node.popen(*words, "sh", "-c", WAIT, user=user, stdin=subprocess.PIPE)
        assert self.client.stdout is not None
        said = self.client.stdout.readline()
        assert said == "ready\n", self.client.communicate()
        wait_for_answer(self.client)

    def end(self) -> None:
        out, err = self.client.communicate("\n", timeout=PATIENCE)
        assert (self.client.returncode, out) == (0, "ended\n"), err


@pytest.fixture(scope="module")
def shared() -> Iterator[Contained]:
    with contained() as found:
        yield found


@pytest.fixture
def node(shared: Contained) -> Iterator[Node]:
    """Whose jobs have containers; nothing is left of them at the end of a test."""
    yield shared.node
    shared.assert_gone()
    shared.node.assert_clean()


def begun(node: Node, *words: str) -> tuple[Step, str]:
    """A job's first step, and the option that names the job."""
    first = Step(node, *words)
    return first, f"--jobid={node.last_job()}"


def said(node: Node, *words: str) -> str:
    done = node.run(*words, user=NOBODY)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_steps_of_a_job_count_up_and_each_has_a_record(node: Node) -> None:
    first, option = begun(node)
    numbers = [said(node, option, "sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID").strip() for _ in range(3)]
    job = node.last_job()
    assert numbers == [f"{job}.{n}" for n in (1, 2, 3)]
    failed = node.run(option, "sh", "-c", "exit 7", user=NOBODY)
    assert failed.returncode == 7
    first.end()
    wait_until(lambda: node.record(job)["state"] == "COMPLETED", "the job is over")
    assert [node.record(job, step)["exit_status"] for step in range(5)] == [0, 0, 0, 0, 7]
    assert [line["call"] for line in node.trace(job, 4) if line["kind"] == "job_container"] == [
        "container_p_add_cont", "container_p_add_pid",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [(), (EVERYTHING,)])
def test_a_further_step_is_in_the_container_and_the_cgroup_of_its_job(node: Node, words: tuple[str, ...]) -> None:
    first, option = begun(node, *words)
    job = str(node.last_job())
    paths = [f"/proc/self/ns/{kind}" for kind in ("mnt", "pid", "net", "ipc", "uts", "user")]
    inside = node.nodectl("enter", job, "readlink", *paths, user=NOBODY).stdout
    assert said(node, option, "readlink", *paths) == inside
    said(node, option, "touch", "/tmp/shared")
    assert said(node, option, "-n2", "ls", "/tmp") == "shared\n" * 2
    assert f"/job_{job}/step_4/user/task_0\n" in said(node, option, "cat", "/proc/self/cgroup")
    first.end()


def test_the_job_lives_until_its_last_step_has_ended(node: Node, shared: Contained) -> None:
    first, option = begun(node, EVERYTHING)
    job = node.last_job()
    second = Step(node, option)
    said(node, option, "touch", "/tmp/kept")
    first.end()
    assert node.record(job)["state"] == "COMPLETED"
    assert said(node, option, "ls", "/tmp") == "kept\n"
    assert (shared.base / str(job)).is_dir()
    assert node.call("Wait", job=job, step=0)["record"]["exit_status"] == 0  # type: ignore[index]
    second.end()
    node.call("Wait", job=job, step=0, epilog=True)
    shared.assert_gone()
    done = node.run(option, "true", user=NOBODY)
    assert done.returncode == 1
    assert f"no job {job} is running" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemons_end_changes_nothing_of_that(node: Node, shared: Contained, number: int) -> None:
    first, option = begun(node, "--container-ns=pid,net")
    job = node.last_job()
    said(node, option, "touch", "/tmp/kept")
    second = Step(node, option)
    node.restart(number)
    assert said(node, option, "sh", "-c", "echo $SLURM_STEP_ID; ls /tmp") == "3\nkept\n"
    first.end()
    wait_until(lambda: not (Path(f"{node.base}/job_{job}/step_0")).exists(), "the first has ended")
    node.restart(number)
    assert said(node, option, "sh", "-c", "echo $SLURM_STEP_ID; ls /tmp") == "4\nkept\n"
    node.restart(number)
    second.end()
    shared.assert_gone()
    wait_until(lambda: not list(node.steps.iterdir()), "everything is recorded")
    assert [node.record(job, step)["state"] for step in range(5)] == ["COMPLETED"] * 5


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_step_runner_that_is_killed_takes_no_other_step_along(node: Node, order: str) -> None:
    first, option = begun(node)
    job = node.last_job()
    second = Step(node, option)
    victim, other, number = (first, second, 0) if order == "first" else (second, first, 1)
    (runner,) = [
        int(pid) for pid in Path(f"{node.base}/job_{job}/step_{number}/stepd/cgroup.procs").read_text().split()
    ]
    os.kill(runner, signal.SIGKILL)
    victim.client.communicate(timeout=PATIENCE)
    assert victim.client.returncode == 1
    assert said(node, option, "echo", "served") == "served\n"
    other.end()
    wait_until(lambda: not list(node.steps.iterdir()), "everything is recorded")
    assert [node.record(job, step)["state"] for step in (0, 1)] == [
        "NODE_FAIL" if step == number else "COMPLETED" for step in (0, 1)
    ]


def test_everything_killed_between_two_daemons_is_recorded_and_removed(node: Node, shared: Contained) -> None:
    first, option = begun(node, "--container-ns=pid")
    job = node.last_job()
    second = Step(node, option)
    runners = [pid for pid, name in node.processes() if name.startswith("stepd")]
    assert len(runners) == 2
    node.stop(signal.SIGKILL)
    for pid in runners:
        os.kill(pid, signal.SIGKILL)
    for step in (first, second):
        step.client.kill()
        step.client.communicate()
    node.start()
    shared.assert_gone()
    wait_until(lambda: not list(node.steps.iterdir()), "everything is recorded")
    assert [node.record(job, step)["state"] for step in (0, 1)] == ["NODE_FAIL"] * 2


def test_a_job_is_its_users(node: Node) -> None:
    first, option = begun(node)
    job = option.partition("=")[2]
    for user, why in ((OTHER, f"no job {job} is running"), (None, f"job {job} belongs to nobody")):
        done = node.run(option, "true", user=user)
        assert done.returncode == 1
        assert why in done.stderr
    assert node.run(option, "--uid=nobody", "id", "-un").stdout == "nobody\n"
    first.end()
    assert "no job 4000000 is running" in node.run("--jobid=4000000", "true", user=NOBODY).stderr


def test_what_is_the_jobs_cannot_be_asked_for_by_a_further_step(node: Node) -> None:
    node.stop()
    node.configure(gres=["Name=gpu File=/dev/null"])
    node.start()
    first = Step(node, "--mem=100M", "--cpu-max=50%", "--pids-max=100")
    option = f"--jobid={node.last_job()}"
    for word, words in (
        ("--container-ns=net", "has the namespaces that its first step asked for"),
        ("--mem=200M", "200 MiB are more than the 100 MiB of job"),
        ("--cpu-max=51%", "--cpu-max: cpu.max = 51% is more than cpu.max = 50% of job"),
        ("--pids-max=max", "--pids-max: pids.max = max is more than pids.max = 100 of job"),
        ("--gpus=1", "devices are given to a job with its first step"),
    ):
        done = node.run(option, word, "true", user=NOBODY)
        assert done.returncode == 1
        assert words in done.stderr
    assert said(node, option, "--mem=50M", "--cpu-max=40%", "echo", "less") == "less\n"
    first.end()


def test_a_job_is_not_taken_from_the_environment(node: Node) -> None:
    first, option = begun(node)
    job = option.partition("=")[2]
    done = node.run("sh", "-c", "echo $SLURM_JOB_ID", user=NOBODY, env={"SLURM_JOB_ID": job, "SLURM_JOBID": job})
    assert done.stdout.strip() != job
    first.end()


# Prolog, epilog and SPANK's hooks around the job.


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(jobs=True) as started:
        yield started


def test_prolog_and_epilog_come_once_whatever_the_number_of_steps(stage: Stage) -> None:
    stage.reset()
    node = stage.node
    first, option = begun(node)
    job = node.last_job()
    second = Step(node, option)
    first.end()
    assert node.run(option, "true", user=NOBODY).returncode == 0
    before = [str(line["call"]) for line in node.trace(job)]
    assert "epilog" not in before
    assert "container_p_delete" not in before
    second.end()
    node.call("Wait", job=job, step=0, epilog=True)
    calls = [str(line["call"]) for step in range(3) for line in node.trace(job, step)]
    for call in ("prolog", "epilog", "container_p_create", "container_p_delete", "slurm_spank_job_prolog"):
        assert calls.count(call) == before.count(call) + (call in ("epilog", "container_p_delete")), call
    assert calls.count("epilog") == calls.count("container_p_delete") == calls.count("prolog") == 1
    node.assert_clean()
