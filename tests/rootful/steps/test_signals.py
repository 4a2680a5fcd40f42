"""Signals, ends and exit statuses, and the state in which a program starts."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, OTHER, PATIENCE, Node, interrupt, running, wait_for_answer, wait_until

FORWARDED = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2")
AT_ONCE = "-X"  # else a first interrupt is answered, and passed on to nobody
OF_RUN = ("from nodectl.cli import run\n", "run.main(settings, words)\n")  # in a traceback: what takes interrupts


def started(node: Node, *words: str, **how: object) -> subprocess.Popen[str]:
    """A client whose tasks say "ready"; returns when all have, and when signals to the client are passed on."""
    client = node.popen(*words, user=NOBODY, **how)
    assert client.stdout is not None
    for _ in range(2 if "-n2" in words else 1):
        assert client.stdout.readline() == "ready\n"
    wait_for_answer(client)
    return client


@pytest.fixture(scope="module")
def patient_node() -> Iterator[Node]:
    """One that waits long between SIGTERM and SIGKILL."""
    with running(kill_wait=10 * PATIENCE) as found:
        yield found


@pytest.mark.parametrize("name", FORWARDED)
def test_a_signal_is_passed_on_and_the_client_ends_as_the_tasks_do(shared_node: Node, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    client = started(shared_node, AT_ONCE, "sh", "-c", "ulimit -c 0; echo ready; exec sleep 300")
    client.send_signal(number)
    _, errors = client.communicate(timeout=PATIENCE)
    assert client.returncode == 128 + number, errors
    assert f"task 0: {signal.strsignal(number)}" in errors
    shared_node.assert_clean()


@pytest.mark.parametrize("name", FORWARDED)
def test_a_task_that_handles_a_signal_decides_itself(shared_node: Node, name: str) -> None:
    script = f"trap 'echo got; exit 5' {name}; echo ready; while :; do sleep 0.05; done"
    client = started(shared_node, AT_ONCE, "sh", "-c", script)
    client.send_signal(signal.Signals[f"SIG{name}"])
    output, _ = client.communicate(timeout=PATIENCE)
    assert (client.returncode, output) == (5, "got\n")


@pytest.mark.parametrize("name", FORWARDED)
def test_no_signal_is_lost_however_early_it_comes(shared_node: Node, tmp_path: Path, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    for delay in (0.0, 0.02, 0.03, 0.035, 0.04, 0.045, 0.05):
        with (tmp_path / "errors").open("wb") as stderr:
            client = shared_node.popen(AT_ONCE, "sleep", "300", user=NOBODY, stderr=stderr)
        time.sleep(delay)
        client.send_signal(number)
        wait_until(lambda client=client: ended_or_spared(client, tmp_path / "errors"), "the signal has ended it")
        errors = (tmp_path / "errors").read_text(encoding="utf-8")
        client.kill()
        client.communicate()
        # An interrupt while Python is still starting, before our own command, ends as Python has it.
        if number == signal.SIGINT and "KeyboardInterrupt" in errors and not any(line in errors for line in OF_RUN):
            continue
        # Before the client has begun to listen the signal is its own.
        assert client.returncode in (128 + number, -number), errors
        assert "Traceback" not in errors
    shared_node.assert_clean()


def ended_or_spared(client: subprocess.Popen[str], errors: Path) -> bool:
    """Python loses an interrupt that comes while a callback of its importer runs, and says so."""
    return client.poll() is not None or "Exception ignored" in errors.read_text(encoding="utf-8")


def test_two_quick_interrupts_end_what_ignores_the_first(shared_node: Node) -> None:
    client = started(shared_node, "-n2", "sh", "-c", "trap '' INT TERM; echo ready; sleep 300; sleep 300")
    said = interrupt(client, "forcing termination of step")
    assert all("interrupt (one more" in line or ": running" in line for line in said[:-1])  # more where two took long
    assert len(said) > 1
    client.communicate(timeout=PATIENCE)
    assert client.returncode == 137
    shared_node.assert_clean()


def test_a_program_that_two_interrupts_end_can_clean_up(shared_node: Node) -> None:
    script = "trap '' INT; trap 'echo cleaned; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    client = started(shared_node, "sh", "-c", script)
    interrupt(client, "forcing termination of step")
    output, _ = client.communicate(timeout=PATIENCE)
    assert (client.returncode, output) == (7, "cleaned\n")
    assert shared_node.record(shared_node.last_job())["state"] == "CANCELLED"
    shared_node.assert_clean()


def test_a_third_interrupt_does_not_wait(patient_node: Node) -> None:
    client = started(patient_node, "sh", "-c", "trap '' INT TERM; echo ready; sleep 300; sleep 300")
    interrupt(client, "killing step")
    client.communicate(timeout=PATIENCE)
    assert client.returncode == 137


def test_a_hangup_that_the_client_ignores_reaches_nobody(shared_node: Node) -> None:
    client = started(
        shared_node,
        "sh",
        "-c",
        "trap 'echo hup' HUP; trap 'echo end; exit 0' USR1; echo ready; while :; do sleep 0.05; done",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    client.send_signal(signal.SIGHUP)
    client.send_signal(signal.SIGUSR1)  # which would come behind it
    output, _ = client.communicate(timeout=PATIENCE)
    assert (client.returncode, output) == (0, "end\n")


@pytest.mark.parametrize(("word", "number"), [("USR1", 10), ("10", 10), ("SIGTERM", 15), ("KILL", 9)])
def test_another_shell_may_signal_the_step(shared_node: Node, word: str, number: int) -> None:
    client = started(shared_node, "-n2", "sh", "-c", "echo ready; exec sleep 300")
    job = shared_node.last_job()
    refused = shared_node.nodectl("signal", "-s", word, f"{job}.0", user=OTHER)
    assert refused.returncode != 0
    sent = shared_node.nodectl("signal", "-s", word, f"{job}.0", user=NOBODY)
    assert sent.returncode == 0, sent.stderr
    _, errors = client.communicate(timeout=PATIENCE)
    assert client.returncode == 128 + number
    if number in (9, 15):
        assert f"*** STEP {job}.0 ON " in errors
        assert "CANCELLED AT " in errors
        assert shared_node.record(job)["state"] == "CANCELLED"


@pytest.mark.parametrize(
    ("words", "status", "ends"),
    [
        (("-n1", "sh", "-c", "exit 3"), 3, ["task 0: Exited with exit code 3"]),
        (("-n1", "sh", "-c", "exit 137"), 137, ["task 0: Exited with exit code 137"]),
        (("-n1", "true"), 0, []),
        (("-n4", "sh", "-c", "exit $SLURM_PROCID"), 3, [f"task {n}: Exited with exit code {n}" for n in (1, 2, 3)]),
        (("-n1", "sh", "-c", "kill -9 $$"), 137, ["task 0: Killed"]),
        (("-n1", "sh", "-c", "ulimit -c 0; kill -SEGV $$"), 139, ["task 0: Segmentation fault"]),
        (
            ("-n3", "sh", "-c", "[ $SLURM_PROCID = 1 ] && kill -9 $$; exit $((SLURM_PROCID*5))"),
            137,
            ["task 1: Killed", "task 2: Exited with exit code 10"],
        ),
        (
            ("-n2", "sh", "-c", "[ $SLURM_PROCID = 0 ] && kill -9 $$; kill -TERM $$"),
            143,
            ["task 0: Killed", "task 1: Terminated"],
        ),
    ],
)
def test_the_exit_status_is_the_tasks_worst(
    shared_node: Node, words: tuple[str, ...], status: int, ends: list[str]
) -> None:
    done = shared_node.run(*words, user=NOBODY)
    assert done.returncode == status
    assert (
        sorted(line.partition(": ")[2].partition(": ")[2].partition(": ")[2] for line in done.stderr.splitlines())
        == ends
    )
    record = shared_node.record(shared_node.last_job())
    assert (record["exit_status"], record["state"]) == (status, "FAILED" if status else "COMPLETED")


@pytest.mark.parametrize(
    ("option", "status", "survivors"), [("-K", 143, 0), ("-K1", 143, 0), ("-K0", 3, 3), (None, 3, 3)]
)
def test_a_failed_task_ends_the_others_only_where_asked(
    shared_node: Node, option: str | None, status: int, survivors: int
) -> None:
    script = f"[ $SLURM_PROCID = 2 ] && exit 3; sleep {1 if survivors else 300}; echo survived"
    done = shared_node.run("-n4", *([option] if option else []), "sh", "-c", script, user=NOBODY)
    assert (done.returncode, done.stdout.count("survived")) == (status, survivors), done.stderr
    assert "task 2: Exited with exit code 3" in done.stderr


def test_the_time_limit_ends_the_step_with_the_line_users_know(shared_node: Node) -> None:
    begun = time.monotonic()
    done = shared_node.run("-n2", "-t", "0:01", "sleep", "300", user=NOBODY)
    assert done.returncode == 143
    assert 0.9 < time.monotonic() - begun < PATIENCE
    job = shared_node.last_job()
    assert f"*** STEP {job}.0 ON " in done.stderr
    assert done.stderr.count("DUE TO TIME LIMIT ***") == 1
    assert shared_node.record(job)["state"] == "TIMEOUT"


def test_a_time_limit_that_is_not_reached_does_nothing(shared_node: Node) -> None:
    assert shared_node.run("-t", "1:00", "true", user=NOBODY).returncode == 0


@pytest.mark.parametrize("program", ["trap '' TERM; sleep 300; sleep 300", "kill -STOP $$; sleep 300"])
def test_what_ignores_the_request_to_end_is_killed_after_kill_wait(shared_node: Node, program: str) -> None:
    begun = time.monotonic()
    done = shared_node.run("-t", "0:05", "sh", "-c", program, user=NOBODY)
    assert done.returncode == (137 if "trap" in program else 143)
    assert time.monotonic() - begun < PATIENCE
    assert shared_node.record(shared_node.last_job())["state"] == "TIMEOUT"
    shared_node.assert_clean()


def test_what_has_survived_a_signal_to_end_is_killed_when_its_client_dies(shared_node: Node) -> None:
    client = started(shared_node, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 300; done")
    job = shared_node.last_job()
    assert shared_node.nodectl("signal", "-s", "TERM", f"{job}.0", user=NOBODY).returncode == 0
    client.kill()
    client.communicate()
    wait_until(lambda: shared_node.record(job)["state"] == "CANCELLED", "the step has ended")
    shared_node.assert_clean()


def test_what_has_survived_a_signal_to_end_is_killed_at_its_time_limit(shared_node: Node) -> None:
    client = started(shared_node, "-t", "0:10", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 300; done")
    job = shared_node.last_job()
    assert shared_node.nodectl("signal", "-s", "TERM", f"{job}.0", user=NOBODY).returncode == 0
    _, errors = client.communicate(timeout=PATIENCE)
    assert client.returncode == 137, errors
    assert shared_node.record(job)["state"] == "CANCELLED"


def test_children_of_a_task_go_with_it_wherever_they_hide(shared_node: Node) -> None:
    hidden = "setsid sh -c 'trap \"\" TERM INT HUP; sleep 300' >/dev/null 2>&1 & "
    hidden += "(sleep 300 >/dev/null 2>&1 &); echo ready; exec sleep 300"
    client = started(shared_node, "-n2", "sh", "-c", hidden)
    client.send_signal(signal.SIGTERM)
    client.communicate(timeout=PATIENCE)
    assert client.returncode == 143
    shared_node.assert_clean()


# How a program starts.


def test_every_signal_has_its_default_and_none_is_blocked(shared_node: Node) -> None:
    for words in ((), ("-l",), ("-u",), ("-n2",)):
        done = shared_node.run(*words, "grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status", user=NOBODY)
        # But for the C library's own two, 32 and 33, which posix_spawn(3) leaves ignored and no program can use.
        assert {int(line.split()[-1], 16) & ~0x180000000 for line in done.stdout.splitlines()} == {0}


def test_only_the_three_streams_are_open(shared_node: Node) -> None:
    for words in ((), ("-l",), ("-u",), ("-n2",), ("-n2", "-l")):
        done = shared_node.run(*words, "sh", "-c", "ls -m /proc/$$/fd; true", user=NOBODY)
        assert {line.rpartition(": ")[2] for line in done.stdout.splitlines()} == {"0, 1, 2"}, (words, done.stdout)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_the_umask_is_the_clients(shared_node: Node, mask: int) -> None:
    client = shared_node.popen("sh", "-c", "umask", user=NOBODY, umask=mask)
    assert int(client.communicate(timeout=PATIENCE)[0], 8) == mask


def test_soft_limits_are_the_clients_and_hard_ones_the_nodes(shared_node: Node) -> None:
    def limit_itself() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (77, 99))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    client = shared_node.popen(
        "sh",
        "-c",
        "ulimit -Sn; ulimit -Sc; ulimit -Hn",
        user=NOBODY,
        preexec_fn=limit_itself,
    )
    soft, core, found_hard = client.communicate(timeout=PATIENCE)[0].split()
    assert (soft, core, found_hard) == ("77", "0", str(hard))


@pytest.mark.parametrize(
    ("words", "kept"),
    [(["--propagate"], {"files", "core"}), (["--propagate=NONE"], set()), (["--propagate=rlimit_core"], {"core"}),
     (["--propagate=NOFILE,CORE"], {"files", "core"})],
)  # fmt: skip
def test_soft_limits_are_the_clients_as_far_as_it_says(shared_node: Node, words: list[str], kept: set[str]) -> None:
    def limit_itself() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (77, 99))
        resource.setrlimit(resource.RLIMIT_CORE, (12 << 10, 12 << 10))

    client = shared_node.popen(*words, "bash", "-c", "ulimit -Sn; ulimit -Sc", user=NOBODY, preexec_fn=limit_itself)
    found = client.communicate(timeout=PATIENCE)[0].split()
    assert {name for name, text, own in zip(("files", "core"), found, ("77", "12"), strict=True) if text == own} == kept


def test_a_limit_that_there_is_not_is_told(shared_node: Node) -> None:
    done = shared_node.run("--propagate=NOPE", "true", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("nodectl: error: --propagate: no limit 'NOPE', there are ALL, NONE, CPU")


def test_the_directory_is_the_clients_by_the_users_name_for_it(shared_node: Node) -> None:
    real = shared_node.scratch / "real"
    real.mkdir()
    link = shared_node.scratch / "link"
    link.symlink_to(real)
    done = shared_node.run("sh", "-c", "pwd; pwd -P", cwd=str(link), env={"PWD": str(link)}, user=NOBODY)
    assert done.stdout.split() == [str(link), str(real)]
    done = shared_node.run("-D", "..", "pwd", "-P", cwd=str(real), user=NOBODY)
    assert done.stdout == f"{shared_node.scratch}\n"
    (real / "below").mkdir()
    (shared_node.scratch / "down").symlink_to(real / "below")
    down = str(shared_node.scratch / "down")
    done = shared_node.run("-D", "..", "pwd", "-P", cwd=down, env={"PWD": down}, user=NOBODY)
    assert done.stdout == f"{real}\n"  # the kernel's way up, as cd -P


@pytest.mark.parametrize("words", [(), ("-v",)])  # the quick way, and Python's
def test_the_directory_is_the_clients_where_pwd_is_another_users(shared_node: Node, words: tuple[str, ...]) -> None:
    private = shared_node.scratch / f"private{len(words)}"
    private.mkdir(mode=0o700)
    inner = private / "inner"
    inner.mkdir()
    done = shared_node.run(*words, "pwd", cwd="/usr", env={"PWD": str(inner)}, user=NOBODY)
    assert done.stdout == "/usr\n", done.stderr


def test_niceness_identity_and_session_are_the_nodes(shared_node: Node) -> None:
    client = shared_node.popen(
        "sh", "-c", "nice; id -u; id -G; cat /proc/self/oom_score_adj", user=NOBODY, preexec_fn=lambda: os.nice(5)
    )
    said = client.communicate(timeout=PATIENCE)[0].split()
    assert said == [str(os.nice(0)), str(NOBODY.pw_uid), str(NOBODY.pw_gid), "0"]  # the node's niceness is the test's


def test_no_task_has_privileges(shared_node: Node) -> None:
    done = shared_node.run("grep", "^Cap[IPEA]", "/proc/self/status", user=NOBODY)
    assert {line.split()[1] for line in done.stdout.splitlines()} == {"0000000000000000"}
