"""Whatever is killed, at whichever row of a launch: the step's end is known afterwards, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from nodectl.model.launch_order import HOOKS, ROWS
from nodectl.model.wire import framing
from nodectl.model.wire.names import STEP
from rootful.node import NOBODY, PATIENCE, wait_for_answer, wait_until
from rootful.stage import CONTAINER, Stage, ended, finished

# Where a test can stop a row that is no hook: in the hook beside it, or in a script or program of the test's own.
BESIDE = {
    "fork": "proctrack.proctrack_p_add",
    "become_user": "first.slurm_spank_task_init_privileged",
    "gate": "second.slurm_spank_task_init_privileged",
    "open_gate": "second.slurm_spank_task_post_fork",
    "option": "first.option",
    "confine": "second.slurm_spank_task_init",
}
SCRIPTS = ("task_prolog", "exec", "task_epilog")
PREFIX = {"spank": "first", "task": "task", "proctrack": "proctrack", "job_container": "container", "mpi": "mpi"}
# See test_job_kills.py, test_controllers_scripts.py and test_container_failures.py.
AROUND_THE_JOB = (
    "prolog_slurmctld", "epilog_slurmctld",
    "slurm_spank_job_prolog", "prolog", "slurm_spank_job_epilog", "epilog", "container_p_delete",
    "task_p_slurmd_release_resources",
)  # fmt: skip
CALLS = [row.call for row in HOOKS if row.call not in AROUND_THE_JOB]
IN_DAEMON = [call for call in CALLS if ROWS[call].process == "daemon"]
OF_A_STEP = [call for call in CALLS if call not in IN_DAEMON]
AFTER_THE_TASKS = CALLS[CALLS.index("task_epilog") :]


def stopped_at(call: str) -> str:
    """The order that stops a launch in this row."""
    return BESIDE.get(call) or f"{PREFIX[ROWS[call].kind]}.{call}"


def launch(stage: Stage, call: str, ntasks: int = 2) -> subprocess.Popen[str]:
    """A step, stopped in the row; where that is the step's and not the daemon's, the daemon has answered."""
    words = [f"-n{ntasks}", "--first=x", f"--mpi={'puppet' if ROWS[call].kind == 'mpi' else 'none'}"]
    program = ["sh", "-c", "echo ran"]
    if call in SCRIPTS:
        script = str(stage.script(call))
        if call == "exec":
            program = ["sh", "-c", f"{script}; echo ran"]
        else:
            words.append(f"--{call.replace('_', '-')}={script}")
    else:
        stage.block(stopped_at(call))
    client = stage.node.popen(*words, *program, user=NOBODY)
    stage.wait_there(client)
    if call not in IN_DAEMON:
        stage.node.call("Hello")  # when it answers this, it has answered the launch
    return client


def wait_for_the_runner_to_wait(stage: Stage) -> None:
    """A task is stopped; the stepd, which runs beside it, goes on until it has nothing to do but wait for its tasks."""

    def opened() -> bool:
        trace = stage.node.call("Trace", job=stage.last_job(), step=0)["trace"]
        return any(row["call"] == "open_gate" for row in trace)  # type: ignore[attr-defined]

    def waits() -> bool:  # it answers only then; the daemon tells of it without an answer, too, after a second
        return "tasks" in stage.node.call("Show", job=stage.last_job(), step=0)["record"]  # type: ignore[operator]

    wait_until(opened, "the gate is open")
    wait_until(waits, "the step runner waits")


def shown_state(stage: Stage) -> object:
    return stage.node.call("Show", job=stage.last_job(), step=0)["record"]["state"]  # type: ignore[index]


def zombies(stage: Stage) -> list[str]:
    """Processes that have ended and that nobody has collected: the daemon's children and the step's."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = (
                Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
            )
        except OSError:
            continue
        if fields[0] == "Z" and stage.node.daemon is not None and int(fields[1]) == stage.node.daemon.pid:
            found.append(name)
    return found


def nothing_left(stage: Stage) -> None:
    stage.node.assert_clean()
    wait_until(lambda: not zombies(stage), "no zombie is left")


@pytest.mark.parametrize("call", OF_A_STEP)
def test_step_outlives_its_daemon(stage: Stage, call: str) -> None:
    client = launch(stage, call)
    stage.node.restart(signal.SIGKILL)
    stage.release()
    status, out, err = finished(client)
    # A user's epilog has five seconds, which a restart may take.
    assert [line for line in err.splitlines() if call != "task_epilog" or "had not ended after" not in line] == []
    assert (status, out) == (0, "ran\nran\n")
    record = ended(stage, stage.last_job())
    assert (record["state"], record["exit_status"], record["reason"]) == ("COMPLETED", 0, "")
    nothing_left(stage)


