"""nodectl alloc: a command in an allocation, which ends with it, and whatever ends first."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import signal
import time

import pytest

from rootful.jobs.machine import CPUS, FOREVER, TURNS, Client, queue, runs, state, typed, wrap
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until

WAIT = "echo $SLURM_JOB_ID; read x; exit 3"


@pytest.fixture
def node(queued: Node) -> Node:
    """Whose jobs take turns."""
    return queued


def held(node: Node, *words: str, command: str = WAIT) -> tuple[Client, int]:
    """An allocation and its number."""
    client = Client(node, "alloc", *words, "sh", "-c", command)
    said = client.line()
    assert said, client.told()
    return client, int(said)


def test_a_command_runs_in_an_allocation_that_ends_with_it(node: Node) -> None:
    client, job = held(node, f"-n{CPUS}", "-J", "mine")
    (found,) = queue(node)
    assert (found["job"], found["state"], found["name"], found["held_by"]) == (job, "RUNNING", "mine", "alloc")
    assert client.end("\n")[0] == 3
    assert client.told().splitlines() == [
        f"nodectl: Granted job allocation {job}",
        f"nodectl: Relinquishing job allocation {job}",
    ]
    wait_until(lambda: not queue(node), "the allocation is over")
    assert node.call("ShowJob", job=str(job))["record"]["state"] == "COMPLETED"  # type: ignore[index]


def test_what_runs_in_there_is_a_step_of_it(node: Node) -> None:
    step = typed(node, "run", "sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID $SLURM_NTASKS")
    done = node.nodectl("alloc", f"-n{CPUS}", "sh", "-c", f"echo $SLURM_JOB_ID; {step}", user=NOBODY)
    assert done.returncode == 0, done.stderr
    job, *steps = done.stdout.splitlines()
    assert steps == [f"{job}.0 {CPUS}"] * CPUS


@pytest.mark.parametrize("command", ["alloc", "run"])
def test_what_runs_in_a_job_finds_the_service_of_the_job(node: Node, command: str) -> None:
    inner = node.command("run", "sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID")
    at = inner.index("--config")
    del inner[at : at + 2]  # as a script has it that knows of no other service than the usual one
    elsewhere = {"NODECTL_SOCKET": "/nowhere"}  # the user's own words are about the service that made the job
    words = ("-n1", "sh", "-c", f"echo $SLURM_JOB_ID; {shlex.join(inner)}")
    done = node.nodectl(command, *words, user=NOBODY, env=elsewhere)
    assert done.returncode == 0, done.stderr
    job, step = done.stdout.splitlines()
    assert step == f"{job}.{0 if command == 'alloc' else 1}"


def test_a_slurm_beside_us_is_not_taken_for_our_job(node: Node) -> None:
    client, job = held(node, "-n1")
    done = node.run("sh", "-c", "echo $SLURM_JOB_ID", user=NOBODY, env={"SLURM_JOB_ID": str(job)})
    assert done.stdout.strip() != str(job)
    foreign = {"SLURM_JOB_ID": "1", "NODECTL_JOB_ID": str(job)}
    assert node.run("sh", "-c", "echo $SLURM_JOB_ID", user=NOBODY, env=foreign).stdout.strip() != str(job)
    client.end("\n")


def test_a_run_that_is_told_another_service_is_no_step_of_the_job_there_of_this_number(node: Node) -> None:
    with running(**TURNS) as other:
        client, job = held(other, "-n1")
        environment = {name: str(job) for name in ("SLURM_JOB_ID", "NODECTL_JOB_ID")}
        environment["NODECTL_SOCKET"] = str(other.socket)
        done = node.run("sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID", user=NOBODY, env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(".0\n"), "a job of its own, whose step 0 it is"
        client.end("\n")


def test_a_run_in_an_allocation_that_is_over_says_so(node: Node) -> None:
    client, job = held(node, "-n1")
    client.end("\n")
    wait_until(lambda: not queue(node), "the allocation is over")
    done = node.run("true", user=NOBODY, env={"SLURM_JOB_ID": str(job), "NODECTL_JOB_ID": str(job)})
    assert done.returncode == 1
    assert f"no job {job} is running; unset NODECTL_JOB_ID to run a job of its own" in done.stderr


def test_steps_wait_for_each_others_cpus(node: Node) -> None:
    client, job = held(node, f"-n{CPUS}")
    environment = {"SLURM_JOB_ID": str(job), "NODECTL_JOB_ID": str(job)}
    first = Client(node, "run", "-n1", "sh", "-c", "echo ready; read x", env=environment)
    assert first.line() == "ready", first.told()
    second = Client(node, "run", "-n1", "echo", "second", env=environment)
    second.until_told(f"job {job} step creation temporarily disabled, retrying (Requested nodes are busy)")
    overlapping = node.run("--overlap", "-n1", "echo", "beside", user=NOBODY, env=environment)
    assert overlapping.stdout == "beside\n", overlapping.stderr
    refused = node.run("--immediate", "-n1", "true", user=NOBODY, env=environment)
    assert refused.returncode == 1
    assert "Requested nodes are busy" in refused.stderr
    assert first.end("\n")[0] == 0
    assert second.end() == (0, "second\n")
    assert second.told().count("temporarily disabled") == 1
    client.end("\n")


def test_an_end_between_a_refusal_and_the_wait_is_not_missed(node: Node) -> None:
    client, job = held(node, "-n1")
    before = node.call("Await", job=job, seen="", step=True)["seen"]  # answers at once
    environment = {"SLURM_JOB_ID": str(job), "NODECTL_JOB_ID": str(job)}
    assert node.run("true", user=NOBODY, env=environment).returncode == 0
    assert node.call("Await", job=job, seen=before, step=True)["seen"] != before
    client.end("\n")


@pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
def test_exact_steps_run_side_by_side_on_cpus_of_their_own(node: Node) -> None:
    client, job = held(node, "-n2")
    environment = {"SLURM_JOB_ID": str(job), "NODECTL_JOB_ID": str(job)}
    words = ("run", "--exact", "-n1", "sh", "-c", "grep Cpus_allowed_list /proc/self/status; read x")
    steps = [Client(node, *words, env=environment) for _ in range(2)]
    cpus = {step.line() for step in steps}
    assert len(cpus) == 2, [step.told() for step in steps]
    listed = [row for row in json.loads(node.nodectl("ps", "--json").stdout)["steps"] if row["job"] == job]
    assert sorted(int(row["cpus"], 16).bit_count() for row in listed) == [1, 1, 2], "what each took, and the job's"
    for step in steps:
        assert step.end("\n")[0] == 0
    client.end("\n")


def test_a_run_within_a_step_does_not_wait_for_its_own_parent(node: Node) -> None:
    inner = typed(node, "run", "sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID")
    done = node.run("sh", "-c", f"echo $SLURM_JOB_ID; {inner}", user=NOBODY)
    assert done.returncode == 0, done.stderr
    job, step = done.stdout.splitlines()
    assert step == f"{job}.1"


def test_who_kills_the_client_ends_the_allocation(node: Node) -> None:
    client, job = held(node, "-n1")
    client.signal(signal.SIGKILL)
    wait_until(lambda: state(node, job) == "", "the allocation is over")
    client.end("\n")


def test_signals_reach_the_command(node: Node) -> None:
    client, _ = held(node, "-n1", command="trap 'exit 9' TERM; echo $SLURM_JOB_ID; while :; do sleep 0.1; done")
    client.signal(signal.SIGTERM)
    assert client.end()[0] == 9


def test_an_allocation_that_is_cancelled_is_revoked(node: Node) -> None:
    client, job = held(node, "-n1", "--kill-command=USR1", command="trap 'exit 9' USR1; echo $SLURM_JOB_ID; "
                       "while :; do sleep 0.1; done")  # fmt: skip
    node.nodectl("cancel", str(job), user=NOBODY)
    assert client.end()[0] == 9
    assert f"job {job} has been revoked" in client.told()


def test_an_allocation_goes_on_while_the_service_restarts(node: Node) -> None:
    client, job = held(node, "-n1")
    node.restart(signal.SIGKILL)
    assert state(node, job) == "RUNNING"
    environment = {"SLURM_JOB_ID": str(job), "NODECTL_JOB_ID": str(job)}
    assert node.run("echo", "step", user=NOBODY, env=environment).stdout == "step\n"
    assert client.end("\n")[0] == 3
    wait_until(lambda: not queue(node), "the allocation is over")


def test_an_allocation_without_a_shell_stays_until_it_is_cancelled(node: Node) -> None:
    done = node.nodectl("alloc", "--no-shell", "-n1", user=NOBODY)
    assert done.returncode == 0, done.stderr
    job = int(done.stderr.split()[-1])
    runs(node, job)
    assert node.run(f"--jobid={job}", "echo", "step", user=NOBODY).stdout == "step\n"
    assert node.nodectl("cancel", str(job), user=NOBODY).returncode == 0
    wait_until(lambda: state(node, job) == "", "it is over")


def test_who_interrupts_a_waiting_alloc_leaves_nothing(node: Node) -> None:
    wrap(node, FOREVER, f"-n{CPUS}")
    client = Client(node, "alloc", "-n1", "true")
    client.until_told("queued and waiting for resources")
    client.signal(signal.SIGINT)
    assert client.end()[0] == 130
    assert [one["state"] for one in queue(node)] == ["RUNNING"]
    done = node.nodectl("alloc", "--immediate", "-n1", "true", user=NOBODY)
    assert done.returncode == 1
    assert "Requested nodes are busy" in done.stderr
    assert len(queue(node)) == 1


def test_a_command_that_is_missing_ends_as_in_a_shell(node: Node) -> None:
    done = node.nodectl("alloc", "/nonexistent", user=NOBODY)
    assert done.returncode == 127
    assert "nodectl: error: /nonexistent: No such file or directory" in done.stderr


def test_no_descriptor_of_ours_reaches_the_command(node: Node) -> None:
    done = node.nodectl("alloc", "sh", "-c", "ls /proc/self/fd", user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= {"0", "1", "2", "3"}  # 3 is ls's own


class Terminal:
    """A user at a terminal in which `nodectl alloc` gives them a shell."""

    def __init__(self, node: Node) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(node.scratch)
            words = node.command("alloc", "-n1")
            os.execve(words[0], words, {**node.environment(), "SHELL": "/bin/sh", "PS1": "at> ", "ENV": ""})
        self.said = ""

    def until(self, word: str) -> None:
        end = time.monotonic() + PATIENCE
        while word not in self.said:
            ready, _, _ = select.select([self._fd], [], [], max(end - time.monotonic(), 0))
            assert ready, self.said
            self.said += os.read(self._fd, 4096).decode()
        self.said = self.said.partition(word)[2]

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def end(self) -> int:
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._fd)
        return status


def test_a_shell_has_the_terminal_and_its_signals(node: Node) -> None:
    terminal = Terminal(node)
    terminal.until("Granted job allocation")
    (found,) = queue(node)
    terminal.type("echo job:$SLURM_JOB_ID\n")
    terminal.until(f"job:{found['job']}")
    terminal.until("at> ")
    terminal.type("cat\n")
    terminal.type("typed\n")
    terminal.until("typed\r\ntyped\r\n")  # the terminal's echo, and cat's
    terminal.type("\x03")
    terminal.until("at> ")  # what is typed before is lost
    terminal.type("echo still $((40 + 2))\n")
    terminal.until("still 42")
    terminal.type("exit 5\n")
    terminal.until("Relinquishing job allocation")
    assert terminal.end() == 5


def test_a_shell_of_an_allocation_that_is_over_hangs_up(node: Node) -> None:
    terminal = Terminal(node)
    terminal.until("Granted job allocation")
    (found,) = queue(node)
    assert node.nodectl("cancel", str(found["job"])).returncode == 0
    terminal.until(f"job {found['job']} has been revoked")
    assert terminal.end() == 128 + signal.SIGHUP
