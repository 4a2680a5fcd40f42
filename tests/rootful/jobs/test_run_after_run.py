"""Runs one right after the other, each of which needs what the last one had: none waits in the queue."""

from __future__ import annotations

from nodectl.client.command import GlobalOptions
from nodectl.client.session import Session
from rootful.jobs.machine import CPUS, Client
from rootful.node import Node

RUNS = 50


class Impatient:
    """A client that launches the next step the moment it knows of the end of the last one."""

    def __init__(self, node: Node) -> None:
        settings = GlobalOptions()
        settings.socket, settings.config = str(node.socket), None
        self.session = Session(settings)

    def step(self, **more: object) -> dict[str, object]:
        """One step, until its end is known: its record."""
        request = {"argv": ["/bin/true"], "environment": {}, "cwd": "/", "stdin": "none", **more}
        _, _, events = self.session.launch(request)
        while True:
            messages, alive = events.read()
            for message in messages:
                event = message["parameters"]["event"]  # type: ignore[index]
                if event["event"] == "end":
                    events.close()
                    record: dict[str, object] = event["record"]
                    return record
            assert alive


def test_a_run_of_the_whole_machine_right_after_another_is_not_queued(queued: Node) -> None:
    client = Impatient(queued)
    assert [client.step(ntasks=CPUS)["state"] for _ in range(RUNS)] == ["COMPLETED"] * RUNS


def test_a_run_of_more_tasks_than_the_machine_has_cpus_right_after_another_is_not_queued(queued: Node) -> None:
    client = Impatient(queued)
    assert [client.step(ntasks=4 * CPUS)["state"] for _ in range(10)] == ["COMPLETED"] * 10


def test_commands_in_a_loop_say_nothing_of_waiting(queued: Node) -> None:
    told = [queued.run(f"-n{CPUS}", "true") for _ in range(10)]
    assert [(done.returncode, done.stderr) for done in told] == [(0, "")] * 10


def test_steps_of_a_job_right_after_each_other_are_not_told_that_it_is_busy(queued: Node) -> None:
    holder = Client(queued, "alloc", f"-n{CPUS}", "sh", "-c", "echo $SLURM_JOB_ID; read x", user=None)
    job = int(holder.line())
    client = Impatient(queued)
    ran = [client.step(ntasks=CPUS, jobid=job) for _ in range(RUNS)]
    assert [(one["job"], one["state"]) for one in ran] == [(job, "COMPLETED")] * RUNS
    assert holder.end("\n")[0] == 0


def test_who_comes_while_another_runs_is_told_at_once_that_it_is_busy(queued: Node) -> None:
    holder = Client(queued, "run", f"-n{CPUS}", "sh", "-c", "echo here; read x", user=None)
    assert holder.line() == "here"
    done = queued.run("--immediate", f"-n{CPUS}", "true")
    assert done.returncode == 1
    assert "Requested nodes are busy" in done.stderr
    assert holder.end("\n" * CPUS)[0] == 0
