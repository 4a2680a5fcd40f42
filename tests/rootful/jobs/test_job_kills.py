"""Whatever is killed around a job: its end is known, an epilog follows every prolog that began, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, wait_until
from rootful.stage import Stage, ended, finished, staged

PROLOG, EPILOG = "slurm_spank_job_prolog", "slurm_spank_job_epilog"
BEFORE = (f"first.{PROLOG}", f"second.{PROLOG}", "prolog")
AFTER = (f"first.{EPILOG}", f"second.{EPILOG}", "epilog")
SHELL_BLOCK = ": >$SCRATCH/there; while ! [ -e $SCRATCH/release ]; do sleep 0.01; done"
COUNT = "echo epilog >>$SCRATCH/count"


@pytest.fixture(scope="module")
def module_stage() -> Iterator[Stage]:
    with staged(jobs=True) as started:
        yield started


@pytest.fixture
def stage(module_stage: Stage) -> Iterator[Stage]:
    module_stage.reset()
    module_stage.order("epilog", COUNT)
    yield module_stage
    module_stage.node.assert_clean()
    assert "Traceback" not in module_stage.node.logged()


def launch(stage: Stage, name: str) -> subprocess.Popen[str]:
    """A job that is stopped at this place."""
    if name in ("prolog", "epilog"):
        stage.order(name, f"{SHELL_BLOCK}; {COUNT if name == 'epilog' else ':'}")
    else:
        stage.block(name)
    client = stage.node.popen("sh", "-c", "echo ran", user=NOBODY)
    wait_until((stage.node.scratch / "there").exists, f"{name} is reached")
    stage.node.call("Hello")  # when it answers this, it has answered the launch of a step that has begun
    return client


def over(stage: Stage, job: int) -> Mapping[str, object]:
    record: Mapping[str, object] = stage.node.call("Wait", job=job, step=0, epilog=True)["record"]  # type: ignore[assignment]
    return record


def epilogs(stage: Stage) -> int:
    path = stage.node.scratch / "count"
    return len(path.read_text(encoding="utf-8").split()) if path.exists() else 0


def last_started(stage: Stage) -> int:
    return max(int(path.name.split(".")[0]) for path in stage.node.steps.iterdir())


@pytest.mark.parametrize("name", BEFORE)
def test_job_whose_daemon_is_killed_in_its_prolog_has_its_epilog_from_the_next(stage: Stage, name: str) -> None:
    client = launch(stage, name)
    job = last_started(stage)
    stage.node.stop(signal.SIGKILL)
    status, out, err = finished(client)
    assert (status, out) == (1, "")
    assert "went away before it answered" in err
    stage.node.start()
    record = over(stage, job)
    assert (record["state"], record["exit_status"]) == ("FAILED", 1)
    assert record["reason"] == "the service ended while the job's prolog ran"
    assert epilogs(stage) == 1


@pytest.mark.parametrize("name", AFTER)
def test_epilog_whose_daemon_is_killed_is_begun_anew_by_the_next(stage: Stage, name: str) -> None:
    client = launch(stage, name)
    job = last_started(stage)
    assert finished(client) == (0, "ran\n", "")
    stage.node.stop(signal.SIGKILL)
    stage.release()
    stage.node.start()
    record = over(stage, job)
    assert (record["state"], record["exit_status"], record["reason"]) == ("COMPLETED", 0, "")
    assert "epilog" not in record
    assert epilogs(stage) in (1, 2)  # the first may have come so far before its end


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("name", ["first.slurm_spank_init", "first.slurm_spank_task_init", "first.slurm_spank_exit"])
def test_job_whose_daemon_is_replaced_under_its_step_has_one_epilog(stage: Stage, name: str, number: int) -> None:
    client = launch(stage, name)
    job = last_started(stage)
    stage.node.restart(number)
    assert epilogs(stage) == 0
    stage.release()
    assert finished(client) == (0, "ran\n", "")
    assert over(stage, job)["state"] == "COMPLETED"
    assert epilogs(stage) == 1


@pytest.mark.parametrize("name", ["first.slurm_spank_init", "first.slurm_spank_exit"])
def test_job_whose_step_ends_while_there_is_no_daemon_has_its_epilog_from_the_next(stage: Stage, name: str) -> None:
    client = launch(stage, name)
    job = last_started(stage)
    stage.node.stop(signal.SIGKILL)
    stage.release()
    assert finished(client) == (0, "ran\n", "")
    assert epilogs(stage) == 0
    stage.node.start()
    assert over(stage, job)["state"] == "COMPLETED"
    assert epilogs(stage) == 1


@pytest.mark.parametrize("name", ["first.slurm_spank_init", "first.slurm_spank_task_init"])
def test_job_whose_step_runner_dies_has_its_epilog(stage: Stage, name: str) -> None:
    client = launch(stage, name)
    os.kill(stage.stepd(), signal.SIGKILL)
    assert finished(client)[0] == 1
    assert over(stage, stage.last_job())["state"] == "NODE_FAIL"
    assert epilogs(stage) == 1


def test_record_of_a_failed_prolog_outlives_the_daemon_that_is_killed_in_the_epilog(stage: Stage) -> None:
    stage.order(f"first.{PROLOG}", "rc = 5")
    client = launch(stage, "epilog")
    job = last_started(stage)
    assert finished(client)[0] == 1
    stage.node.stop(signal.SIGKILL)
    stage.release()
    stage.node.start()
    record = over(stage, job)
    assert record["state"] == "FAILED"
    assert str(record["reason"]).startswith(f"job {job}: plugin first: {PROLOG}: returned 5 (/")  # its file


@pytest.mark.parametrize("name", BEFORE)
def test_job_whose_client_dies_in_its_prolog_never_runs_its_program(stage: Stage, name: str) -> None:
    client = launch(stage, name)
    client.kill()
    client.wait()
    stage.release()
    record = over(stage, stage.last_job())
    assert (record["state"], record["reason"]) == ("CANCELLED", "the client that ran it went away")
    assert "exec" not in [line["call"] for line in stage.node.trace(stage.last_job())]
    assert epilogs(stage) == 1


@pytest.mark.parametrize("name", AFTER)
def test_epilog_goes_on_without_its_client(stage: Stage, name: str) -> None:
    client = launch(stage, name)
    assert finished(client)[0] == 0
    stage.release()
    assert over(stage, stage.last_job())["state"] == "COMPLETED"
    assert epilogs(stage) == 1


def test_job_can_be_cancelled_in_its_prolog_and_no_other_signal_reaches_it_there(stage: Stage) -> None:
    client = launch(stage, "prolog")
    job = stage.last_job()
    steps: list[Mapping[str, object]] = stage.node.call("List")["steps"]  # type: ignore[assignment]
    assert [step["state"] for step in steps] == ["CONFIGURING"]
    other = stage.node.nodectl("signal", "-s", "USR1", str(job), user=NOBODY)
    assert other.returncode == 1
    assert "its prolog is running" in other.stderr
    assert stage.node.nodectl("signal", str(job), user=NOBODY).returncode == 0
    stage.release()
    status, out, err = finished(client)
    assert (status, out) == (1, "")
    assert err.splitlines() == [f"nodectl: error: step {job}.0 was cancelled in its prolog"]
    record = over(stage, job)
    assert (record["state"], record["exit_status"]) == ("CANCELLED", 1)
    assert epilogs(stage) == 1


def test_daemon_serves_others_while_prologs_and_epilogs_run(stage: Stage) -> None:
    client = launch(stage, "prolog")
    stage.order("prolog", ":")
    for _ in range(3):
        assert stage.node.run("echo", "beside").stdout == "beside\n"
    assert client.poll() is None
    stage.release()
    assert finished(client) == (0, "ran\n", "")


@pytest.mark.parametrize("name", [f"first.{PROLOG}", "prolog", "epilog"])
def test_daemon_that_is_told_to_end_waits_for_what_is_under_way(stage: Stage, name: str) -> None:
    client = launch(stage, name)
    job = last_started(stage)
    assert stage.node.daemon is not None
    stage.node.daemon.send_signal(signal.SIGTERM)
    wait_until(lambda: not stage.node.socket.exists(), "it has stopped listening")
    assert stage.node.daemon.poll() is None
    stage.release()
    assert stage.node.daemon.wait(PATIENCE) == 0
    assert finished(client) == (0, "ran\n", "")
    stage.node.daemon = None
    stage.node.start()
    assert over(stage, job)["state"] == "COMPLETED"
    assert epilogs(stage) == 1


def test_daemon_that_is_told_to_end_does_not_wait_for_ever(stage: Stage) -> None:
    client = launch(stage, "prolog")
    job = last_started(stage)
    stage.node.stop()
    status, _, err = finished(client)
    assert status == 1
    assert len(err.splitlines()) == 1
    stage.node.start()
    assert over(stage, job)["state"] == "FAILED"
    assert epilogs(stage) == 1


@pytest.mark.parametrize("name", BEFORE[1:])
def test_process_around_a_job_that_is_killed_is_a_failure_of_that_moment(stage: Stage, name: str) -> None:
    client = launch(stage, name)
    group = Path(f"{stage.node.base}/job_{last_started(stage)}/prolog/cgroup.procs")
    for pid in group.read_text(encoding="ascii").split():
        with contextlib.suppress(ProcessLookupError):  # a short sleep of the script's
            os.kill(int(pid), signal.SIGKILL)
    status, _, err = finished(client)
    assert status == 1
    assert "died by SIGKILL" in err
    assert over(stage, stage.last_job())["state"] == "FAILED"
    assert epilogs(stage) == 1


def test_jobs_of_a_private_node_have_their_epilog_before_it_ends(stage: Stage) -> None:
    stage.node.stop()
    done = stage.node.run("sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert epilogs(stage) == 1
    stage.node.start()


def test_epilog_of_a_step_is_owed_to_its_user_within_the_limit_of_steps(stage: Stage) -> None:
    stage.node.stop()
    stage.node.configure(max_steps_per_user=1)
    stage.node.start()
    try:
        client = launch(stage, "epilog")
        assert finished(client)[0] == 0
        job = stage.last_job()
        done = stage.node.run("true", user=NOBODY)
        assert done.returncode == 1
        assert "max_steps_per_user" in done.stderr
        stage.release()
        assert ended(stage, job)["state"] == "COMPLETED"
        over(stage, job)
    finally:
        stage.node.configure(max_steps_per_user=512)
        stage.node.restart()
