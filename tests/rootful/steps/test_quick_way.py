"""A step without an interpreter in its command: whoever types it sees the same as with one, and so does its record."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rootful.node import NOBODY, Node, wait_until

SCRIPTS = Path(sysconfig.get_paths()["scripts"])
QUICK = (str(SCRIPTS / "nodectl"),)
_TRIES = 10
PYTHON = (str(SCRIPTS / "python3"), "-IS", str(SCRIPTS / "nodectl-python"))
SAME = (
    "step", "restart", "name", "user", "uid", "gid", "node", "command", "cwd", "ntasks", "secure", "memory", "limits",
    "state", "reason", "exit_status", "unkillable", "victims",
)  # fmt: skip
LINES: dict[str, Sequence[str]] = {
    "nothing to say": ("true",),
    "output": ("sh", "-c", "echo out; echo err >&2; printf '\\377\\n'"),
    "environment": ("env",),
    "surroundings": ("sh", "-c", "pwd; umask; ulimit -S -a; cat; id"),
    "options": ("-n1", "-c", "1", "-J", "some name", "--", "sh", "-c", "echo $SLURM_CPUS_PER_TASK $SLURM_JOB_NAME"),
    "failed": ("sh", "-c", "exit 3"),
    "killed": ("sh", "-c", "kill -9 $$"),
    "no such program": ("/nowhere/at/all",),
    "several tasks": ("-n2", "true"),
    "too many tasks": ("-n", "999999", "true"),
    "too many CPUs": ("-c", "999999", "true"),
    "not an option": ("--nonsense", "true"),
    "no command": (),
    "other options": ("-l", "--mem=64M", "sh", "-c", "echo labelled"),
}


def run(
    way: Sequence[str], node: Node, words: Sequence[str], user: pwd.struct_passwd | None, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """One command, as whoever types it."""
    identity: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    return subprocess.run(
        [*way, "--socket", str(node.socket), "run", *words],
        input=b"typed\n",
        capture_output=True,
        cwd=node.scratch,
        env={**node.environment(), **env},
        timeout=120,
        check=False,
        **identity,
    )


def seen(done: subprocess.CompletedProcess[bytes]) -> tuple[bytes, bytes, int]:
    """What was seen, without the numbers of jobs and processes."""

    def plain(text: bytes) -> bytes:
        text = re.sub(rb"\b(step |job |job_)\d+", rb"\1", text)
        return re.sub(rb"(?m)^(\w*(?:PID|TIME|ADDR|TMPDIR|ID)\w*)=.*", rb"\1=", text)

    return plain(done.stdout), plain(done.stderr), done.returncode


def last_record(node: Node) -> Mapping[str, object] | None:
    """Of the step that ended last, as far as it is the same each time."""
    steps = json.loads(node.nodectl("ps", "--json", "--ended", "1").stdout)["steps"]
    if not steps:
        return None
    record = node.record(max(int(step["job"]) for step in steps))
    return {name: value for name, value in record.items() if name in SAME}


@pytest.mark.parametrize("user", [None, NOBODY], ids=["root", "nobody"])
@pytest.mark.parametrize("line", LINES)
def test_step_is_seen_alike(line: str, user: pwd.struct_passwd | None, node: Node) -> None:
    found = []
    for way in (QUICK, PYTHON):
        done = run(way, node, LINES[line], user)
        found.append((seen(done), last_record(node)))
    assert found[0] == found[1]


def test_step_that_waits_for_its_turn_is_launched(node: Node) -> None:
    node.stop()
    node.configure(select_type="select/cons_tres", over_subscribe="no")
    node.start()
    first = subprocess.Popen([*QUICK, "--socket", str(node.socket), "run", "-c", str(os.cpu_count()), "sleep", "60"])
    try:
        wait_until(lambda: json.loads(node.nodectl("ps", "--json").stdout)["steps"], "the first one runs")
        words = [*QUICK, "--socket", str(node.socket), "run", "echo", "second"]
        second = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: b"PENDING" in node.nodectl("queue").stdout.encode(), "the second one waits")
    finally:
        first.send_signal(signal.SIGTERM)
        first.wait(timeout=60)
    output, errors = second.communicate(timeout=60)
    assert (output, second.returncode) == (b"second\n", 0), errors


def test_step_ends_with_its_command_that_was_killed(node: Node) -> None:
    programs = []
    while "nodectl" not in programs:
        command = subprocess.Popen(
            [*QUICK, "--socket", str(node.socket), "run", "sleep", "100"], env=node.environment()
        )
        wait_until(lambda: json.loads(node.nodectl("ps", "--json").stdout)["steps"], "it runs")
        programs.append(Path(os.readlink(f"/proc/{command.pid}/exe")).name)  # Python's, where a busy node let it wait
        command.kill()
        command.wait()
        wait_until(lambda: not json.loads(node.nodectl("ps", "--json").stdout)["steps"], "it has ended")
        assert len(programs) < _TRIES, f"each command went on in Python: {programs}"


def test_signal_reaches_the_task_of_a_quick_command(node: Node) -> None:
    command = subprocess.Popen(
        [
            *QUICK,
            "--socket",
            str(node.socket),
            "run",
            "sh",
            "-c",
            "trap 'exit 9' USR1; echo up; while :; do sleep 1; done",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout is not None
    assert command.stdout.readline() == b"up\n"
    command.send_signal(signal.SIGUSR1)
    _, errors = command.communicate(timeout=60)
    assert (command.returncode, b"Exited with exit code 9" in errors) == (9, True)


def test_task_has_nothing_of_its_command(node: Node) -> None:
    # SigQ counts the signals that are queued for all processes of the user.
    words = ["sh", "-c", "ls /proc/self/fd; grep -E '^Sig(Pnd|Blk|Ign|Cgt)' /proc/self/status"]
    quick = run(QUICK, node, words, NOBODY)
    python = run(PYTHON, node, words, NOBODY)
    assert quick.stdout == python.stdout


def test_many_at_once_all_end_well(node: Node) -> None:
    words = [*QUICK, "--socket", str(node.socket), "run", "echo"]
    commands = [subprocess.Popen([*words, str(n)], stdout=subprocess.PIPE) for n in range(60)]
    assert [c.communicate(timeout=120)[0] for c in commands] == [b"%d\n" % n for n in range(60)]
    assert {c.returncode for c in commands} == {0}


def test_steps_of_a_batch_job_are_quick_and_its_own(node: Node) -> None:
    output = node.scratch / "output"
    script = f"{QUICK[0]} run -n1 sh -c 'echo $SLURM_JOB_ID.$SLURM_STEP_ID'; " * 2 + "echo over"
    done = node.nodectl("submit", "-n2", "-o", str(output), "--wrap", script, user=NOBODY)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: output.exists() and "over" in output.read_text(), "the script has ended")
    job = output.read_text().partition(".")[0]
    assert output.read_text() == f"{job}.0\n{job}.1\nover\n"
    wait_until(lambda: not json.loads(node.nodectl("queue", "--json").stdout)["jobs"], "the job is over")


def test_step_within_a_step_has_its_cpus(node: Node) -> None:
    words = ["sh", "-c", f"{QUICK[0]} run -n1 sh -c 'echo $SLURM_JOB_ID.$SLURM_STEP_ID'"]
    assert re.fullmatch(rb"\d+\.1\n", run(QUICK, node, words, NOBODY).stdout)
