"""Task plugins and a job's resources: reserved at its first step, given up while it stands still, released at its end,
each once, in the daemon, as root, and whoever failed or died in between.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest

from rootful.node import NOBODY, PATIENCE, Node, wait_for_answer, wait_until

PLUGIN = """
import os
from nodectl.plugin_api import set_errno
SCRATCH = {scratch!r}
def _say(word, job, step=None):
    with open(SCRATCH + "/said", "a") as file:
        file.write(f"{{word}} {{job}} {{os.geteuid()}}\\n")
    if os.path.exists(SCRATCH + "/fail." + word):
        set_errno(28)
        return -1
    return 0
def task_p_slurmd_reserve_resources(step, node_id):
    assert node_id == 0
    return _say("reserve", step.job_id)
def task_p_slurmd_release_resources(job_id):
    return _say("release", job_id)
def task_p_slurmd_suspend_job(job_id):
    return _say("suspend", job_id)
def task_p_slurmd_resume_job(job_id):
    return _say("resume", job_id)
"""
SERVING = "echo ready; until [ -e end ]; do sleep 0.02; done"


class Held:
    """A node whose task plugin writes down what it is told of jobs' resources."""

    def __init__(self) -> None:
        self.node = Node(task_plugin=["task/cgroup", "task/held"], suspend_grace_time=0)
        self.node.plugin("held", PLUGIN.format(scratch=str(self.node.scratch)), "task")
        self.clients: list[subprocess.Popen[str]] = []

    def said(self) -> list[str]:
        try:
            return (self.node.scratch / "said").read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return []

    def fail(self, word: str) -> None:
        (self.node.scratch / f"fail.{word}").touch()

    def begin(self, *words: str) -> int:
        """A step that runs until the end is allowed. Returns its job."""
        client = self.node.popen(*words, "sh", "-c", SERVING, user=NOBODY)
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        wait_for_answer(client)
        self.clients.append(client)
        return self.node.last_job()

    def end(self) -> None:
        (self.node.scratch / "end").touch()
        for client in self.clients:
            assert client.wait(PATIENCE) == 0
            client.communicate()

    def do(self, word: str, name: object) -> subprocess.CompletedProcess[str]:
        return self.node.nodectl(word, str(name), user=NOBODY)


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    try:
        made.node.start()
        yield made
        made.node.assert_clean()
    finally:
        made.node.close()


def test_resources_are_reserved_once_a_job_and_released_at_its_end(held: Held) -> None:
    job = held.begin()
    held.begin(f"--jobid={job}")
    assert held.said() == [f"reserve {job} 0"]
    held.end()
    wait_until(lambda: held.said() == [f"reserve {job} 0", f"release {job} 0"], "they are released")
    held.node.assert_clean()
    lines = [line for line in held.node.trace(job) if "resources" in str(line["call"])]
    assert [(line["call"], line["process"], line["plugin"]) for line in lines] == [
        ("task_p_slurmd_reserve_resources", "daemon", "task/held"),
        ("task_p_slurmd_release_resources", "daemon", "task/held"),
    ]


def test_a_failing_reservation_refuses_the_job_and_is_released(held: Held) -> None:
    held.fail("reserve")
    done = held.node.run("true", user=NOBODY)
    (line,) = done.stderr.splitlines()
    why = "plugin task/held: task_p_slurmd_reserve_resources: returned -1: No space left on device"
    assert (done.returncode, line.endswith(why)) == (1, True), line
    assert [line.split()[0] for line in held.said()] == ["reserve", "release"]


def test_a_failing_release_is_noted_in_the_record_and_logged(held: Held) -> None:
    held.fail("release")
    assert held.node.run("true", user=NOBODY).returncode == 0
    job = held.node.last_job()
    why = f"job {job}: plugin task/held: task_p_slurmd_release_resources: returned -1: No space left on device"
    wait_until(lambda: held.node.record(job).get("resources") == why, "it is noted")
    assert f"nodectl daemon: {why}\n" in held.node.logged()
    shown = held.node.nodectl("show", str(job)).stdout
    assert [line.split(maxsplit=1)[1] for line in shown.splitlines() if line.startswith("resources:")] == [why]


