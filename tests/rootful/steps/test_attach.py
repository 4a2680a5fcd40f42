"""`nodectl attach`: others see a running step's streams, and type at its terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from rootful.at_terminal import END, INTERRUPT, AtTerminal, at_terminal, run_at_terminal
from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_until

BASH = ("--pty", "bash", "--noediting", "--norc", "--noprofile", "-i")
LEAVE = "\x1d" * 3
HOLDS = """
import os, time
from nodectl.spank import *
def slurm_spank_user_init(spank, ac, argv):
    if spank_remote(spank) != 1:
        return 0
    open(PLACE + "/hook", "w").close()
    while not os.path.exists(PLACE + "/hook.go"):
        time.sleep(0.01)
    return int(open(PLACE + "/hook.go").read())
"""
PROLOG = "#!/bin/sh\ntouch {place}/prolog\nwhile [ ! -e {place}/prolog.go ]; do sleep 0.01; done\n"
COUNTS = 'while read -r word; do echo "task $SLURM_PROCID: $word"; echo "no $word" >&2; done < "$0"; sleep 300'


@contextlib.contextmanager
def attached(node: Node, *words: str, user: Any = NOBODY, **how: Any) -> Iterator[AtTerminal]:
    """A viewer at a terminal."""
    command = node.command("attach", *words, str(node.last_job()))
    how |= {"cwd": str(node.scratch), "env": node.environment({"TERM": "xterm"})}
    with at_terminal(command, user=user, **how) as found:
        yield found


@contextlib.contextmanager
def watched(node: Node, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A viewer at a pipe."""
    command = node.command("attach", *words, str(node.last_job()))
    viewer = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=node.environment(),
        user=NOBODY.pw_uid,
    )
    try:
        yield viewer
    finally:
        viewer.kill()
        viewer.communicate()


def lines(viewer: subprocess.Popen[bytes], count: int) -> list[str]:
    assert viewer.stdout is not None
    return [viewer.stdout.readline().decode() for _ in range(count)]


