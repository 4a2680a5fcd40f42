"""Bulks in a pipe, on a machine whose CPUs one of them can have: neither holds what the other waits for."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Iterator

import pytest

from rootful.jobs.machine import CPUS, TURNS, said, wrap
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until

ALL = f"-j{CPUS}"
PIPE = 64 << 10
LONG = "x" * 1000


@pytest.fixture(scope="module")
def shared_node() -> Iterator[Node]:
    with running(**TURNS) as node:
        yield node


def bulk(node: Node, *words: str) -> str:
    """The command with all CPUs, as a shell reads it."""
    variables = [f"{name}={value}" for name, value in node.environment().items()]
    return shlex.join(["env", *variables, *node.command("bulk", ALL, "-k", *words)])


def shell(node: Node, script: str) -> subprocess.CompletedProcess[str]:
    """Two of them in a pipe get so long as a test is patient."""
    return subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, check=False, timeout=2 * PATIENCE,
        cwd=node.scratch, user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[],
    )  # fmt: skip


def numbers(count: int) -> str:
    return "".join(f"{number}\n" for number in range(1, count + 1))


def test_three_pass_on_what_they_write(served: Node) -> None:
    done = shell(served, f"seq 3 | {bulk(served, 'echo')} | {bulk(served, 'echo')} | {bulk(served, 'echo')}")
    assert (done.returncode, done.stdout) == (0, numbers(3)), done.stderr


def test_one_writes_more_than_a_pipe_holds_while_the_other_waits_for_its_cpus(served: Node) -> None:
    count = 2 * PIPE // len(LONG)
    done = shell(served, f"seq {count} | {bulk(served, f'echo {LONG}{{}}')} | {bulk(served, 'echo {}')} | sed s/x*//")
    assert (done.returncode, done.stdout) == (0, numbers(count)), done.stderr


def test_one_that_has_begun_gives_its_cpus_back_while_its_writer_waits_for_them(served: Node) -> None:
    script = f"{{ echo 1; {bulk(served, 'echo')} ::: 2; {bulk(served, 'echo')} ::: 3; }} | {bulk(served, 'echo')}"
    done = shell(served, script)
    assert (done.returncode, done.stdout) == (0, numbers(3)), done.stderr


def test_within_a_job_as_well(served: Node) -> None:
    feeder = f"{{ echo 1; {bulk(served, 'echo')} ::: 2 3; }}"
    job = wrap(served, f"{feeder} | {bulk(served, 'echo')}", "-n", str(CPUS), "--error=/dev/null")
    assert said(served, job) == numbers(3)


def test_one_without_input_asks_for_nothing(served: Node) -> None:
    before = served.nodectl("acct", "-n", "-X", "-P").stdout
    done = shell(served, f"{bulk(served, 'echo')} < /dev/null")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert served.nodectl("acct", "-n", "-X", "-P").stdout == before


def test_one_whose_first_line_has_not_come_leaves_the_cpus_to_others(served: Node) -> None:
    with subprocess.Popen(
        served.command("bulk", ALL, "--joblog", "log", "echo"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=served.environment(), cwd=served.scratch,
    ) as command:  # fmt: skip
        try:
            wait_until((served.scratch / "log").exists, "it has got as far as its input")
            assert served.run("--exclusive", "-n1", "echo", "ran").stdout == "ran\n"
            assert command.communicate("a\n", timeout=PATIENCE)[0] == "a\n"
        finally:
            command.kill()
    (served.scratch / "log").unlink()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_signal_that_the_shell_had_it_ignore_ends_one_in_the_background(served: Node, number: signal.Signals) -> None:
    command = bulk(served, "sh -c 'echo > begun; exec sleep 1000'")
    wait = "while ! test -e begun; do sleep 0.05; done"
    done = shell(served, f"{command} ::: 1 & {wait}; kill -{number} $!; wait $!; echo $?; rm begun")
    assert done.stdout == f"{128 + number}\n", done.stderr
    assert not served.call("Queue")["jobs"]
