"""A TAB in real shells, an ordinary user's; and what a shell gets where the service is away, or hangs."""

from __future__ import annotations

import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import need
from rootful.at_terminal import AtTerminal, at_terminal
from rootful.node import NOBODY, Node, running

OPTION = """
from nodectl.spank import SpankOption
spank_options = [SpankOption("swiftly", "LEVEL", "how swiftly", 1, 0, lambda value, text, remote: 0)]
def slurm_spank_init(spank, count, argv):
    print("a plugin prints what is no candidate")
"""
FIRST_COLUMN, RETURN = "\x01", "\r"
PROMPT = r"ready\$ "
ATTEMPTS = 4  # a completion has its own limit of time, which a busy machine may not keep


@pytest.fixture(scope="module")
def busy() -> Iterator[Node]:
    """A node with a job of nobody's that runs, and a plugin with an option; nodectl stands in its directory bin."""
    with running() as node:
        path = node.plugin("swift", OPTION)
        node.plugstack(f"optional {path}\n")
        (node.dir / "bin").mkdir()
        _install(node, node.dir / "bin")
        done = node.nodectl("submit", "--wrap", "sleep infinity", "-J", "long", "-o", "/dev/null", user=NOBODY, cwd="/")
        assert done.returncode == 0, done.stderr
        yield node
        node.nodectl("cancel", "1")


def _install(node: Node, directory: Path) -> None:
    command = directory / "nodectl"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(node.command())} "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    for shell, path in (("bash", "completions/nodectl"), ("zsh", "_nodectl"), ("fish", "nodectl.fish")):
        file = directory / path
        file.parent.mkdir(exist_ok=True)
        made = subprocess.run([str(command), "completion", shell], check=True, capture_output=True, text=True)
        file.write_text(made.stdout, encoding="utf-8")


def _environment(node: Node) -> dict[str, str]:
    home = node.scratch / "home"
    home.mkdir(exist_ok=True)
    home.chmod(0o777)
    directory = str(node.dir / "bin")
    return {
        "PATH": f"{directory}:/usr/bin:/bin", "HOME": str(home), "TERM": "vt100", "PS1": "ready$ ", "LANG": "C.UTF-8",
        "BASH_COMPLETION_USER_DIR": directory,
    }  # fmt: skip


# What is typed before a TAB, and what stands there then.
LINES = {
    "nodectl que": "nodectl queue",
    "nodectl run --cpu-bind=verbose,c": "nodectl run --cpu-bind=verbose,cores",
    "nodectl run --swi": "nodectl run --swiftly=",
    "nodectl run --container-n": "nodectl run --container-ns=",
    "nodectl node dr": "nodectl node drain",
    "nodectl cancel ": "nodectl cancel 1",
    "nodectl signal 1.": "nodectl signal 1.batch",
    "nodectl run -n 2 xarg": "nodectl run -n 2 xargs",
    "nodectl submit --output=/etc/resolv.con": "nodectl submit --output=/etc/resolv.conf",
}


def _completes(shell: AtTerminal) -> None:
    """Each line, with one TAB; then it is printed and not executed."""
    for typed, wanted in LINES.items():
        for _ in range(ATTEMPTS):
            shell.wait_for(PROMPT)
            shell.type(f"{typed}\tX{FIRST_COLUMN}echo GOT {RETURN}")
            shown = shell.wait_for(r"[\r\n]GOT (.*?) ?X\r").group(1)
            if shown == wanted:
                break
        assert shown == wanted


def test_bash_completes(busy: Node) -> None:
    library = Path("/usr/share/bash-completion/bash_completion")
    need(library)
    with at_terminal(
        ["bash", "--norc", "--noprofile", "-i"], user=NOBODY, cwd="/", env=_environment(busy), columns=200
    ) as shell:
        shell.wait_for(PROMPT)
        shell.line(f"source {library}")
        _completes(shell)


def test_zsh_completes(busy: Node) -> None:
    need("zsh")
    with at_terminal(["zsh", "-f", "-i"], user=NOBODY, cwd="/", env=_environment(busy), columns=200) as shell:
        shell.wait_for(PROMPT)
        shell.line(f"fpath=({busy.dir}/bin $fpath); autoload -Uz compinit; compinit -u -D")
        _completes(shell)


def test_fish_completes(busy: Node) -> None:
    need("fish")
    script = f"source {busy.dir}/bin/nodectl.fish; complete -C $argv[1]"
    for typed, wanted in LINES.items():
        for _ in range(ATTEMPTS):
            done = subprocess.run(
                ["fish", "--no-config", "-c", script, typed], user=NOBODY.pw_uid, group=NOBODY.pw_gid, cwd="/",
                env=_environment(busy), capture_output=True, text=True, check=True,
            )  # fmt: skip
            if shown := done.stdout.partition("\n")[0]:
                break
        assert typed.rpartition(" ")[0] + " " + shown.partition("\t")[0] == wanted


def test_a_shell_is_not_kept_waiting_by_a_service_that_hangs(busy: Node) -> None:
    listening = busy.dir / "deaf.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(listening))
        deaf.listen()
        for _ in range(ATTEMPTS):
            done = busy.nodectl("--socket", str(listening), "__complete", "zsh", "run", "--lab")
            if done.stdout:
                break
    assert done.stdout == "words\n--lab\n--label\tbegin each line with its task's number\n"


def test_no_private_node_is_started_for_a_shell(busy: Node) -> None:
    run = busy.dir / "absent"
    done = busy.nodectl("--socket", str(run / "sock"), "__complete", "zsh", "show", "")
    assert (done.stdout, done.stderr, run.exists()) == ("words\n\n", "", False)


def test_a_name_that_a_user_chose_does_nothing_to_roots_terminal(busy: Node) -> None:
    name = "\x1b[2J$(touch /root/x)"
    done = busy.nodectl("submit", "--wrap", "true", "--hold", "-J", name, "-o", "/dev/null", user=NOBODY, cwd="/")
    assert done.returncode == 0, done.stderr
    job = done.stdout.split()[-1]
    shown = busy.nodectl("__complete", "zsh", "cancel", job).stdout
    assert busy.nodectl("cancel", job).returncode == 0
    assert f"\n{job}\t" in shown
    assert "\x1b" not in shown