def test_a_daemon_that_comes_later_releases(held: Held) -> None:
    job = held.begin()
    held.node.stop(signal.SIGKILL)
    held.end()
    wait_until(lambda: not held.node.processes(), "the step has ended")
    held.node.start()
    wait_until(lambda: held.said()[-1] == f"release {job} 0", "they are released")


def test_plugins_are_told_of_a_job_when_all_its_steps_stand_still_and_before_one_goes_on(held: Held) -> None:
    job = held.begin()
    held.begin(f"--jobid={job}")
    assert held.do("suspend", f"{job}.0").returncode == 0
    assert len(held.said()) == 1
    assert held.do("suspend", f"{job}.1").returncode == 0
    assert held.said()[1:] == [f"suspend {job} 0"]
    held.node.restart()
    assert held.do("resume", f"{job}.1").returncode == 0
    assert held.do("resume", f"{job}.0").returncode == 0
    assert held.said()[1:] == [f"suspend {job} 0", f"resume {job} 0"]
    held.end()


def test_a_step_stays_suspended_where_its_resources_cannot_be_had_again(held: Held) -> None:
    job = held.begin()
    assert held.do("suspend", job).returncode == 0
    held.fail("resume")
    done = held.do("resume", job)
    assert done.returncode == 1
    assert f"step {job}.0 stays suspended: job {job}: plugin task/held: task_p_slurmd_resume_job: " in done.stderr
    assert held.node.call("Show", job=job, step=0)["record"]["state"] == "SUSPENDED"  # type: ignore[index]
    (held.node.scratch / "fail.resume").unlink()
    assert held.do("resume", job).returncode == 0
    held.end()


def test_a_job_goes_on_whose_resources_a_plugin_does_not_give_up(held: Held) -> None:
    """It was a line in the log, and `suspend` ended with 0."""
    job = held.begin()
    held.fail("suspend")
    done = held.do("suspend", job)
    assert done.returncode == 1
    why = f"job {job}: plugin task/held: task_p_slurmd_suspend_job: returned -1: No space left on device"
    assert done.stderr.rstrip().endswith(f"step {job}.0 goes on: {why}"), done.stderr
    assert f"nodectl daemon: {why}\n" in held.node.logged()
    assert held.said()[1:] == [f"suspend {job} 0", f"resume {job} 0"]
    assert held.node.call("Show", job=job, step=0)["record"]["state"] == "RUNNING"  # type: ignore[index]
    held.end()


def test_a_job_that_stands_still_and_was_not_suspended_can_be_resumed(held: Held) -> None:
    job = held.begin()
    held.fail("suspend")
    held.fail("resume")
    done = held.do("suspend", job)
    assert f"step {job}.0 stands still without being suspended: job {job}: plugin task/held: " in done.stderr
    for word in ("suspend", "resume"):
        (held.node.scratch / f"fail.{word}").unlink()
    assert held.do("resume", job).returncode == 0
    held.end()


def test_task_p_post_term_is_called_as_the_jobs_owner(held: Held) -> None:
    held.node.stop()
    body = """
import os
def task_p_post_term(step, task):
    found = os.getresuid(), os.getresgid(), os.getgroups(), task.status
    with open("{}/ids", "w") as file:
        file.write(repr(found))
    assert os.stat(file.name).st_uid == step.uid
def task_p_post_step(step):
    with open("{}/after", "w") as file:
        file.write(repr((os.getresuid(), os.getresgid())))
"""
    held.node.plugin("held", body.replace("{}", str(held.node.scratch)), "task")
    held.node.start()
    assert held.node.run("sh", "-c", "exit 3", user=NOBODY).returncode == 3
    uid, gid = NOBODY.pw_uid, NOBODY.pw_gid
    found = (held.node.scratch / "ids").read_text(encoding="ascii")
    assert found == repr(((0, uid, 0), (0, gid, 0), [gid], 3 << 8))
    assert (held.node.scratch / "after").read_text(encoding="ascii") == repr(((0,) * 3, (0,) * 3))
