"""The truth about ends: whatever a task's exit status tells, the record and the exit status of the step tell it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rootful.held import share_memory
from vm import service
from vm.memory_eater import BECOMES_THE_EATER, EATS, RESTS, Eater
from vm.service import Sleeper, wait_until
from vm.test_limits import BOMB

MIB = 1 << 20


def open_to_all(directory: Path) -> None:
    """Users read and write there."""
    for above in (directory.parent.parent, directory.parent):
        above.chmod(0o755)
    directory.chmod(0o777)


def test_step_that_runs_out_of_memory_says_so_with_task_and_process() -> None:
    eater = Eater("--mem=64M", "sh", "-c", BECOMES_THE_EATER)
    eater.eat()
    _, lines, record = eater.ended()
    (task,) = record["tasks"]
    said = f"out of memory: task 0: killed process {task['pid']} (python3) at the limit of 64 MiB"
    assert lines == [
        f"nodectl: error: step {record['job']}.0: {said}",
        f"nodectl: error: {record['node']}: task 0: Out Of Memory",
    ]
    assert record["reason"] == said
    assert record["victims"] == [{"task": 0, "pid": task["pid"], "name": "python3"}]
    assert record["oom_kills"] == task["oom_kills"] == 1
    assert 60 * MIB <= record["peak_memory"] <= 64 * MIB
    shown = service.nodectl("show", str(record["job"]))
    assert "64.0 MiB" in shown
    assert "OUT_OF_MEMORY" in shown


def test_shell_that_hides_it_does_not_hide_it() -> None:
    eater = Eater("--mem=64M", "sh", "-c", f"{EATS}; echo hidden; exit 0")
    eater.eat()
    out, lines, record = eater.ended()
    assert out == "hidden\n"
    (task,), (victim,) = record["tasks"], record["victims"]
    assert task["status"] == 0
    assert (victim["task"], victim["name"]) == (0, "python3")
    assert victim["pid"] != task["pid"]
    assert lines[-1].endswith(": task 0: Out Of Memory")


def test_other_tasks_go_on_unless_all_are_to_end() -> None:
    script = f"if [ $SLURM_PROCID = 1 ]; then {BECOMES_THE_EATER}; fi; {RESTS}; echo survived"
    eater = Eater("-n2", "--mem=80M", "sh", "-c", script, resting=(0,))
    eater.eat()
    eater.wait_until_killed(1)
    eater.wake()
    out, _, record = eater.ended()
    assert out == "survived\n"
    assert [task["oom_kills"] for task in record["tasks"]] == [0, 1]
    eater = Eater("-n2", "--mem=80M", "--oom-kill-step", "sh", "-c", script, resting=(0,))
    eater.eat()
    out, _, record = eater.ended()
    assert out == ""
    assert record["tasks"][0]["status"] == 9


@pytest.mark.all
def test_kill_on_bad_exit_ends_the_others_and_the_state_is_the_first_ones() -> None:
    script = f"if [ $SLURM_PROCID = 1 ]; then {EATS}; exit 0; fi; {RESTS}; sleep 100; echo survived"
    eater = Eater("-K", "-n2", "--mem=80M", "sh", "-c", script, resting=(0,))
    eater.eat()
    out, _, record = eater.ended()
    assert out == ""
    assert record["tasks"][0]["status"] == 15


def test_kill_after_its_task_has_ended_is_known() -> None:
    script = f"if [ $SLURM_PROCID = 1 ]; then ({EATS}) >/dev/null 2>&1 & exit 0; fi; {RESTS}; echo done"
    eater = Eater("-n2", "--mem=80M", "sh", "-c", script, resting=(0,), ending=(1,))
    eater.eat()
    eater.wait_until_killed(1)
    eater.wake()
    out, _, record = eater.ended()
    assert out == "done\n"
    assert record["victims"][0]["task"] == 1
    assert [task["status"] for task in record["tasks"]] == [0, 0]


def test_step_within_its_memory_ends_as_ever() -> None:
    assert service.nodectl("run", "--mem=100M", "python3", "-c", "bytearray(40 << 20)", user="alice") == ""


@service.configured("max_processes_per_step = 40")
@pytest.mark.parametrize("status", [pytest.param(0, marks=pytest.mark.all), 3])
def test_refused_forks_are_told_and_are_the_reason_of_a_failure(status: int) -> None:
    program = BOMB.replace("os._exit(0)", f"os._exit({status})")
    done = service.run("nodectl", "run", "python3", "-c", program, user="alice")
    assert done.returncode == status
    job = int(re.search(r"step (\d+)\.0: reached its limit of 40 processes and threads: ", done.stderr)[1])  # type: ignore[index]
    record = service.record(job)
    assert record["forks_refused"] >= 1 or record["tasks"][0]["forks_refused"] >= 1
    assert record["peak_processes"] == 40
    refused = next(line for line in done.stderr.splitlines() if "reached its limit" in line).partition(".0: ")[2]
    assert record["reason"] == (f"task 0 ended with exit code 3; {refused}" if status else refused)
    assert record["state"] == ("FAILED" if status else "COMPLETED")
    assert refused in service.nodectl("show", str(job))


@pytest.mark.all
def test_core_of_a_process_that_a_task_left_is_written_before_the_end(tmp_path: Path) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern")
    open_to_all(tmp_path)
    slow, core, before = tmp_path / "slow", tmp_path / "core", pattern.read_text()
    slow.write_text(f"#!/bin/sh\ntouch {core}.begun\nsleep 2\ncat > {core}.part\nmv {core}.part {core}\n")
    slow.chmod(0o755)
    pattern.write_text(f"|{slow}")
    try:
        begun = f"until [ -e {core}.begun ]; do sleep 0.1; done"
        crash = f"python3 -c 'import os; os.abort()' >/dev/null 2>&1 & {begun}"
        assert service.run("nodectl", "run", "sh", "-c", crash, user="alice").returncode == 0
        wait_until(core.exists, "the core is written")
    finally:
        pattern.write_text(before)
    assert core.stat().st_size > MIB  # more than a pipe holds


def test_core_is_dumped_where_the_users_limit_allows_it_and_that_is_told(tmp_path: Path) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern")
    before = pattern.read_text()
    open_to_all(tmp_path)
    pattern.write_text("core")
    try:
        for limit, told in (("unlimited", " (core dumped)"), ("0", "")):
            script = f"cd {tmp_path}; ulimit -c {limit}; nodectl run sh -c 'echo $SLURM_JOB_ID; kill -ABRT $$'"
            done = service.run("sh", "-c", script, user="alice")
            assert done.returncode == 128 + 6
            assert done.stderr == f"nodectl: error: nodectl: task 0: Aborted{told}\n"
            core = tmp_path / "core"
            assert core.exists() == bool(told)
            core.unlink(missing_ok=True)
            record = service.record(int(done.stdout))
            assert record["reason"] == f"task 0 was ended by signal 6{' and dumped core' if told else ''}"
            assert ("core dumped" in service.nodectl("show", str(record["job"]))) == bool(told)
    finally:
        pattern.write_text(before)


def test_memory_bomb_is_contained_told_and_cleaned_up() -> None:
    bomb = "import os\nfor _ in range(8): os.fork()\nx = bytearray(b'x') * (1 << 27)\nwhile True: pass"
    done = service.run("nodectl", "run", "-K", "--mem=100M", "--oom-kill-step", "python3", "-c", bomb, user="alice")
    assert done.returncode == 1
    job = re.search(r"step (\d+)\.0: out of memory: task 0: killed process \d+ \(python3\)", done.stderr)
    assert job is not None, done.stderr
    assert [line.partition("error: ")[2].split(": ", 1)[1][:21] for line in done.stderr.splitlines()] == [
        "out of memory: task 0",
        "task 0: Out Of Memory",
    ]
    record = service.record(int(job[1]))
    assert record["state"] == "OUT_OF_MEMORY"
    assert record["peak_memory"] <= 100 * MIB
    assert service.nodectl("run", "--mem=64M", "echo", "served", user="alice") == "served\n"
    service.assert_clean()


@service.configured("max_processes_per_step = 100", "kill_wait = 1")
def test_fork_bomb_is_contained_told_and_cleaned_up() -> None:
    tell = "import os; print(os.environ['SLURM_JOB_ID'], flush=True)"
    bomb = f"{tell}\nwhile True:\n try: os.fork()\n except OSError: pass"
    client = service.start("-t", "0:10", "python3", "-c", bomb, user="alice")
    assert client.stdout is not None
    job = int(client.stdout.readline())
    assert service.nodectl("run", "echo", "served", user="bob") == "served\n"
    status, _, told = service.finished(client)
    assert status == 143
    assert "DUE TO TIME LIMIT" in told
    assert f"step {job}.0: reached its limit of 100 processes and threads: " in told
    record = service.record(job)
    assert (record["state"], record["reason"]) == ("TIMEOUT", "time limit of 10 s")
    assert record["peak_processes"] == 100
    assert service.nodectl("run", "echo", "served", user="alice") == "served\n"
    service.assert_clean()


@pytest.mark.all
def test_arguments_that_are_larger_than_the_memory_of_a_step_cost_its_runner_nothing() -> None:
    """A task gives them to the kernel while it still shares its step runner's memory."""
    done = service.run(
        "nodectl", "run", "--mem=1M", "-n2", "sh", "-c", "echo $SLURM_JOB_ID", *["x" * 100_000] * 18, user="alice"
    )
    assert "runner died" not in done.stderr
    job = int(done.stdout.split()[0])
    assert service.record(job)["state"] == ("OUT_OF_MEMORY" if done.returncode else "COMPLETED")
    assert service.nodectl("run", "echo", "on", user="alice") == "on\n"


