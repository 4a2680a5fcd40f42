"""SPANK's allocator context: plugins in `nodectl submit` and `nodectl alloc`, and what of it goes with the job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodectl.model.step_number import EXTERN
from rootful.jobs.machine import CPUS, FOREVER, TURNS, Client, cancel_all, queue, runs, typed, wrap
from rootful.node import NOBODY, Node, running

PLUGIN = """
import os
from nodectl.spank import *

plugin_options = []
NAMES = {{S_CTX_LOCAL: "local", S_CTX_ALLOCATOR: "allocator", S_CTX_REMOTE: "remote"}}

def note(*words):
    if spank_context() in NAMES:
        with open({log!r}, "a") as file:
            print(NAMES[spank_context()], *words, file=file)

def colour(val, optarg, remote):
    note("option", optarg, remote)
    return int(optarg == "bad")

spank_options = [SpankOption("static", "", "Is not there in the allocator context.", 0, 0, colour)]

def slurm_spank_init(sp, ac, argv):
    if spank_context() in NAMES:
        spank_option_register(sp, SpankOption("colour", "NAME", "A colour.", 1, 0, colour))
    note("init")
    return 0

def slurm_spank_init_post_opt(sp, ac, argv):
    note("init_post_opt")
    if spank_context() == S_CTX_ALLOCATOR:
        spank_job_control_setenv(sp, "PAINT", "wet", 1)
    return int(os.path.exists({refusal!r}))

def slurm_spank_local_user_init(sp, ac, argv):
    note("local_user_init of job", spank_get_item(sp, S_JOB_ID))
    return 0

def slurm_spank_exit(sp, ac, argv):
    note("exit")
    return 0

def other(name):
    def hook(sp, ac, argv):
        with open({log!r}, "a") as file:
            print("hook", name, spank_get_item(sp, S_JOB_STEPID), file=file)
    return hook

slurm_spank_user_init = other("user_init")
slurm_spank_task_init_privileged = other("task_init_privileged")
slurm_spank_task_post_fork = other("task_post_fork")
slurm_spank_task_init = other("task_init")
slurm_spank_task_exit = other("task_exit")
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Node]:
    with running(**TURNS) as started:
        log = started.scratch / "log"
        log.touch()
        log.chmod(0o666)
        started.plugin("colours", PLUGIN.format(log=str(log), refusal=str(started.scratch / "refuse")))
        started.plugstack("required colours\n")
        prolog = started.dir / "prolog"
        prolog.write_text(f"#!/bin/sh\nenv | grep PAINT >> {log} || true\n", encoding="utf-8")
        prolog.chmod(0o755)
        started.stop()
        started.configure(prolog=str(prolog))
        yield started.start()


@pytest.fixture
def node(shared: Node) -> Iterator[Node]:
    (shared.scratch / "log").write_text("", encoding="utf-8")
    yield shared
    cancel_all(shared)
    shared.assert_clean()


def log(node: Node) -> list[str]:
    """What was noted, of the job's processes after those of the command."""
    return (node.scratch / "log").read_text(encoding="utf-8").splitlines()


COMMAND = ["allocator init", "allocator option red 0", "allocator init_post_opt", "allocator exit"]


def test_submit_calls_init_options_and_exit_and_the_job_has_the_rest(node: Node) -> None:
    done = node.nodectl("submit", "--wait", "--colour=red", "--wrap=true", user=NOBODY)
    assert done.returncode == 0, done.stderr
    noted = log(node)
    assert [line for line in noted if line.startswith("allocator")] == COMMAND
    assert "SPANK_PAINT=wet" in noted
    remote = [line for line in noted if line.startswith("remote")]
    assert remote == ["remote init", "remote option red 1", "remote init_post_opt", "remote exit"]


def test_options_in_a_script_are_told_once_and_before_those_that_were_typed(node: Node) -> None:
    text = "#!/bin/sh\n#SBATCH --colour=green\ntrue\n"
    done = node.nodectl("submit", "--wait", "--colour=red", user=NOBODY, stdin=text)
    assert done.returncode == 0, done.stderr
    options = [line for line in log(node) if line.startswith("allocator option")]
    assert options == ["allocator option green 0", "allocator option red 0"]
    assert "remote option red 1" in log(node)


LOCAL = ["local init", "local option red 0", "local init_post_opt"]
REMOTE = ["remote init", "remote option red 1", "remote init_post_opt", "remote exit"]
NO_OPTION = ["remote init", "remote init_post_opt", "remote exit"]


def noted_by(node: Node, context: str) -> list[str]:
    return [line for line in log(node) if line.startswith(f"{context} ") and "local_user_init" not in line]