def test_a_person_who_attaches_is_told_how_to_leave(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        client.wait_for(r"\$ ")
        job = shared_node.last_job()
        with attached(shared_node, "--pty") as typing, attached(shared_node) as reading:
            typing.wait_for(
                f"attached to job {job}; Ctrl-] three times leaves, and the step goes on".replace("]", r"\]")
            )
            reading.wait_for(f"attached to job {job}; Ctrl-C leaves, and the step goes on")
        with attached(shared_node, "--pty", "--quiet") as quiet:
            wait_until(quiet.is_raw, "it is attached")
            quiet.type(LEAVE)
            assert quiet.wait_for_end() == 0
            assert "attached to" not in quiet.screen
        client.line("exit")
        assert client.wait_for_end() == 0


def test_who_attaches_to_an_allocation_is_told_how_to_get_a_shell_in_it(shared_node: Node) -> None:
    with at_terminal(
        shared_node.command("alloc", "sleep", "1000"), user=NOBODY, cwd=str(shared_node.scratch),
        env=shared_node.environment({"TERM": "xterm"}),
    ) as client:  # fmt: skip
        job = client.wait_for(r"Granted job allocation (\d+)")[1]
        refused = shared_node.nodectl("attach", job, user=NOBODY)
        assert refused.returncode == 1
        assert f"job {job} is an allocation" in refused.stderr
        assert f"`nodectl run --jobid={job} --pty bash` opens a shell in it" in refused.stderr
        client.type(INTERRUPT)
        client.wait_for_end()


def test_several_type_and_see_and_leave(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        client.wait_for(r"\$ ")
        client.line("echo first-$((1 + 1))")
        client.wait_for("first-2\r\n")
        with attached(shared_node, "--pty") as one, attached(shared_node, "--pty", user=None) as roots:
            for viewer in (one, roots):
                viewer.wait_for("first-2\r\n")
                wait_until(viewer.is_raw, "the viewer's terminal is raw")
            one.line("echo from-one-$((1 + 2))")
            for each in (client, one, roots):
                each.wait_for("from-one-3\r\n")
            roots.line("sh -c 'echo begun; exec sleep 300'")
            roots.wait_for("begun\r\n")  # it has the terminal, and what is typed
            roots.type(INTERRUPT)
            client.wait_for(r"\^C")
            one.type(LEAVE)
            assert one.wait_for_end() == 0
            assert not one.is_raw()
        client.line("exit 4")
        assert client.wait_for_end() == 4
    shared_node.assert_clean()


def test_who_only_looks_types_nothing_and_ends_with_the_step(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        client.wait_for(r"\$ ")
        with attached(shared_node, "--read-only") as viewer:
            viewer.wait_for(r"\$ ")
            viewer.line("touch typed")
            client.line("echo over; exit")
            viewer.wait_for("over\r")
            assert viewer.wait_for_end() == 0
        assert client.wait_for_end() == 0
    assert not (shared_node.scratch / "typed").exists()


def test_the_terminal_has_the_smallest_of_their_sizes(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY, rows=30, columns=100) as client:
        client.wait_for(r"\$ ")
        with attached(shared_node, "--pty", rows=20, columns=120) as viewer:
            viewer.wait_for(r"\$ ")
            wait_until(lambda: asked(client, "stty size", "[0-9]+ [0-9]+") == "20 100", "the viewer's size was told")
            viewer.resize(25, 60)
            wait_until(lambda: asked(client, "stty size", "[0-9]+ [0-9]+") == "25 60", "the size was told")
            viewer.type(LEAVE)
            assert viewer.wait_for_end() == 0
        wait_until(lambda: asked(client, "stty size", "[0-9]+ [0-9]+") == "30 100", "the size is the client's again")
        client.type(END)
        assert client.wait_for_end() == 0


def asked(client: AtTerminal, command: str, answer: str) -> str:
    client.line(command)
    return client.wait_for(rf"({answer})\r\n")[1]


def test_who_hangs_up_or_is_killed_does_no_harm(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        client.wait_for(r"\$ ")
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
            with attached(shared_node, "--pty") as viewer:
                before = viewer.modes()
                viewer.wait_for(r"\$ ")
                wait_until(viewer.is_raw, "its terminal is raw")
                viewer.signal(number)
                assert viewer.wait_for_end() in (-number, 130)
                assert number == signal.SIGKILL or viewer.modes() == before
        client.line("echo alive-$((1 + 1))")
        client.wait_for("alive-2")
        client.type(END)
        assert client.wait_for_end() == 0


def test_attaching_survives_the_daemon(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        client.wait_for(r"\$ ")
        with attached(shared_node, "--pty") as early:
            early.wait_for(r"\$ ")
            shared_node.restart(signal.SIGKILL)
            with attached(shared_node, "--pty") as late:
                late.wait_for(r"\$ ")
                late.line("echo late-$((1 + 1))")
                for each in (client, early, late):
                    each.wait_for("late-2")
        client.type(END)
        assert client.wait_for_end() == 0


def test_another_user_is_refused(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        client.wait_for(r"\$ ")
        done = shared_node.nodectl("attach", str(shared_node.last_job()), user=OTHER)
        assert done.returncode == 1
        assert not done.stdout
        (socket,) = shared_node.steps.glob("*.view")
        with pytest.raises(PermissionError):
            as_user(OTHER.pw_uid, socket)
        client.type(END)
        assert client.wait_for_end() == 0


def as_user(uid: int, path: object) -> None:
    pid = os.fork()
    if pid == 0:
        os.setresuid(uid, uid, uid)
        os._exit(0 if os.access(str(path), os.F_OK | os.W_OK) else 1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise PermissionError(str(path))


def read_until(viewer: subprocess.Popen[bytes], last: bytes) -> None:
    assert viewer.stdout is not None
    while (line := viewer.stdout.readline()).strip() != last:
        assert line, f"it ended before {last!r}"


def test_a_viewer_that_reads_nothing_misses_the_oldest_and_stops_nobody(shared_node: Node) -> None:
    with run_at_terminal(shared_node, "--pty", "sh", "-c", "read go; seq 300000; read go", user=NOBODY) as client:
        wait_until(client.is_raw, "the step has begun")
        with watched(shared_node) as viewer:
            client.line("")
            assert viewer.stdout is not None
            viewer.stdout.read(1)
            viewer.send_signal(signal.SIGSTOP)
            client.wait_for("\n300000\r\n")
            viewer.send_signal(signal.SIGCONT)
            read_until(viewer, b"300000")
            client.line("")
            assert client.wait_for_end() == 0
            _, errors = viewer.communicate(timeout=PATIENCE)
            assert b"bytes that were not read are missing" in errors
    shared_node.assert_clean()


def test_a_client_that_reads_nothing_does_not_stop_a_viewer(shared_node: Node) -> None:
    with run_at_terminal(shared_node, "--pty", "seq", "500000", user=NOBODY) as client:
        client.wait_for("\n1000\r\n")
        client.signal(signal.SIGSTOP)
        with watched(shared_node) as viewer:
            read_until(viewer, b"500000")
        client.signal(signal.SIGCONT)
        assert client.wait_for_end() == 0
        assert "bytes that were not read are missing" in client.screen


@contextlib.contextmanager
def running_step(node: Node, *words: str) -> Iterator[subprocess.Popen[str]]:
    client = node.popen(*words, user=NOBODY)
    try:
        yield client
    finally:
        client.kill()
        client.communicate()


@contextlib.contextmanager
def started(node: Node, *options: str) -> Iterator[None]:
    """A step of two tasks, each of which has written three lines to both streams."""
    (node.scratch / "words").write_text("a\nb\nc\n", encoding="utf-8")
    with running_step(node, "-n2", *options, "sh", "-c", COUNTS, str(node.scratch / "words")) as client:
        assert client.stdout is not None
        for _ in range(6):
            client.stdout.readline()
        yield


@pytest.mark.parametrize("option", ["-l", "-u"])
def test_streams_that_are_copied_can_be_seen(shared_node: Node, option: str) -> None:
    with started(shared_node, option):
        with watched(shared_node, "--label") as viewer:
            found = sorted(lines(viewer, 6))
            assert found == [f"{task}: task {task}: {word}\n" for task in (0, 1) for word in "abc"]
        with watched(shared_node, "--output-filter=1") as viewer:
            assert lines(viewer, 3) == [f"task 1: {word}\n" for word in "abc"]
        if option == "-l":
            with watched(shared_node, "--output-filter=none", "--error-filter=0") as viewer:
                assert viewer.stderr is not None
                assert [viewer.stderr.readline() for _ in range(3)] == [b"no a\n", b"no b\n", b"no c\n"]
    shared_node.assert_clean()


def test_a_pipe_that_nobody_reads_does_not_keep_a_viewer_from_the_last_lines(shared_node: Node) -> None:
    with running_step(shared_node, "-l", "yes") as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "0: y\n"
        for _ in range(2):
            with watched(shared_node) as viewer:
                assert lines(viewer, 100) == ["y\n"] * 100
    shared_node.assert_clean()


@pytest.fixture
def late(node: Node) -> Node:
    """A node whose steps begin with a prolog and a hook of the step runner that wait for a word."""
    prolog = node.dir / "prolog"
    prolog.write_text(PROLOG.format(place=node.scratch), encoding="utf-8")
    prolog.chmod(0o755)
    node.configure(prolog=str(prolog))
    node.plugin("holds", HOLDS.replace("PLACE", repr(str(node.scratch))))
    node.plugstack("required holds\n")
    node.restart()
    return node


def go_on(node: Node, what: str, returns: int = 0) -> None:
    (node.scratch / f"{what}.new").write_text(f"{returns}\n", encoding="utf-8")
    (node.scratch / f"{what}.new").rename(node.scratch / f"{what}.go")


@pytest.mark.parametrize("options", [("-l",), ("-u",), ("--pty",)])
def test_who_attaches_before_the_tasks_begin_sees_all_they_write(late: Node, options: tuple[str, ...]) -> None:
    with run_at_terminal(late, *options, "sh", "-c", "echo begun; read line; echo over", user=NOBODY) as client:
        wait_until((late.scratch / "prolog").exists, "the prolog runs")
        with attached(late) as first:
            first.wait_for("attached to job")
            go_on(late, "prolog")
            wait_until((late.scratch / "hook").exists, "the step runner has not come to the tasks")
            with attached(late) as second:
                second.wait_for("attached to job")
                go_on(late, "hook")
                client.wait_for("begun")
                client.line("")
                for viewer in (first, second):
                    viewer.wait_for("begun")
                    viewer.wait_for("over")
                    assert viewer.wait_for_end() == 0
        assert client.wait_for_end() == 0
    late.assert_clean()


def test_who_attaches_to_a_step_that_never_begins_ends_with_it(late: Node) -> None:
    go_on(late, "prolog")
    with running_step(late, "-l", "true") as client:
        wait_until((late.scratch / "hook").exists, "the step runner has not come to the tasks")
        with attached(late) as viewer:
            viewer.wait_for("attached to job")
            go_on(late, "hook", returns=-1)
            assert viewer.wait_for_end() == 0
        assert client.wait() == 1
    late.assert_clean()


def test_what_cannot_be_seen_is_told_with_what_to_do(shared_node: Node) -> None:
    for options, why in (((), "--pty, -l or -u"), (("-o", "out-%j"), "`nodectl log -f ")):
        with running_step(shared_node, *options, "sleep", "300"):
            wait_until(lambda: list(shared_node.steps.glob("*.sock")), "the step is there")
            done = shared_node.nodectl("attach", str(shared_node.last_job()), user=NOBODY)
            assert done.returncode == 1
            assert why in done.stderr
            layout = shared_node.nodectl("attach", "--layout", str(shared_node.last_job()), user=NOBODY)
            assert "1 tasks, 1 nodes" in layout.stdout
        shared_node.assert_clean()