def test_what_is_killed_for_memory_before_its_program_begins_takes_its_step_and_no_other() -> None:
    """A task shares its runner's memory until then, and the kernel kills all who share memory: so no runner is spared
    as long as that lasts.
    """
    other = Sleeper("bob", 3)
    assert _adjustment(other.runner()) == -999, "its task has begun: it is spared"
    fifo = Path("/home/alice/held")
    os.mkfifo(fifo)
    fifo.chmod(0o644)
    client = service.start("--mem=64M", f"--input={fifo}", "true", user="alice")
    wait_until(lambda: service.running_steps("alice"), "there is a step")
    (job,) = service.running_steps("alice")
    group = service.CGROUPS / service.STEPS_GROUP[1:] / f"job_{job}/step_0/user"
    wait_until(lambda: [pid for pid in service.processes(group) if _uid(pid)], "its task is the user's")
    (task,) = service.processes(group)
    runner = int(service.status_of(Path(f"/proc/{task}/status").read_text())["PPid"])
    assert share_memory(task, runner), "the test is about a task that shares it"
    assert _adjustment(runner) == 0
    (group / "memory.max").write_text("0")
    assert service.finished(client)[0] != 0
    service.assert_gone(task, runner)
    assert service.record(job)["state"] in {"NODE_FAIL", "OUT_OF_MEMORY"}
    assert other.let_go() == (3, "ran\n", "")
    assert service.nodectl("run", "echo", "on", user="alice") == "on\n"
    fifo.unlink()


def _uid(pid: int) -> int:
    return int(service.status_of(Path(f"/proc/{pid}/status").read_text())["Uid"].split()[0])


def _adjustment(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())
