"""The tutorial's commands do what it says, in its order, for a user of a machine that has nodectl."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from vm import service

pytestmark = pytest.mark.all

TUTORIAL = Path("docs/tutorial.md")
PLACE = Path("/tmp/tutorial")
ENDLESS = "nodectl run --cpu-max=50%"  # for a minute


def section(title: str) -> list[str]:
    """The commands of a section of the page."""
    text = TUTORIAL.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^    (nodectl .*?)(?: +# .*)?$", text, re.MULTILINE)


def typed(command: str) -> subprocess.CompletedProcess[str]:
    """A command as alice types it."""
    return service.run("sh", "-c", f"cd {PLACE} && {command}", user="alice")


def told(command: str) -> str:
    done = typed(command)
    assert (done.returncode, done.stderr) == (0, ""), (command, done)
    return done.stdout


@pytest.fixture(autouse=True)
def place() -> Iterator[None]:
    service.run("install", "--directory", "--owner=alice", str(PLACE))
    yield
    service.run("rm", "--recursive", "--force", str(PLACE), "/tmp/mine")


def test_first_steps_are_bound() -> None:
    hostname, listed, bound, explained = section("A first step")
    assert told(hostname) == service.run("hostname").stdout
    assert sorted(line[:2] for line in told(listed).splitlines()) == ["0:", "1:", "2:", "3:"]
    assert typed(bound).stderr.count(" set\n") == 2
    assert "rule: " in told(explained)


def test_a_step_is_confined() -> None:
    memory, endless, written = section("Confine it")
    done = typed(memory)
    assert (done.returncode, "out of memory: task 0: killed process" in done.stderr) == (1, True), done
    assert endless.startswith(ENDLESS)
    done = typed(written)
    assert (done.returncode != 0, Path("/tmp/mine").read_text()) == (True, "mine\n")
    assert not Path("~alice/mine").expanduser().exists()


def test_a_job_waits_and_can_be_looked_back_at() -> None:
    submit, queue, follow, explain, wait, again, cancel = section("Let it wait")
    assert follow.startswith("nodectl log -f ")  # which lasts as long as the job
    # Where the machine is slow, a minute is over before all has been asked.
    number = told(submit.replace("sleep 60", "sleep 600")).split()[-1]
    assert number in told(queue)
    said = typed(explain.replace("JOB", number))
    assert said.returncode == 0 or "runs" in said.stderr, said
    told(cancel.replace("JOB", number))
    service.wait_until(lambda: number not in told(queue), "the job has ended")
    second = told(again.replace("JOB", number)).split()[-1]
    told(cancel.replace("JOB", second))
    assert typed(wait.replace("JOB", second)).returncode != 0
    account, show, trace = section("Look back")
    assert number in told(account)
    step = told("nodectl run sh -c 'echo $SLURM_JOB_ID'").strip()
    assert "COMPLETED" in told(show.replace("JOB", step))
    assert "task_p_pre_setuid" in told(trace.replace("JOB", step))


def test_each_task_is_given_a_device() -> None:
    text = TUTORIAL.read_text(encoding="utf-8").partition("\n## Give it a GPU\n")[2]
    service.write_config(re.findall(r"^    (gres = .*)$", text, re.MULTILINE)[0] + "\n")
    service.systemctl("restart", service.UNIT)
    one, two = section("Give it a GPU")
    assert told(one) == "0\n"
    assert sorted(told(two).splitlines()) == ["0: 0", "1: 1"]
