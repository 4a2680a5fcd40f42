"""`--pty` where tasks are forks, have containers or other trackers, and at tmux."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import need
from rootful.at_terminal import END, SUSPEND, AtTerminal, is_in_the_foreground, run_at_terminal
from rootful.contained import contained
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until
from rootful.relays import relay_of

BASH = ("--pty", "bash", "--noediting", "--norc", "--noprofile", "-i")
SLEEPER = "sh -c 'echo begun; exec sleep 300'"


def has_job_control(client: AtTerminal) -> None:
    """A shell there stops and continues what it runs, by keys."""
    client.wait_for(r"\$ ")
    client.line("tty; stty size")
    client.wait_for("/dev/pts/[0-9]+\r\n24 80")
    client.line(SLEEPER)
    client.wait_for("begun\r\n")
    client.type(SUSPEND)
    client.wait_for("Stopped")
    client.line("kill -9 %1; while jobs %1 > /dev/null 2>&1; do sleep 0.05; done; echo over > /dev/tty")
    client.wait_for("over\r\n")
    client.type(END)
    assert client.wait_for_end() == 0, client.screen


@pytest.mark.parametrize(
    "config",
    [
        {"always_fork": True},
        {"proctrack_type": "proctrack/linuxproc", "task_plugin": ["task/none"]},
        {"secure": "strict"},
    ],
    ids=["forks", "linuxproc", "strict"],
)
def test_a_shell_has_job_control(config: dict[str, object]) -> None:
    with running(**config) as node, run_at_terminal(node, *BASH, user=NOBODY) as client:
        has_job_control(client)


def test_nothing_at_a_terminal_hides_from_a_tracker_of_process_groups() -> None:
    """A terminal's programs lead sessions and groups of their own: the step could not be ended."""
    with running(proctrack_type="proctrack/pgid", task_plugin=["task/none"]) as node:
        done = node.run("--pty", "sh", "-c", "sleep 300 & echo begun", user=NOBODY)
        assert done.returncode == 1
        assert "pty: not with proctrack/pgid" in done.stderr
        assert "begun" not in done.stdout


@pytest.mark.parametrize("namespaces", ["", "pid,ipc", "user,pid"])
def test_a_shell_in_a_container_has_job_control(namespaces: str) -> None:
    options = [f"--container-ns={namespaces}"] if namespaces else []
    with contained() as found, run_at_terminal(found.node, *options, *BASH, user=NOBODY) as client:
        has_job_control(client)


def test_roots_terminal_is_not_given_to_the_user_whose_step_root_runs(shared_node: Node) -> None:
    with run_at_terminal(shared_node, "--pty", f"--uid={NOBODY.pw_name}", "cat") as client:
        wait_until(client.is_raw, "the step has begun")
        client.line("word")
        client.wait_for("word\r\nword")
        theirs = Path(os.ttyname(client.theirs))
        for pid, _ in shared_node.processes():
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                assert Path(os.readlink(fd)) != theirs, f"process {pid} holds root's terminal"
        client.type(END)
        assert client.wait_for_end() == 0, client.screen


def test_a_user_who_kills_what_copies_ends_the_own_step(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        before = client.modes()
        client.wait_for(r"\$ ")
        subprocess.run(["kill", "-9", str(relay_of(shared_node))], check=True, user=NOBODY.pw_uid)
        assert client.wait_for_end() != 0
        assert client.modes() == before
    shared_node.assert_clean()


def test_what_a_dead_stepd_leaves_hangs_up(shared_node: Node) -> None:
    with run_at_terminal(shared_node, *BASH, user=NOBODY) as client:
        before = client.modes()
        client.wait_for(r"\$ ")
        stepd = next(pid for pid, name in shared_node.processes() if name.startswith("stepd"))
        os.kill(stepd, signal.SIGKILL)
        assert client.wait_for_end() != 0
        assert client.modes() == before
    shared_node.assert_clean()


class Tmux:
    """A tmux of the test's own, with one window."""

    def __init__(self, directory: Path, node: Node) -> None:
        self._socket = directory / "tmux"
        self._node = node
        self("-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "30", "env", "PS1=outer$ ", "sh")

    def __call__(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-S", str(self._socket), *words],
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=self._node.environment({"TERM": "xterm"}),
        ).stdout

    def type(self, *keys: str) -> None:
        self("send-keys", *keys)

    def pane(self) -> str:
        return "\n" + self("capture-pane", "-p").rstrip()

    def shows(self, text: str) -> None:
        wait_until(lambda: text in self.pane(), f"tmux shows {text!r}")

    def asks(self, prompt: str) -> None:
        """The shell waits for a command."""
        wait_until(lambda: self.pane().endswith(f"\n{prompt}"), f"tmux ends with {prompt!r}")


@pytest.fixture
def tmux(tmp_path: Path, shared_node: Node) -> Iterator[Tmux]:
    need("tmux")
    found = Tmux(tmp_path, shared_node)
    yield found
    found("kill-server")


def test_tmux_drives_a_shell_and_the_daemon_dies_in_between(shared_node: Node, tmux: Tmux) -> None:
    script = shared_node.scratch / "go"
    words = shared_node.command("run", "--pty", "env", "PS1=inner$ ", "bash", "--norc", "--noprofile", "-i")
    script.write_text("exec " + " ".join(map(quoted, words)) + "\n", encoding="utf-8")
    tmux.shows("outer$")
    tmux.type(f"sh {script}; echo status $?", "Enter")
    tmux.shows("inner$")
    tmux.type("stty size", "Enter")
    tmux.shows("30 90")
    tmux.type(SLEEPER, "Enter")
    tmux.shows("\nbegun")
    tmux.type("C-c")
    tmux.asks("inner$")
    tmux.type("clear; " + SLEEPER, "Enter")
    tmux.asks("begun")
    tmux.type("C-z")
    tmux.shows("Stopped")
    tmux.asks("inner$")
    shared_node.stop(signal.SIGKILL)
    tmux.type("fg", "Enter")
    tmux.asks(SLEEPER)
    # The shell says so before it gives the terminal away.
    wait_until(lambda: is_in_the_foreground(shared_node, "sleep"), "the program has the terminal")
    tmux.type("C-c")
    tmux.asks("inner$")
    tmux("resize-window", "-x", "111", "-y", "44")
    tmux.type("stty size", "Enter")
    tmux.shows("44 111")
    tmux.asks("inner$")
    shared_node.start()
    tmux.type("C-d")
    tmux.shows("status 0")
    tmux.asks("outer$")
    tmux.type("stty -a | head -1", "Enter")
    tmux.shows("rows 44; columns 111")
    shared_node.assert_clean()


def quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