def test_a_step_in_an_allocation_has_its_options_and_the_step_that_holds_it_has_none(node: Node) -> None:
    done = node.nodectl("alloc", "--colour=red", "sh", "-c", typed(node, "run", "true"), user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert noted_by(node, "local") == [*LOCAL, "local exit"]
    # The step that holds the allocation begins first and ends last.
    assert noted_by(node, "remote") == [*NO_OPTION[:2], *REMOTE, NO_OPTION[2]]


def test_a_step_in_a_script_has_the_scripts_options_and_then_its_own(node: Node) -> None:
    steps = typed(node, "run", "true"), typed(node, "run", "--colour=blue", "true")
    text = "\n".join(["#!/bin/sh", "#SBATCH --colour=red", *steps, ""])
    done = node.nodectl("submit", "--wait", user=NOBODY, stdin=text)
    assert done.returncode == 0, done.stderr
    own = ["local init", "local option red 0", "local option blue 0", "local init_post_opt", "local exit"]
    assert noted_by(node, "local") == [*LOCAL, "local exit", *own]
    blue = [line.replace("red", "blue") for line in REMOTE]
    assert noted_by(node, "remote") == [*REMOTE[:3], *REMOTE, *blue, REMOTE[3]]


def test_step_that_holds_an_allocation_calls_one_hook_of_a_task_once_however_many_tasks_it_has(node: Node) -> None:
    hold = f"until grep -q 'hook task_post_fork' {node.scratch}/log; do sleep 0.05; done"
    done = node.nodectl("alloc", "-n2", "-O", "sh", "-c", hold, user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert [line for line in log(node) if line.startswith("hook")] == [f"hook task_post_fork {EXTERN}"]


def test_what_prolog_and_epilog_are_told_is_in_the_jobs_environment(node: Node) -> None:
    done = node.nodectl("alloc", "--colour=red", "env", user=NOBODY)
    assert "SLURM_SPANK__SLURM_SPANK_OPTION_colours_colour=red" in done.stdout.splitlines()
    assert "SLURM_SPANK_PAINT=wet" in done.stdout.splitlines()


def test_alloc_calls_them_too(node: Node) -> None:
    done = node.nodectl("alloc", "--colour=red", "true", user=NOBODY)
    assert done.returncode == 0, done.stderr
    noted = log(node)
    assert [line for line in noted if line.startswith("allocator")] == COMMAND
    assert "SPANK_PAINT=wet" in noted


def test_what_a_plugin_refuses_is_not_queued(node: Node) -> None:
    done = node.nodectl("submit", "--colour=bad", "--wrap=true", user=NOBODY)
    assert done.returncode != 0
    assert "Invalid --colour argument: bad" in done.stderr
    (node.scratch / "refuse").touch()
    try:
        for words in (("submit", "--wrap=true"), ("alloc", "true")):
            done = node.nodectl(*words, user=NOBODY)
            assert done.returncode != 0
            assert "plugin colours: slurm_spank_init_post_opt" in done.stderr
    finally:
        (node.scratch / "refuse").unlink()
    assert not queue(node)
    assert log(node).count("allocator exit") == log(node).count("allocator init") == 3


@pytest.mark.parametrize("words", [("submit", "--no-such-option", "--wrap=true"), ("alloc", "--no-such-option"),
                                   ("submit", "/dev/null")], ids=" ".join)  # fmt: skip
def test_plugins_are_told_of_the_end_of_a_command_that_makes_no_job(node: Node, words: tuple[str, ...]) -> None:
    assert node.nodectl(*words, user=NOBODY).returncode != 0
    assert log(node) == ["allocator init", "allocator exit"]


def test_the_table_of_options_does_not_count_there(node: Node) -> None:
    done = node.nodectl("submit", "--static", "--wrap=true", user=NOBODY)
    assert done.returncode != 0
    assert "unrecognized option '--static'" in done.stderr
    shown = node.nodectl("submit", "--help", user=NOBODY).stdout
    assert "--colour=NAME" in shown
    assert "--static" not in shown


@pytest.mark.parametrize("option", ["--hold", "--label"])
def test_who_waits_for_a_turn_has_one_job_for_its_plugins(node: Node, option: str) -> None:
    """local_user_init hears of the job that runs, though it had to wait: by an option, or for a full machine."""
    first = wrap(node, FOREVER, f"-n{CPUS}")
    runs(node, first)
    client = Client(node, "run", option, "sh", "-c", "echo $SLURM_JOB_ID")
    client.until_told("queued and waiting for resources")
    (waiting,) = queue(node, "-t", "PD")
    if option == "--hold":
        assert "local local_user_init" not in "".join(log(node))
    node.nodectl("release", str(waiting["job"]), user=NOBODY)
    node.nodectl("cancel", str(first))
    status, said = client.end()
    assert (status, said.split()[-1]) == (0, str(waiting["job"])), client.told()
    assert f"local local_user_init of job {waiting['job']}" in log(node)
