"""What srun's options want of the command itself: what it says at a Ctrl-C, how long it waits for the last tasks, what
it runs before and behind the step.
"""

from __future__ import annotations

import os
import pwd
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_for_answer

ASLEEP = "echo ready; exec sleep 300"


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def place(shared_node: Node, request: pytest.FixtureRequest) -> Path:
    """A directory where the user may write, of this test's own."""
    path: Path = shared_node.scratch / request.node.name.replace("/", "_")
    path.mkdir()
    path.chmod(0o777)
    return path


def begun(node: Node, *words: str) -> subprocess.Popen[str]:
    client = node.popen(*words, user=NOBODY)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    wait_for_answer(client)
    return client


def test_a_first_interrupt_tells_how_the_tasks_are_and_reaches_none_of_them(shared_node: Node) -> None:
    traps = "trap 'echo hit' INT; trap 'exit 5' USR1"
    text = f"{traps}; [ $SLURM_PROCID = 2 ] && exit; echo ready; while :; do sleep 0.05; done"
    client = shared_node.popen("-n3", "sh", "-c", text, user=NOBODY)
    assert client.stdout is not None
    assert client.stderr is not None
    assert [client.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    wait_for_answer(client)
    said = ""
    while "task 2: exited" not in said:  # its end may not be known yet
        client.send_signal(signal.SIGINT)
        said += client.stderr.readline()
        if "forcing" in said:  # two took less than a second
            client.communicate(timeout=PATIENCE)
            return
        said += client.stderr.readline()
        if "tasks 0-1: running" in said:
            said += client.stderr.readline()
    client.send_signal(signal.SIGUSR1)
    output, errors = client.communicate(timeout=PATIENCE)
    assert (client.returncode, output) == (5, "")
    assert "one more within 1 sec to end step" in said
    assert "tasks 0-1: running" in said
    assert "Exited with exit code 5" in errors


def test_with_quit_on_interrupt_the_first_one_ends_the_step(shared_node: Node) -> None:
    client = begun(shared_node, "--quit-on-interrupt", "sh", "-c", ASLEEP)
    client.send_signal(signal.SIGINT)
    _, errors = client.communicate(timeout=PATIENCE)
    assert client.returncode == 143
    assert "forcing termination of step" in errors
    shared_node.assert_clean()


def test_those_that_outlive_the_first_task_are_ended_after_wait(shared_node: Node) -> None:
    done = shared_node.run("-n3", "-W1", "sh", "-c", "[ $SLURM_PROCID = 1 ] && exit 0; exec sleep 300", user=NOBODY)
    assert done.returncode == 137
    assert "First task exited 1s ago" in done.stderr
    assert "tasks 0,2: running" in done.stderr
    assert "task 1: exited" in done.stderr
    shared_node.assert_clean()


def test_wait_does_not_hold_up_a_step_whose_tasks_have_all_ended(shared_node: Node) -> None:
    done = shared_node.run("-n2", "--wait=600", "true", user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")


def test_tasks_that_end_alike_are_told_of_once_where_the_user_wants_that(shared_node: Node) -> None:
    words = ("-n3", "sh", "-c", "sleep 0.$SLURM_PROCID; exit 3")
    done = shared_node.run(*words, user=NOBODY, env={"SLURM_SRUN_REDUCE_TASK_EXIT_MSG": "1"})
    assert done.returncode == 3
    assert done.stderr.count("Exited with exit code 3") == 1


def test_prolog_and_epilog_are_run_by_the_command_as_its_user(shared_node: Node, place: Path) -> None:
    path = script(place / "both", 'echo "$SLURM_SCRIPT_CONTEXT $(id -un)"')
    done = shared_node.run("--prolog", path, "--epilog", path, "echo", "the step", user=NOBODY)
    assert done.stdout.splitlines() == [f"prolog_srun {NOBODY.pw_name}", "the step", f"epilog_srun {NOBODY.pw_name}"]


def test_a_prolog_that_fails_is_told_and_changes_nothing(shared_node: Node, place: Path) -> None:
    path = script(place / "bad", "exit 3")
    done = shared_node.run("--prolog", path, "--epilog=/nonexistent", "echo", "the step", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "the step\n")
    assert f"--prolog {path!r} ended with status 3" in done.stderr
    assert "--epilog '/nonexistent': No such file or directory" in done.stderr


def test_a_program_is_copied_first_and_the_copy_is_executed(shared_node: Node, place: Path) -> None:
    path = script(place / "original", "echo $0")
    done = shared_node.run(f"--bcast={place}/copy", "--send-libs=no", path, user=NOBODY)
    assert done.stdout == f"{place}/copy\n"
    assert (place / "copy").read_text(encoding="utf-8") == Path(path).read_text(encoding="utf-8")


def planted(*words: str, user: pwd.struct_passwd = NOBODY) -> None:
    """What an attacker has made where the copy is to be."""
    subprocess.run(words, check=True, user=user.pw_uid, group=user.pw_gid, extra_groups=[], umask=0)


def test_roots_copy_goes_through_no_planted_link_and_into_no_strangers_file(shared_node: Node, place: Path) -> None:
    place.chmod(0o1777)
    path = script(place / "original", "echo $0")
    victim = place / "victim"
    victim.write_text("precious", encoding="utf-8")
    planted("ln", "-s", str(victim), str(place / "link"))
    planted("touch", str(place / "file"))
    planted("chmod", "777", str(place / "file"))
    for target in (place / "link", place / "file"):
        done = shared_node.run(f"--bcast={target}", path)
        assert done.stdout == f"{target}\n", done.stderr
        found = target.lstat()
        assert (found.st_uid, found.st_mode) == (0, stat.S_IFREG | 0o755)
    assert victim.read_text(encoding="utf-8") == "precious"


def test_roots_copy_goes_into_no_directory_that_a_stranger_made_or_leads_to(shared_node: Node, place: Path) -> None:
    path = script(place / "original", "echo $0")
    mine = place / "mine"
    mine.mkdir()
    planted("mkdir", str(place / "theirs"))
    planted("ln", "-s", str(mine), str(place / "link"))
    for target in (place / "theirs", place / "theirs/copy", place / "link", place / "link/copy"):
        done = shared_node.run(f"--bcast={target}", path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "in another user's hands" in done.stderr
    assert not [*mine.iterdir(), *(place / "theirs").iterdir()]


def test_a_strangers_link_to_the_program_is_not_executed_as_its_copy(shared_node: Node, place: Path) -> None:
    """Who planted it could lead it to another program by then."""
    place.chmod(0o1777)
    path = script(place / "original", "echo $0")
    planted("ln", "-s", path, str(place / "link"), user=OTHER)
    done = shared_node.run(f"--bcast={place}/link", path, user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"--bcast: {place}/link: Operation not permitted" in done.stderr
    assert sorted(os.listdir(place)) == ["link", "original"]


def test_files_of_output_are_emptied_or_not(shared_node: Node, place: Path) -> None:
    path = place / "out"
    for words, expected in (
        (["--open-mode=append"], "1\n"),
        (["--open-mode=append"], "1\n1\n"),
        (["--open-mode=t"], "1\n"),
        ([], "1\n"),
    ):
        assert shared_node.run(*words, "-o", str(path), "echo", "1", user=NOBODY).returncode == 0
        assert path.read_text(encoding="utf-8") == expected


def test_a_step_keeps_what_its_job_said_of_tasks(shared_node: Node) -> None:
    text = "echo $SLURM_NTASKS $SLURM_NPROCS $SLURM_NNODES $SLURM_STEP_NUM_TASKS"
    of_job = {"SLURM_NTASKS": "7", "SLURM_NPROCS": "7", "SLURM_NNODES": "1"}
    kept = shared_node.run("-n2", "-E", "sh", "-c", text, env=of_job, user=NOBODY)
    assert kept.stdout.splitlines() == ["7 7 1 2"] * 2
    told = shared_node.run("-n2", "sh", "-c", text, env=of_job, user=NOBODY)
    assert told.stdout.splitlines() == ["2 2 1 2"] * 2


def test_only_to_test_runs_nothing(shared_node: Node, place: Path) -> None:
    done = shared_node.run("--test-only", "-n2", "touch", str(place / "made"), user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert "the job would start at " in done.stderr
    assert not (place / "made").exists()


def test_what_was_given_is_told_to_the_tasks(shared_node: Node, place: Path) -> None:
    done = shared_node.run("-A", "physics", "sh", "-c", "echo $SLURM_JOB_ACCOUNT", user=NOBODY)
    assert done.stdout == "physics\n"
    (place / "variables").write_bytes(b"A=one\0B=two words\nand a line\0")
    done = shared_node.run(f"--export-file={place}/variables", "sh", "-c", 'echo "$A $B"; id -un', user=NOBODY)
    assert done.stdout.splitlines() == ["one two words", "and a line", NOBODY.pw_name]


@pytest.mark.parametrize(
    ("word", "said"),
    [("--cpu-bind=help", "map_cpu:LIST"), ("--mem-bind=help", "map_mem:LIST"), ("--gpu-bind=help", "per_task:N"),
     ("--hint=help", "memory_bound"), ("--gres=help", "gpu[:TYPE][:N]")],
)  # fmt: skip
def test_values_of_an_option_are_told(shared_node: Node, word: str, said: str) -> None:
    done = shared_node.run(word, user=NOBODY)
    assert (done.returncode, said in done.stdout) == (0, True)


@pytest.mark.parametrize(
    "words", [("--gpu-bind=none",), ("--gres=craynetwork:0",), ("--gres=none",), ("-m", "pack"), ("-m", "NoPack"),
              ("--exclusive=user",), ("--mpi=none",)]
)  # fmt: skip
def test_what_srun_takes_is_taken(shared_node: Node, words: tuple[str, ...]) -> None:
    done = shared_node.run(*words, "echo", "on", user=NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-m", "x"), "Invalid --distribution specification 'x'"),
        (("--cpu-bind=x",), "unrecognized --cpu-bind argument 'x'"),
        (("--mincpus=99999",), "Requested node configuration is not available"),
        (("--sockets-per-node=99",), "Requested node configuration is not available"),
        (("--cores-per-socket=9999",), "Requested node configuration is not available"),
        (("-x", "nosuch"), "Invalid node name specified: nosuch"),
        (("-w", "nosuch"), "Invalid node name specified: nosuch"),
    ],
)
def test_what_cannot_be_is_answered_without_internals_and_takes_no_job(
    shared_node: Node, words: tuple[str, ...], reason: str
) -> None:
    assert shared_node.run("true", user=NOBODY).returncode == 0
    before = shared_node.last_job()
    done = shared_node.run(*words, "true", user=NOBODY)
    told, _, advice = done.stderr.partition(" -> ")
    assert (done.returncode, told, advice.count("\n")) == (1, f"nodectl: error: {reason}", 1)
    assert shared_node.run("true", user=NOBODY).returncode == 0
    assert shared_node.last_job() == before + 1


def test_a_host_file_says_how_many_tasks_there_are(shared_node: Node, place: Path) -> None:
    name = str(shared_node.call("Hello")["node"])
    (place / "hosts").write_text(f"{name}\n{name}\n", encoding="utf-8")
    done = shared_node.run("echo", "task", user=NOBODY, env={"SLURM_HOSTFILE": f"{place}/hosts"})
    assert (done.stdout, done.stderr) == ("task\n" * 2, "")
    for words in (("-F", f"{place}/hosts"), ("-w", f"{place}/hosts"), ("-x", "/dev/null")):
        assert shared_node.run(*words, "echo", "task", user=NOBODY).stdout == "task\n"


def test_version_usage_and_help_need_no_program_and_no_service(shared_node: Node) -> None:
    assert shared_node.run("-V").stdout.startswith("nodectl ")
    assert shared_node.run("--usage").stdout.startswith("Usage: nodectl run ")
    for word in ("-V", "--usage", "--help"):
        command = [*shared_node.command()[:-2], "--socket=/nonexistent", "run", word]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=shared_node.environment())
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("nodectl " if word == "-V" else "Usage: nodectl run ")


def test_a_variable_chooses_the_exit_status_where_there_is_no_step(shared_node: Node) -> None:
    done = shared_node.run("--mincpus=99999", "true", user=NOBODY, env={"SLURM_EXIT_ERROR": "77"})
    assert done.returncode == 77


def test_whether_the_program_is_there_is_looked_at_first_where_the_user_wants_that(shared_node: Node) -> None:
    job = shared_node.last_job() if shared_node.run("true").returncode == 0 else 0
    done = shared_node.run("nosuchprogram", user=NOBODY, env={"SLURM_TEST_EXEC": ""})
    assert done.returncode == 2
    assert "execute 'nosuchprogram': No such file or directory" in done.stderr
    assert shared_node.last_job() == job
