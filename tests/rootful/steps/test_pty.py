"""`nodectl run --pty`: the task has a terminal, which is shown at the client's."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from rootful.at_terminal import END, INTERRUPT, QUIT, SUSPEND, AtTerminal, is_in_the_foreground, run_at_terminal
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until

BASH = ("--pty", "bash", "--noediting", "--norc", "--noprofile", "-i")
SLEEPER = "sh -c 'echo begun; exec sleep 300'"


@pytest.fixture(scope="module")
def patient_node() -> Iterator[Node]:
    """A node whose kill_wait is longer than the test waits: what ends there has not been killed."""
    with running(kill_wait=10 * PATIENCE) as found:
        yield found


def test_a_task_has_a_terminal_of_its_own_with_the_size_of_the_clients(shared_node: Node) -> None:
    script = (
        "tty; stty size; ps -o pid=,sid=,pgid=,tpgid= -p $$; stat -Lc '%U %g %a' /dev/stdin; echo $SLURM_PTY_WIN_COL"
    )
    with run_at_terminal(shared_node, "--pty", "sh", "-c", script, user=NOBODY, rows=33, columns=101) as client:
        assert client.wait_for_end() == 0
        tty, size, ids, owner, columns = client.screen.split("\r\n")[:5]
    assert tty.startswith("/dev/pts/")
    assert size == "33 101"
    assert len(set(ids.split())) == 1, "it leads its session and is its foreground"
    assert owner == "nobody 5 620"
    assert columns == "101"
    shared_node.assert_clean()


def test_only_one_task_has_it_and_the_others_have_nothing(shared_node: Node) -> None:
    script = 'echo "$SLURM_PROCID $(readlink /proc/self/fd/0)" >> seen; tty'
    with run_at_terminal(shared_node, "-n3", "--pty=1", "sh", "-c", script, user=NOBODY) as client:
        assert client.wait_for_end() == 1, "tty fails in the others"
        told, terminal, *_ = client.screen.split("\r\n")
        assert told == "nodectl: --pty: task 1 of 3 has the terminal; the others read and show nothing (/dev/null)"
        assert terminal.startswith("/dev/pts/")
        assert "not a tty" not in client.screen
    seen = sorted((shared_node.scratch / "seen").read_text(encoding="utf-8").splitlines())
    assert seen[0] == "0 /dev/null"
    assert seen[1].startswith("1 /dev/pts/")
    assert seen[2] == "2 /dev/null"


@pytest.mark.parametrize("words", [("-n1",), ("-n2", "-Q")])
def test_nothing_is_said_of_other_tasks_where_there_are_none_or_with_quiet(
    shared_node: Node, words: tuple[str, ...]
) -> None:
    with run_at_terminal(shared_node, *words, "--pty", "echo", "shown", user=NOBODY) as client:
        assert client.wait_for_end() == 0
        assert client.screen == "shown\r\n"


def test_the_window_is_told_when_it_changes(shared_node: Node) -> None:
    script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done"
    with run_at_terminal(shared_node, "--pty", "bash", "-c", script, user=NOBODY) as client:
        client.wait_for("ready")
        client.resize(50, 132)
        client.wait_for("50 132")
        assert client.wait_for_end() == 0


def test_keys_reach_the_foreground_as_at_a_login(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        client.wait_for(r"\$ ")
        client.line("cat")
        client.line("word")
        client.wait_for("word\r\nword\r\n")
        client.type(INTERRUPT)
        client.wait_for(r"\^C\r\n\$ ")
        client.line("echo status $?")
        client.wait_for("status 130")
        client.line(SLEEPER)
        client.wait_for("begun\r\n")
        client.type(QUIT)
        client.wait_for("Quit")
        client.line(SLEEPER)
        client.wait_for("begun\r\n")
        client.type(SUSPEND)
        client.wait_for("Stopped")
        client.line("jobs")
        client.wait_for("Stopped.*sleep 300")
        client.line("fg")
        client.wait_for(r"fg\r\n(\$ )?sh -c .*sleep 300")
        # The shell says so before it gives the terminal away.
        wait_until(lambda: is_in_the_foreground(shared_node, "sleep"), "the program has the terminal")
        client.line("typed")
        client.wait_for("typed")
        client.type(INTERRUPT)
        client.wait_for(r"\$ ")
        client.line("exit 7")
        assert client.wait_for_end() == 7
    shared_node.assert_clean()


def test_who_logs_out_ends_the_step(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        client.wait_for(r"\$ ")
        client.type(END)
        assert client.wait_for_end() == 0
        assert "exit" in client.screen


@pytest.mark.parametrize(
    ("shell", "runs", "cancelled"),
    [
        ("bash", "nothing", "the job"),
        ("bash", "nothing", "the step"),
        ("bash", "nothing", "the client"),
        ("bash", "a program", "the job"),
        ("bash", "a stopped program", "the job"),
        ("dash", "nothing", "the job"),
        ("dash", "a program", "the job"),
    ],
)
def test_an_interactive_shell_ends_at_once_when_its_step_is_cancelled(
    patient_node: Node, shell: str, runs: str, cancelled: str
) -> None:
    words = BASH if shell == "bash" else ("--pty", shell, "-i")
    with run_at_terminal(patient_node, *words, user=NOBODY) as client:
        client.wait_for(r"\$ ")
        if runs != "nothing":
            client.line(SLEEPER)
            client.wait_for("begun\r\n")
        if runs == "a stopped program":
            client.type(SUSPEND)
            client.wait_for("Stopped")
        job = str(patient_node.last_job())
        if cancelled == "the client":
            client.signal(signal.SIGTERM)
        else:
            assert patient_node.nodectl("cancel", job if cancelled == "the job" else f"{job}.0").returncode == 0
        assert client.wait_for_end() == 128 + signal.SIGHUP
    patient_node.assert_clean()


def test_a_program_at_a_terminal_that_handles_sigterm_has_kill_wait_when_its_step_is_cancelled(
    patient_node: Node,
) -> None:
    script = "trap 'echo told; read word; echo $word is clean; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with run_at_terminal(patient_node, "--pty", "bash", "-c", script, user=NOBODY) as client:
        client.wait_for("ready")
        assert patient_node.nodectl("cancel", str(patient_node.last_job())).returncode == 0
        client.wait_for("told")
        client.line("all")
        client.wait_for("all is clean")
        assert client.wait_for_end() == 3


def test_the_last_line_is_not_lost(shared_node: Node) -> None:
    with run_at_terminal(shared_node, "--pty", "seq", "100000", user=NOBODY) as client:
        assert client.wait_for_end() == 0
        assert client.screen.splitlines() == [str(number) for number in range(1, 100_001)]


def test_the_last_words_of_a_killed_step_are_shown(shared_node: Node) -> None:
    script = "trap 'printf last; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with run_at_terminal(shared_node, "--pty", "-t1", "bash", "-c", script, user=NOBODY) as client:
        client.wait_for("ready")
        client.signal(signal.SIGTERM)
        assert client.wait_for_end() == 3
        assert "last" in client.screen


def test_a_program_that_closes_the_terminal_before_it_ends_is_not_hung_up(shared_node: Node) -> None:
    script = "exec 0<&- 1>&- 2>&-; sleep 1; echo again > /dev/tty; exec sh -c 'exit 3'"
    with run_at_terminal(shared_node, "--pty", "sh", "-c", script, user=NOBODY) as client:
        client.wait_for("again")
        assert client.wait_for_end() == 3, client.screen


def test_modes_are_the_terminals_own_again_when_it_has_ended(shared_node: Node) -> None:
    for ending in (("true",), ("sh", "-c", "kill -9 $$"), ("/nonexistent",), ("-t", "nonsense", "true")):
        with run_at_terminal(shared_node, "--pty", *ending, user=NOBODY) as client:
            before = client.modes()
            client.wait_for_end()
            assert client.modes() == before, ending


@pytest.mark.parametrize("name", ["TERM", "HUP", "ALRM", "XCPU", "USR1"])
def test_a_signal_to_the_client_leaves_the_terminal_as_it_was(shared_node: Node, name: str) -> None:
    with run_at_terminal(shared_node, "--pty", "sh", "-c", "echo ready; sleep 300", user=NOBODY) as client:
        before = client.modes()
        client.wait_for("ready")
        wait_until(client.is_raw, "the terminal is raw")
        client.signal(signal.Signals[f"SIG{name}"])
        number = signal.Signals[f"SIG{name}"]
        assert client.wait_for_end() in (128 + number, -number)
        assert client.modes() == before
    shared_node.assert_clean()


def test_a_client_that_is_stopped_gives_the_terminal_back_and_goes_on(shared_node: Node) -> None:
    with run_at_terminal(shared_node, "--pty", "cat", user=NOBODY) as client:
        before = client.modes()
        wait_until(client.is_raw, "the terminal is raw")
        client.line("one")
        client.wait_for("one\r\none")
        client.signal(signal.SIGTSTP)
        wait_until(lambda: state_of(client) == "T", "it has stopped")
        assert client.modes() == before
        client.resize(40, 90)
        client.signal(signal.SIGCONT)
        wait_until(client.is_raw, "the terminal is raw again")
        client.line("two")
        client.wait_for("two\r\ntwo")
        client.type(END)
        assert client.wait_for_end() == 0
        assert client.modes() == before


def test_the_terminal_survives_the_daemon(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        client.wait_for(r"\$ ")
        shared_node.stop(signal.SIGKILL)
        client.line("stty size")
        client.wait_for("24 80")
        shared_node.start()
        client.line(SLEEPER)
        client.wait_for("begun\r\n")
        client.type(SUSPEND)
        client.wait_for("Stopped")
        client.line("exit 5")
        client.wait_for("stopped jobs")
        client.line("exit 5")
        assert client.wait_for_end() == 5
    shared_node.assert_clean()


def test_a_killed_client_hangs_up(shared_node: Node) -> None:
    script = "trap 'echo hung up > hangup; exit 0' HUP; trap '' TERM; echo ready; while :; do sleep 0.05; done"
    with run_at_terminal(shared_node, "--pty", "bash", "-c", script, user=NOBODY) as client:
        client.wait_for("ready")
        client.signal(signal.SIGKILL)
    wait_until((shared_node.scratch / "hangup").exists, "the session was told")
    shared_node.assert_clean()


def test_a_client_that_reads_nothing_stops_neither_time_limit_nor_end(shared_node: Node) -> None:
    with run_at_terminal(shared_node, "--pty", "-t0:02", "yes", user=NOBODY) as client:
        client.wait_for("y")
        client.signal(signal.SIGSTOP)
        shared_node.assert_clean()
        client.signal(signal.SIGCONT)
        assert client.wait_for_end() == 143


def test_without_a_terminal_it_works_as_in_a_script(shared_node: Node) -> None:
    done = shared_node.run("--pty", "sh", "-c", "tty; cat; cat", stdin="one\ntwo\n", user=NOBODY)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("/dev/pts/") for line in lines), "typed ahead is echoed ahead"
    assert lines.count("one") == 2, lines
    done = shared_node.run("--pty", "seq", "100000", user=NOBODY)
    assert done.stdout.split() == [str(number) for number in range(1, 100_001)]


def test_a_pipe_that_nobody_reads_hangs_the_terminal_up(shared_node: Node) -> None:
    command = shared_node.popen("--pty", "yes", user=NOBODY)
    assert command.stdout is not None
    assert command.stdout.readline() == "y\n"
    command.stdout.close()
    assert command.wait(PATIENCE) == 128 + signal.SIGHUP
    assert command.stderr is not None
    command.stderr.close()
    shared_node.assert_clean()


def test_what_makes_no_sense_is_refused(shared_node: Node) -> None:
    for words, why in (
        (("-l",), "--label"),
        (("-o", "file"), "--output"),
        (("-i", "none"), "--input"),
        (("-n2", "--pty=2"), "--pty: "),
        (("--pty=x",), "Invalid task"),
    ):
        done = shared_node.run("--pty", *words, "true", user=NOBODY)
        assert done.returncode == 1, (words, done)
        assert why in done.stderr, done.stderr


def state_of(client: AtTerminal) -> str:
    with open(f"/proc/{client.process.pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(") ")[2][0]
