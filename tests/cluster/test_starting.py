"""Agents are started on all nodes, kept, and ended, whatever becomes of who started them."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.bed import Allocation, Bed
from cluster.machine import THREE
from cluster.user import who_tells
from rootful.node import BOOT, NOBODY, PATH, PATIENCE, wait_until

_SECRET_DIGITS = 64


class Stage:
    """A directory in which small agents leave what they saw."""

    def __init__(self, slurm: Bed, job: Allocation, place: Path) -> None:
        self.slurm = slurm
        self.job = job
        self.place = place

    def start(self, *hosts: str, seconds: int = 30, **how: Any) -> dict[str, Any]:
        words = [sys.executable, "-I", self.slurm.starting, PATH[0], str(self.place), str(seconds), *hosts]
        done = self.job.run(*words, **how)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def nodectl(self, *words: str, **how: Any) -> Any:
        return self.job.run(sys.executable, "-IS", "-c", BOOT.format(path=PATH), "cluster", *words, **how)

    def there(self, **how: Any) -> list[str]:
        told = self.nodectl("status", "--json", **how)
        assert told.returncode == 0, told.stderr
        return [node["name"] for node in json.loads(told.stdout)["nodes"] if node["state"] == "IDLE"]

    def seen(self, what: str) -> list[str]:
        return sorted(path.name.partition(".")[2] for path in self.place.glob(f"{what}.*"))

    def has(self, what: str) -> None:
        (self.place / what).touch()

    def agents(self) -> list[int]:
        return [pid for pid, words in self.slurm.processes(NOBODY).items() if f"/small_agent.py {self.place}" in words]

    def holder(self) -> int:
        (found,) = (pid for pid, words in self.slurm.processes(NOBODY).items() if "starting.py" in words)
        return found


@pytest.fixture
def stage(slurm: Bed, request: pytest.FixtureRequest) -> Any:
    place = slurm.home(NOBODY) / request.node.name[:60]
    place.mkdir()
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    with slurm.salloc() as job:
        yield Stage(slurm, job, place)


def test_each_agent_is_told_the_secret_and_the_leader(stage: Stage) -> None:
    assert stage.start()["missing"] == {}
    told = {(stage.place / f"told.{node}").read_text() for node in THREE}
    (secret, leader), *others = (text.splitlines() for text in told)
    assert (len(secret), leader, others) == (_SECRET_DIGITS, "leader 10.0.0.1:1 [::1]:2", [])


def test_the_secret_is_in_no_argument_and_no_environment(stage: Stage) -> None:
    stage.start()
    secret = (stage.place / "told.n1").read_text().splitlines()[0].encode()
    assert not who_tells(secret, [*stage.slurm.processes(NOBODY), *stage.slurm.daemons()])


def test_nothing_is_left_behind_a_stop(stage: Stage) -> None:
    stage.start()
    assert stage.there() == [*THREE]
    stopped = stage.nodectl("stop")
    assert (stopped.returncode, stage.seen("ended")) == (0, [*THREE]), stopped.stderr
    assert "no cluster runs here" in stage.nodectl("stop").stderr
    assert stage.start()["missing"] == {}


def test_a_cluster_is_stopped_from_any_node(stage: Stage) -> None:
    stage.start()
    stopped = stage.nodectl("stop", machine="n2")
    assert stopped.returncode == 0, stopped.stderr
    wait_until(lambda: not stage.agents(), "the agents have ended")


def test_a_second_one_is_refused(stage: Stage) -> None:
    stage.start()
    assert "runs already" in stage.start()["refused"]


def test_a_node_that_fails_is_told_with_its_reason_and_the_others_end(stage: Stage) -> None:
    stage.has("fail.n2")
    assert stage.start()["missing"] == {"n2": "its disk is full"}
    assert not stage.agents()


def test_a_node_that_does_not_join_is_told(stage: Stage) -> None:
    stage.has("mute.n3")
    seconds = 3
    missing: dict[str, str] = {}
    while set(missing) != {"n3"} and seconds < PATIENCE:  # the others of a busy machine take longer
        missing = stage.start(seconds=seconds)["missing"]
        seconds *= 2
    assert missing == {"n3": f"its agent has not joined within {seconds // 2} s"}
    assert stage.seen("ended") == [*THREE]


def test_who_is_killed_while_it_starts_leaves_nothing(stage: Stage) -> None:
    stage.has("mute.n3")
    words = [sys.executable, "-I", stage.slurm.starting, PATH[0], str(stage.place), "600"]
    start = stage.job.popen(*words)
    wait_until(lambda: len(stage.seen("told")) == len(THREE), "agents are there")
    for pid in sorted(pid for pid, words in stage.slurm.processes(NOBODY).items() if "starting.py" in words)[:1]:
        os.kill(pid, signal.SIGKILL)
    start.communicate()
    wait_until(lambda: stage.seen("ended") == [*THREE], "agents end")


def test_agents_end_with_a_holder_that_is_killed(stage: Stage) -> None:
    stage.start()
    os.kill(stage.holder(), signal.SIGKILL)
    wait_until(lambda: stage.seen("ended") == [*THREE], "agents end")
    wait_until(lambda: stage.start().get("missing") == {}, "another cluster takes its place")


def test_choices_of_the_allocation_are_not_the_agents(stage: Stage) -> None:
    """As `salloc -n1 -c4 --mem-per-cpu=...` leaves them to its programs."""
    environment = {"SLURM_NTASKS": "1", "SLURM_NNODES": "1", "SRUN_CPUS_PER_TASK": "4", "SLURM_LABELIO": "1",
                   "SLURM_STDINMODE": "none", "SLURM_STDOUTMODE": "/dev/null", "SLURM_EXACT": "1"}  # fmt: skip
    assert stage.start(env=environment)["missing"] == {}


def test_outside_of_an_allocation_it_says_what_to_do(stage: Stage) -> None:
    refused = stage.start(env={"SLURM_JOB_ID": "", "SLURM_JOB_NODELIST": ""})["refused"]
    assert refused == "this is not inside an allocation of Slurm -> salloc, sbatch, or name hosts with -w"


def test_hosts_by_ssh(stage: Stage) -> None:
    """By something that takes the same words: srun has no daemon of its own to be reached."""
    ssh = stage.place / "ssh"
    ssh.write_text('#!/bin/sh\nexec srun --overlap -N1 -n1 --quiet -w "$1" sh -c "$2"\n')
    ssh.chmod(0o755)
    started = stage.start("n[1-3]", str(ssh))
    assert started["missing"] == {}
    environment = {"NODECTL_CLUSTER": f"{started['job']}.head"}
    assert stage.there(env=environment) == [*THREE]
    assert stage.nodectl("stop", env=environment).returncode == 0
    assert stage.seen("ended") == [*THREE]


def test_a_host_that_cannot_be_reached_is_told(stage: Stage) -> None:
    ssh = stage.place / "ssh"
    ssh.write_text('#!/bin/sh\n[ $1 != n2 ] || { echo "ssh: host n2: no route" >&2; exit 255; }\nsh -c "$2"\n')
    ssh.chmod(0o755)
    assert stage.start("n[1-3]", str(ssh), seconds=20)["missing"] == {"n2": "ssh: host n2: no route"}
