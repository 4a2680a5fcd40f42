"""--line-buffer as its user sees it: lines of commands that run."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from pathlib import Path

import pytest

from rootful.node import PATIENCE, Node, wait_until

# Each `read` waits until the test has something to say.
SCRIPT = "printf '{} half'; read x < {}1; echo ' and half'; read x < {}2; printf '{} last'; read x < {}3; echo"


def comes_to(path: Path) -> int:
    """The command has written what is before this FIFO; the end by which it is let go."""
    found: list[int] = []

    def is_read() -> bool:
        with contextlib.suppress(OSError):  # nobody reads it yet
            found.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        return bool(found)

    wait_until(is_read, f"{path.name} is read")
    return found[0]


def let_go(fd: int) -> None:
    os.write(fd, b"\n")
    os.close(fd)


def shown(command: subprocess.Popen[bytes], wanted: bytes) -> None:
    """This comes, perhaps behind lines of the file that it is in."""
    while line(command).splitlines()[-1] != wanted:
        pass


def line(command: subprocess.Popen[bytes]) -> bytes:
    """What is shown next."""
    assert command.stdout is not None
    assert select.select([command.stdout], [], [], PATIENCE)[0], "nothing is shown"
    return os.read(command.stdout.fileno(), 1000)


@pytest.mark.parametrize("words", [(), ("--results", "out")])
def test_lines_are_shown_while_commands_run_and_never_in_halves(served: Node, words: tuple[str, ...]) -> None:
    place = served.scratch / f"lines{len(words)}"
    place.mkdir()
    for name in ("a1", "a2", "a3", "b1", "b2", "b3"):
        os.mkfifo(place / name)
    command = subprocess.Popen(
        served.command("bulk", "-n2", "--lb", "--tag", *words, SCRIPT, ":::", "a", "b"), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, env=served.environment(), cwd=place,
    )  # fmt: skip
    try:
        first, second = comes_to(place / "a1"), comes_to(place / "b1")  # both have written a half
        let_go(second)
        assert line(command) == b"b\tb half and half\n"
        second = comes_to(place / "b2")
        let_go(first)
        assert line(command) == b"a\ta half and half\n"
        let_go(second)
        second = comes_to(place / "b3")  # one more half
        let_go(comes_to(place / "a2"))
        let_go(comes_to(place / "a3"))
        assert line(command) == b"a\ta last\n"
        let_go(second)
        rest, _ = command.communicate(timeout=PATIENCE)
        assert (rest, command.returncode) == (b"b\tb last\n", 0)
    finally:
        command.kill()
        command.communicate()


def test_lines_are_shown_of_commands_that_share_a_file(served: Node) -> None:
    """The next one gets its place while one writes there."""
    place = served.scratch / "shared"
    place.mkdir()
    (place / "x").write_text("of an earlier run\n")
    for name in ("a1", "a2", "b1", "b2", "c1", "c2"):
        os.mkfifo(place / name)
    script = "echo {}; read x < {//}1; echo {} goes on; read x < {//}2"
    command = subprocess.Popen(
        served.command("bulk", "-n1", "--lb", "--results", "{/}", script), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env=served.environment(), cwd=place,
    )  # fmt: skip
    assert command.stdin is not None
    before, waits = "", -1
    try:
        for name in "abc":
            command.stdin.write(f"{name}/x\n".encode())
            command.stdin.flush()
            if before:
                let_go(waits)
                waits = comes_to(place / f"{before}2")
                shown(command, f"{before}/x goes on".encode())
                let_go(waits)
            before, waits = name, comes_to(place / f"{name}1")
            shown(command, f"{name}/x".encode())
        let_go(waits)
        let_go(comes_to(place / "c2"))
        rest, _ = command.communicate(timeout=PATIENCE)
        assert (rest, command.returncode) == (b"c/x goes on\n", 0)
        assert (place / "x").read_text() == "c/x\nc/x goes on\n"
    finally:
        command.kill()
        command.communicate()