@pytest.mark.parametrize("call", ["proctrack_p_create", "slurm_spank_task_post_fork", "exec", "slurm_spank_exit"])
def test_step_that_ends_while_there_is_no_daemon_is_recorded_by_the_next(stage: Stage, call: str) -> None:
    job = stage.last_job() + 1
    client = launch(stage, call)
    stage.node.stop(signal.SIGKILL)
    stage.release()
    assert finished(client) == (0, "ran\nran\n", "")
    stage.node.start()
    record = ended(stage, job)
    assert (record["state"], record["exit_status"]) == ("COMPLETED", 0)
    calls = [line["call"] for line in stage.node.trace(job)]
    assert calls[-2:] == ["proctrack_p_destroy", "task_p_slurmd_release_resources"]
    nothing_left(stage)


@pytest.mark.parametrize("call", IN_DAEMON)
def test_request_dies_with_its_daemon(stage: Stage, call: str) -> None:
    before = stage.last_job()
    client = launch(stage, call)
    stage.node.stop(signal.SIGKILL)
    status, out, err = finished(client)
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    stage.reset()
    assert stage.last_job() == before
    nothing_left(stage)


@pytest.mark.parametrize("call", OF_A_STEP)
def test_death_of_the_step_runner_is_recorded_with_its_place(stage: Stage, call: str) -> None:
    client = launch(stage, call)
    place = stopped_at(call).partition(".")[2] if call not in SCRIPTS else call
    if ROWS[place].process == "task":
        wait_for_the_runner_to_wait(stage)
    os.kill(stage.stepd(), signal.SIGKILL)
    status, _, err = finished(client)
    record = ended(stage, stage.last_job())
    assert (status, record["state"], record["exit_status"]) == (1, "NODE_FAIL", 1)
    if ROWS[place].process == "stepd":
        assert f"in {place}" in str(record["reason"])
    else:
        assert "while its tasks ran" in str(record["reason"])
    plugin = stopped_at(call).partition(".")[0] if call not in SCRIPTS else ""
    if plugin and ROWS[place].process == "stepd":
        assert f"of plugin {CONTAINER if plugin == 'container' else plugin}" in str(record["reason"])
    (line,) = err.splitlines()
    assert str(record["reason"]) in line
    nothing_left(stage)


@pytest.mark.parametrize("call", CALLS)
def test_step_of_a_client_that_dies_is_cancelled(stage: Stage, call: str) -> None:
    # After its end a task is no reason to cancel a step: with one task there is no other.
    client = launch(stage, call, 1 if call in AFTER_THE_TASKS else 2)
    client.kill()
    client.wait()
    if ROWS[call].process == "task" and call not in AFTER_THE_TASKS:  # the tasks could end before the stepd runs again
        wait_until(lambda: shown_state(stage) == "CANCELLED", "the stepd knows")
    stage.release()
    nothing_left(stage)
    record = ended(stage, stage.last_job())
    if call in AFTER_THE_TASKS:
        assert (record["state"], record["exit_status"]) == ("COMPLETED", 0)
    else:
        assert (record["state"], record["reason"]) == ("CANCELLED", "the client that ran it went away")
    if ROWS[call].process != "task" and call not in AFTER_THE_TASKS:
        assert "exec" not in [line["call"] for line in stage.node.trace(stage.last_job())]


@pytest.mark.parametrize("call", AFTER_THE_TASKS)
def test_step_whose_tasks_have_ended_well_is_completed_though_its_runner_is_told_to_stop(
    stage: Stage, call: str
) -> None:
    client = launch(stage, call, 1)
    os.kill(stage.stepd(), signal.SIGTERM)
    stage.release()
    assert finished(client) == (0, "ran\n", "")
    record = ended(stage, stage.last_job())
    assert (record["state"], record["exit_status"], record["reason"]) == ("COMPLETED", 0, "")
    nothing_left(stage)


@pytest.mark.parametrize("what", ["stop", "no client"])
def test_end_of_a_task_that_its_runner_has_not_seen_yet_comes_before_what_would_end_the_step(
    stage: Stage, what: str
) -> None:
    script = stage.script("exec")
    client = stage.node.popen("sh", "-c", f"echo $$ >pid; exec {script}", user=NOBODY)
    stage.wait_there(client)
    stage.node.call("Hello")
    wait_for_the_runner_to_wait(stage)
    stepd, task = stage.stepd(), (stage.node.scratch / "pid").read_text(encoding="ascii").strip()
    os.kill(stepd, signal.SIGSTOP)
    stage.release()
    wait_until(lambda: ") Z" in Path(f"/proc/{task}/stat").read_text(encoding="utf-8"), "the task has ended")
    if what == "stop":
        os.kill(stepd, signal.SIGTERM)
    else:
        client.kill()
        client.wait()
    os.kill(stepd, signal.SIGCONT)
    finished(client)
    record = ended(stage, stage.last_job())
    assert (record["state"], record["exit_status"], record["reason"]) == ("COMPLETED", 0, "")
    nothing_left(stage)


