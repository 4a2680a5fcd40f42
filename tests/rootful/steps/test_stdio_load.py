"""Streams under load: much at once, slow readers, readers that are none. Nothing is lost, split or mixed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, Node

BIG = 10 << 20


@pytest.fixture
def place(shared_node: Node, request: pytest.FixtureRequest) -> Path:
    """A directory where the user may write, of this test's own."""
    path: Path = shared_node.scratch / request.node.name.replace("/", "_")
    path.mkdir()
    path.chmod(0o777)
    return path


def test_a_line_of_megabytes_keeps_every_byte(shared_node: Node) -> None:
    done = shared_node.run("-l", "sh", "-c", f"head -c {BIG} /dev/zero | tr '\\000' x", user=NOBODY)
    lines = done.stdout.splitlines()
    assert all(line.startswith("0: ") for line in lines)
    assert sum(len(line) - 3 for line in lines) == BIG


def test_lines_of_many_tasks_are_not_split_mixed_or_lost(shared_node: Node) -> None:
    ntasks, lines = 32, 5000
    script = f'seq -f "$SLURM_PROCID out %.0f" {lines}; seq -f "$SLURM_PROCID err %.0f" {lines} >&2'
    done = shared_node.run(f"-n{ntasks}", "-l", "sh", "-c", script, user=NOBODY)
    assert done.returncode == 0
    for text, word in ((done.stdout, "out"), (done.stderr, "err")):
        found: dict[str, list[str]] = {}
        for line in text.splitlines():
            label, _, said = line.partition(": ")
            found.setdefault(label.strip(), []).append(said)
        assert found == {
            str(rank): [f"{rank} {word} {number}" for number in range(1, lines + 1)] for rank in range(ntasks)
        }


def test_a_slow_task_gets_all_bytes_of_the_input_and_so_do_the_others(shared_node: Node) -> None:
    data = os.urandom(3 << 20)
    slow = "\n".join(
        [
            "import hashlib, os, time",
            "digest, slow = hashlib.sha256(), os.environ['SLURM_PROCID'] == '1'",
            "while data := os.read(0, 4096 if slow else 1 << 20):",
            "    digest.update(data)",
            "    slow and time.sleep(0.0005)",
            "print(digest.hexdigest())",
        ]
    )
    done = subprocess.run(
        shared_node.command("run", "-n4", "python3", "-c", slow),
        input=data,
        capture_output=True,
        check=False,
        env=shared_node.environment(),
        timeout=PATIENCE,
    )
    assert done.stdout.decode().split() == [hashlib.sha256(data).hexdigest()] * 4, done.stderr


def test_a_writer_waits_for_a_reader_that_does_not_read(shared_node: Node, place: Path) -> None:
    """Nothing is kept for it: what was written is no more than what pipes hold."""
    written = place / "written"
    script = "\n".join(
        [
            "import os",
            "n = 0",
            "while n < 4_000_000:",
            "    n += os.write(1, b'x' * 3999 + b'\\n')",
            f"    open('{written}', 'w').write(str(n))",
        ]
    )
    client = shared_node.popen("-l", "python3", "-c", script, user=NOBODY)
    seen = -1
    while (
        now := written.stat().st_size and int(written.read_text() or 0) if written.exists() else 0
    ) != seen or not now:
        seen = now
        time.sleep(0.5)
    assert seen < 1 << 20
    output, _ = client.communicate(timeout=PATIENCE)
    assert (client.returncode, output) == (0, ("0: " + "x" * 3999 + "\n") * 1000)


def test_large_labelled_outputs_of_several_tasks_lose_nothing(shared_node: Node) -> None:
    done = shared_node.run("-n2", "-l", "seq", "700000", user=NOBODY)  # 5 MB each
    assert done.returncode == 0
    for rank in range(2):
        mine = [line[3:] for line in done.stdout.splitlines() if line.startswith(f"{rank}: ")]
        assert mine == [str(number) for number in range(1, 700_001)]


@pytest.mark.parametrize("words", [(), ("-l",), ("-u",)])
def test_a_slow_reader_gets_everything(shared_node: Node, words: tuple[str, ...]) -> None:
    client = shared_node.popen(*words, "seq", "100000", user=NOBODY)
    time.sleep(0.5)  # the pipe is full now
    output, _ = client.communicate(timeout=PATIENCE)
    assert client.returncode == 0
    assert [line.removeprefix("0: ") for line in output.splitlines()] == [str(number) for number in range(1, 100_001)]


def test_a_client_with_nonblocking_output_loses_nothing(shared_node: Node) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    client = shared_node.popen("-l", "seq", "100000", user=NOBODY, stdout=writer)
    os.close(writer)
    time.sleep(0.3)
    with os.fdopen(reader) as output:
        assert output.read().count("\n") == 100_000
    assert client.wait(PATIENCE) == 0


@pytest.mark.parametrize("words", [(), ("-l",), ("-u",)])
def test_a_reader_that_has_seen_enough_ends_the_writer(shared_node: Node, words: tuple[str, ...]) -> None:
    client = shared_node.popen(*words, "yes", user=NOBODY)
    assert client.stdout is not None
    client.stdout.readline()
    client.stdout.close()
    status = client.wait(PATIENCE)
    assert status in (141, 1)  # SIGPIPE, or yes has been told by write(2): a terminal gives EIO
    shared_node.assert_clean()


@pytest.mark.parametrize("words", [(), ("-l",), ("-u",)])
def test_a_reader_that_does_not_read_cannot_keep_a_step_beyond_its_time(
    shared_node: Node, words: tuple[str, ...]
) -> None:
    client = shared_node.popen(*words, "-t", "0:01", "yes", user=NOBODY)
    assert client.wait(PATIENCE) == 143  # nobody has read a byte
    client.communicate()


def test_a_pipe_that_nobody_opens_cannot_keep_a_step_beyond_its_time(shared_node: Node, place: Path) -> None:
    os.mkfifo(place / "fifo")
    (place / "fifo").chmod(0o666)
    for words in ((), ("-l",)):
        done = shared_node.run(*words, "-t", "0:01", "-o", "fifo", "true", user=NOBODY, cwd=str(place))
        assert done.returncode == 143
