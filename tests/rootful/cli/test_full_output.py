"""Output that cannot be written: every command says so, in one plain line, and fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nodectl.cli.catalogue import commands
from rootful.node import NOBODY, PATH, Node, running, wait_until

NO_ROOM = "No space left on device"
# What commands print besides their help. Others print nothing, print at a terminal only, or serve until they are ended.
LINES = """
acct
acct --json
bind -n1
bind -n1 --json
completion bash
config
config --explain
doctor
doctor --json
explain 2
metrics
node
node --json
plugins
plugins --hooks
ps
ps -a --json
ps --ended 5
queue
queue --json
report
report --json
reserve list
schema ps
select try select/linear --nodes 4c --generate 5
show 1
show 1 --json
slurm-commands --list
spank list
topo
topo --json
trace 1
trace 1 --json
alloc -n1 echo
bulk echo ::: 1 2 3
""".strip().splitlines()
OF_SLURM = """
sacct
scontrol show node
scontrol show job
scontrol show config
sinfo
sprio
squeue
""".strip().splitlines()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """Job 1 has ended, job 2 waits."""
    with running(trace=True) as started:
        assert started.run("true", user=NOBODY).returncode == 0
        wait_until(lambda: not list(started.steps.iterdir()), "it is in the history")
        held = started.nodectl("submit", "--hold", "-o", "/dev/null", "--wrap=true", user=NOBODY)
        assert held.returncode == 0, held.stderr
        yield started
        assert started.nodectl("cancel", "--me", user=NOBODY).returncode == 0


@pytest.fixture(scope="module")
def slurms(node: Node) -> dict[str, str]:
    """Slurm's commands, by name."""
    directory = node.dir / "bin"
    assert node.nodectl("slurm-commands", str(directory)).returncode == 0
    return {path.name: str(path) for path in directory.iterdir()}


def of_own(node: Node, *words: str) -> list[str]:
    """As the installed command does it, to the last byte."""
    boot = f"import sys; sys.path[:0] = {PATH!r}; from nodectl.cli.main import command; command()"
    return [sys.executable, "-IS", "-c", boot, "--config", str(node.config_path), *words]


def into_full(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    with open("/dev/full", "w", encoding="utf-8") as full:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[], env=node.environment(), cwd=node.scratch,
        )  # fmt: skip


def assert_told(done: subprocess.CompletedProcess[str]) -> None:
    assert "Traceback" not in done.stderr
    assert NO_ROOM in done.stderr
    assert done.stderr.count(NO_ROOM) == 1, done.stderr
    assert done.returncode != 0


@pytest.mark.parametrize("line", [*(f"{name} --help" for name in commands()), "--help", "--version", *LINES])
def test_a_command_whose_output_is_lost_fails_in_one_line(node: Node, line: str) -> None:
    done = into_full(node, *of_own(node, *line.split()))
    assert_told(done)
    if not line.startswith(("bulk ", "alloc ")):  # whose commands have exit statuses of their own
        assert done.returncode == 1


@pytest.mark.parametrize("line", OF_SLURM)
def test_so_does_a_command_by_slurms_name(node: Node, slurms: dict[str, str], line: str) -> None:
    name, *words = line.split()
    done = into_full(node, slurms[name], *words)
    assert_told(done)
    assert done.returncode == 1


def test_so_does_the_help_of_every_command_by_slurms_name(node: Node, slurms: dict[str, str]) -> None:
    assert len(slurms) > 10
    for name, path in sorted(slurms.items()):
        done = into_full(node, path, "--help")
        assert (name, done.returncode) == (name, 1)
        assert_told(done)


@pytest.mark.parametrize("how", [[], ["--parsable"]])
def test_who_submits_learns_the_number_of_a_job_whose_number_could_not_be_written(node: Node, how: list[str]) -> None:
    done = into_full(node, *of_own(node, "submit", "--hold", "-o", "/dev/null", *how, "--wrap=true"))
    assert_told(done)
    assert done.returncode == 1
    queue = json.loads(node.nodectl("queue", "--json").stdout)["jobs"]
    job = max(int(row["job"]) for row in queue)
    assert f"job {job} is queued, but its number could not be written" in done.stderr


def test_a_name_of_slurms_says_it_too(node: Node, slurms: dict[str, str]) -> None:
    done = into_full(node, slurms["sbatch"], "--hold", "-o", "/dev/null", "--wrap=true")
    assert_told(done)
    assert "is queued, but its number could not be written" in done.stderr