@pytest.mark.parametrize(
    "call", ["slurm_spank_init", "task_p_pre_launch_priv", "exec", "task_epilog", "slurm_spank_exit"]
)
def test_daemon_and_step_runner_both_die(stage: Stage, call: str) -> None:
    client = launch(stage, call)
    job, stepd = stage.last_job(), stage.stepd()
    stage.node.stop(signal.SIGKILL)
    os.kill(stepd, signal.SIGKILL)
    assert client.wait(PATIENCE) == 1
    stage.node.start()
    _, _, err = finished(client)  # when the tasks, which have its streams, are gone too
    assert len(err.splitlines()) == 1
    record = ended(stage, job)
    assert (record["state"], record["exit_status"]) == ("NODE_FAIL", 1)
    assert "the step runner died while the service was away" in str(record["reason"])
    nothing_left(stage)


def test_step_runner_dies_after_the_daemon_was_replaced(stage: Stage) -> None:
    client = launch(stage, "exec")
    job, stepd = stage.last_job(), stage.stepd()
    stage.node.restart(signal.SIGKILL)
    os.kill(stepd, signal.SIGKILL)
    assert finished(client)[0] == 1
    record = ended(stage, job)
    assert (record["state"], record["exit_status"]) == ("NODE_FAIL", 1)
    nothing_left(stage)


@pytest.mark.parametrize("replaced", [False, True])
def test_death_of_the_step_runner_is_noticed_though_a_child_of_a_plugin_holds_its_sockets(
    stage: Stage, replaced: bool
) -> None:
    stage.order("first.slurm_spank_init", "if os.fork() == 0: time.sleep(1000)")
    client = launch(stage, "exec")
    job, stepd = stage.last_job(), stage.stepd()
    if replaced:
        stage.node.restart(signal.SIGKILL)
    os.kill(stepd, signal.SIGKILL)
    assert ended(stage, job)["state"] == "NODE_FAIL"
    assert finished(client)[0] == 1
    nothing_left(stage)


def test_signal_to_a_task_that_has_not_run_since_its_fork_is_not_lost(stage: Stage) -> None:
    # One CPU, and nobody runs there before the stepd waits for something, which it does not in this hook.
    first = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    stage.order("task.task_p_pre_setuid", first + "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))")
    busy = 'open(SCRATCH + "/there", "w").close()\nwhile not os.path.exists(SCRATCH + "/release"): pass'
    stage.order("proctrack.proctrack_p_add", busy)
    client = stage.node.popen("sleep", "300", user=NOBODY)
    stage.wait_there(client)
    wait_for_answer(client)
    with contextlib.closing(framing.connect(str(stage.node.steps / f"{stage.last_job()}.0.sock"))) as link:
        told = {"signal": int(signal.SIGTERM), "forwarded": True}
        framing.send(link, {"method": f"{STEP}.Signal", "parameters": told, "oneway": True})
        stage.release()
        assert finished(client)[0] == 128 + signal.SIGTERM
    nothing_left(stage)


def test_step_whose_runner_is_busy_in_a_hook_can_be_shown(stage: Stage) -> None:
    client = launch(stage, "slurm_spank_init")
    assert stage.last()["state"] == "RUNNING"
    stage.release()
    assert finished(client) == (0, "ran\nran\n", "")
    nothing_left(stage)


def forkserver(stage: Stage) -> int:
    assert stage.node.daemon is not None
    children = Path(f"/proc/{stage.node.daemon.pid}/task/{stage.node.daemon.pid}/children").read_text(encoding="ascii")
    named = []
    for pid in children.split():
        with contextlib.suppress(FileNotFoundError):  # the compiler of filters, which has ended
            if Path(f"/proc/{pid}/comm").read_text(encoding="ascii") == "nodectl-fork\n":
                named.append(int(pid))
    (found,) = named
    return found


def kill_forkserver(stage: Stage) -> None:
    """When the daemon has waited for it. Until then it is given steps, which nobody will ever read."""
    pid = forkserver(stage)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the daemon has noticed")


def test_forkserver_killed_between_steps_is_replaced(stage: Stage) -> None:
    for _ in range(2):
        kill_forkserver(stage)
        done = stage.node.run("echo", "ran", user=NOBODY)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    nothing_left(stage)


@pytest.mark.parametrize("call", ["slurm_spank_init", "exec", "slurm_spank_exit"])
def test_step_outlives_its_forkserver(stage: Stage, call: str) -> None:
    client = launch(stage, call)
    kill_forkserver(stage)
    other = stage.node.run("-n1", "--chdir=/", "pwd") if call == "exec" else None
    stage.release()
    assert finished(client) == (0, "ran\nran\n", "")
    assert other is None or other.stdout == "/\n"
    nothing_left(stage)
