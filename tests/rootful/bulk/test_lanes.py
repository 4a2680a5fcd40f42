"""Commands behind the first ones, which C starts one after the other in the lanes of the slots."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alone import alone
from nodectl.bulk.runner.task import TRACED
from nodectl.kernel import _kernel, operations
from rootful.bulk_client import BulkClient, shell
from rootful.node import FORKS, NOBODY, PATIENCE, Node, wait_until

FIRST = TRACED  # go the way of any task
MANY = 3 * FIRST


def bulk(node: Node, lines: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    return node.nodectl("bulk", "-n2", *words, stdin="".join(f"{line}\n" for line in lines), user=NOBODY)


def cgroups_of_lanes(node: Node) -> int:
    """How many cgroups of slots, or of their commands, the step runner and commands before their programs have open."""
    found = set()
    for pid, name in node.processes():
        with contextlib.suppress(FileNotFoundError):
            found |= {os.readlink(link) for link in Path(f"/proc/{pid}/fd").glob("*") if name.startswith("stepd")}
    return sum("/task_" in link and not link.endswith("cgroup.events") for link in found)


@pytest.mark.skipif(bool(FORKS), reason="where every command is a fork no slot has a lane")
def test_every_slot_gets_a_lane_after_the_first_commands(served: Node) -> None:
    client = BulkClient(served, 2).ready()
    client.run(*(shell(seq, "true") for seq in range(FIRST + 8)), *(shell(seq, "sleep 1000") for seq in (1000, 1001)))
    client.until(lambda: {1000, 1001} <= client.begun.keys(), "both slots have a long one")
    client.run(shell(2000, "true"))
    wait_until(lambda: cgroups_of_lanes(served) == 2, "each has a lane")
    client.call("End")
    client.end()
    wait_until(lambda: cgroups_of_lanes(served) == 0, "both have gone")


def test_commands_of_lanes_are_like_the_first_ones(served: Node) -> None:
    """The same variables, CPUs of the slot, descriptors, directory, mask, cgroup, rights and limits."""
    look = (
        "echo $SLURM_PROCID $PARALLEL_SEQ $NODECTL_BULK_SEQ; echo same $PARALLEL_JOBSLOT $SLURM_LOCALID $(pwd) $(umask)"
        " $(ls /proc/self/fd | wc -l) $(grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp:|Sig(Ign|Blk)|Cpus_allowed:)'"
        " /proc/self/status) $(cat /proc/self/cgroup) $([ $SLURM_TASK_PID = $$ ] && echo task) $(ulimit -a)"
        " $(ps -o pgid= $$ | tr -d ' ' | grep -x $$ | wc -l) $(env | cut -d= -f1 | sort | tr '\\n' ' ')"
    )
    done = bulk(served, [look] * MANY, "-k")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[::2] == [f"{number} {number} {number}" for number in range(1, MANY + 1)]
    looks = lines[1::2]
    assert set(looks[FIRST:]) <= set(looks[:FIRST])
    kinds = Counter(looks).most_common()
    usual = {word for look, _ in kinds[:2] for word in look.split()}
    others = [(set(look.split()) ^ usual, times) for look, times in kinds[2:]]  # pytest would cut the middle of a look
    assert others == []  # one look for each slot


def test_command_that_is_not_under_way_yet_is_in_no_other_commands_process_group(served: Node) -> None:
    """What one command does to its process group, as `kill 0`, is nothing to the others."""
    client = BulkClient(served, 2).ready()
    pipe = served.scratch / f"pipe-{client.job}"
    os.mkfifo(pipe)
    os.chown(pipe, NOBODY.pw_uid, NOBODY.pw_gid)
    client.run(shell(1, "sleep 1000"), {**shell(2, "true"), "stdin": str(pipe)})  # which nothing writes to
    client.until(lambda: {1, 2} <= client.begun.keys(), "both have begun")
    pids = [client.begun[number][-1] for number in (1, 2)]
    assert [os.getpgid(pid) for pid in pids] == pids
    client.call("End")
    client.end()


def test_outputs_do_not_mix_and_keep_their_order(served: Node) -> None:
    """Two of a megabyte on both streams, in the midst of short ones."""
    large = "head -c 1000000 /dev/zero | tr '\\0' %; head -c 500000 /dev/zero | tr '\\0' {0} >&2"
    lines = [f"echo {number}; echo e{number} >&2" for number in range(MANY)]
    lines[FIRST + 10], lines[FIRST + 20] = large.replace("{0}", "x"), large.replace("{0}", "y")
    done = bulk(served, lines, "-k")
    out = [f"{number}\n" for number in range(MANY)]
    err = [f"e{number}\n" for number in range(MANY)]
    out[FIRST + 10] = out[FIRST + 20] = "%" * 1_000_000
    err[FIRST + 10], err[FIRST + 20] = "x" * 500_000, "y" * 500_000
    assert done.returncode == 0
    assert done.stdout == "".join(out)
    assert done.stderr == "".join(err)


def test_ends_of_every_kind_are_told_of_their_own_command(served: Node) -> None:
    script = served.scratch / "script"
    script.write_text("#!/nowhere/interpreter\n")
    script.chmod(0o755)
    lines = ["true"] * MANY
    lines[FIRST + 1] = "exit 7"
    lines[FIRST + 3] = "kill -9 $$"
    lines[FIRST + 5] = str(script)
    lines[FIRST + 7] = "kill -TERM $$"
    lines[FIRST + 9] = "false"
    done = bulk(served, lines, "--joblog", "ends.log")
    assert done.returncode == 5, done.stderr
    assert f"execute '{script}': No such file or directory: its interpreter is missing" in done.stderr
    rows = [line.split("\t") for line in (served.scratch / "ends.log").read_text().splitlines()[1:]]
    assert sorted(int(row[0]) for row in rows) == list(range(1, MANY + 1))
    failed = {int(row[0]) - 1 - FIRST: (int(row[6]), int(row[7])) for row in rows if row[6:8] != ["0", "0"]}
    assert failed == {1: (7, 0), 3: (0, 9), 5: (127, 0), 7: (0, 15), 9: (1, 0)}


def test_what_a_command_leaves_behind_is_killed_before_the_next_one_in_its_slot(served: Node) -> None:
    lines = ["true"] * MANY
    for number in range(FIRST, MANY, 8):
        lines[number] = "setsid sleep 86399 & echo $! >> left-behind"
    lines.append("for pid in $(cat left-behind); do kill -0 $pid && cat /proc/$pid/status; done; true")
    done = served.nodectl("bulk", "-n1", stdin="".join(f"{line}\n" for line in lines), user=NOBODY)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    pids = (served.scratch / "left-behind").read_text().split()
    assert len(pids) == len(range(FIRST, MANY, 8))
    served.assert_clean()


def test_a_time_limit_ends_a_command_of_a_lane(served: Node) -> None:
    lines = ["true"] * FIRST * 2 + ["sleep 86399"] + ["true"] * 9
    done = bulk(served, lines, "--timeout", "1", "--joblog", "late.log")
    assert done.returncode == 1, done.stderr
    assert "timed out: sleep 86399" in done.stderr
    rows = [line.split("\t") for line in (served.scratch / "late.log").read_text().splitlines()[1:]]
    assert len(rows) == len(lines)
    assert [row[6:8] for row in rows if row[8] == "sleep 86399"] == [["-1", "15"]]


@pytest.mark.parametrize("halt", ["now,fail=1", "soon,fail=1"])
def test_halt_begins_no_more_commands(served: Node, halt: str) -> None:
    begun = served.scratch / f"begun-{halt[:3]}"
    lines = [f"echo >> {begun}"] * 2 * FIRST + [f"echo >> {begun}; exit 3"] + [f"echo >> {begun}; sleep 0.05"] * 500
    done = bulk(served, lines, "--halt", halt)
    assert done.returncode == 3, done.stderr
    assert len(begun.read_text().splitlines()) < len(lines)


def test_ctrl_c_reaches_the_commands_of_lanes(served: Node) -> None:
    place = served.scratch / "interrupted"
    place.mkdir()
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    long = "trap 'echo >> caught; exit 9' INT; echo >> here; while :; do sleep 0.05; done"
    (place / "values").write_text("true\n" * 2 * FIRST + f"{long}\n" * 9)
    command = subprocess.Popen(
        served.command("bulk", "-n2", "-a", "values"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, env=served.environment(), cwd=place, user=NOBODY.pw_uid,
        group=NOBODY.pw_gid, extra_groups=[],
    )  # fmt: skip
    here, caught = place / "here", place / "caught"
    wait_until(lambda: here.exists() and len(here.read_text()) == 2, "both slots have a long one")
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=PATIENCE)
    assert command.returncode == 130, said
    assert (len(here.read_text()), len(caught.read_text())) == (2, 2)


def test_a_closed_standard_input_harms_no_command(served: Node) -> None:
    (served.scratch / "closed").write_text("".join(f"{number}\n" for number in range(MANY)))
    words = served.command("bulk", "-n2", "-k", "-a", "closed", "cat; echo {}")
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 0<&-', "sh", *words], capture_output=True, text=True, env=served.environment(),
        cwd=served.scratch, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, [str(number) for number in range(MANY)]), done.stderr


def test_commands_that_write_to_the_clients_own_output_get_it_in_lanes_too(served: Node) -> None:
    done = bulk(served, [f"echo {number}" for number in range(MANY)], "--ungroup")
    assert sorted(map(int, done.stdout.split())) == list(range(MANY))


def test_lines_of_commands_in_lanes_are_printed_while_these_run(served: Node) -> None:
    gate = served.scratch / "seen"
    os.mkfifo(gate, 0o666)
    lines = ["true"] * 2 * FIRST + [f"echo first; read x < {gate}; echo second"]
    command = subprocess.Popen(
        served.command("bulk", "-n2", "--line-buffer"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=served.environment(), cwd=served.scratch,
    )  # fmt: skip
    assert command.stdin is not None
    assert command.stdout is not None
    command.stdin.write("".join(f"{line}\n" for line in lines))
    command.stdin.close()
    assert command.stdout.readline() == "first\n"
    gate.write_text("\n")
    assert command.stdout.read() == "second\n"
    assert command.wait(PATIENCE) == 0


def test_after_a_kill_of_all_commands_each_of_the_next_ones_has_a_new_cgroup(served: Node) -> None:
    """The kernel also kills what is born in a cgroup that was killed."""
    client = BulkClient(served, 2).ready()
    client.run(*(shell(seq, "true") for seq in range(FIRST + 8)))
    client.until(lambda: len(client.ended) == FIRST + 8, "they have ended")
    long = (1000, 1001)
    client.run(*(shell(seq, "exec sleep 1000") for seq in long))
    client.until(lambda: set(long) <= client.begun.keys(), "both have begun")
    client.call("Signal", signal=int(signal.SIGKILL), forwarded=True)
    client.until(lambda: set(long) <= client.ended.keys(), "they were killed")
    wait_until(lambda: cgroups_of_lanes(served) == 0, "no lane keeps a cgroup that is gone")
    client.run(*(shell(seq, "sleep 1000 & exit 3" if seq == 2010 else "exit 3") for seq in range(2000, 2040)))
    client.call("NoMore")
    record = client.end()
    assert {client.ended[seq]["status"] for seq in range(2000, 2040)} == {3 << 8}
    assert all(("alone" in client.ended[seq]) == (seq != 2010) for seq in range(2000, 2040))
    assert record["bulk"]["commands"] == FIRST + 8 + 2 + 40
    served.assert_clean()


@pytest.fixture
def cgroup(served: Node) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="nodectl-test-", dir=served.mount))
    yield path
    path.rmdir()


def own_lane(cgroup: Path, place: Path) -> tuple[object, memoryview]:
    """A lane whose commands have a cgroup each, and the memory of their progress."""
    progress = memoryview(bytearray(2))
    streams = [
        operations.stream(number, -1, path, shared=False, what="", behind="")
        for number, path in enumerate(("/dev/null", str(place / "own.out"), "/dev/null"))
    ]
    launch = [
        operations.environment({}), *streams, operations.argv(["sh"]), operations.row(1, 0, ""),
        operations.execute(["/bin/sh"], is_path=True, what="", behind=""),
    ]  # fmt: skip
    fd = os.open(cgroup, os.O_RDONLY)
    try:
        return _kernel.lane(launch, (-1, -1, 0, "", progress, 0, 1), fd, "own"), progress
    finally:
        os.close(fd)


def ended(lane: object, command: Any) -> tuple[list[Any], int]:
    """Runs a command to its end. Returns its row, and the error."""
    rows, error, _ = _kernel.run_lanes([(lane, 0)], [command], [], 60.0, 60.0, -1)
    return list(rows[-1]), error


@alone
def test_a_command_has_a_cgroup_of_its_own_where_something_is_counted_in_it(cgroup: Path, served: Node) -> None:
    lane, _progress = own_lane(cgroup, served.scratch)
    before = len(os.listdir("/proc/self/fd"))
    scripts = ["cat /proc/self/cgroup", "sleep 86399 & echo $!", "exit 4"]
    commands = [[operations.environment({}), operations.argv(["sh", "-c", script])] for script in scripts]
    row, error = ended(lane, commands[0])
    assert (error, row[1], row[-1]) == (0, 0, True)
    assert (served.scratch / "own.out").read_text().endswith(f"/{cgroup.name}/own\n")
    assert not (cgroup / "own").exists()
    row, error = ended(lane, commands[1])
    assert (error, row[1], row[-1]) == (0, 0, False)  # a process is left
    os.kill(int((served.scratch / "own.out").read_text()), signal.SIGKILL)
    wait_until(lambda: "populated 0" in (cgroup / "own" / "cgroup.events").read_text(), "it has ended")
    row, error = ended(lane, commands[2])
    assert (error, os.waitstatus_to_exitcode(row[1]), row[-1]) == (0, 4, True)
    assert not (cgroup / "own").exists()
    assert len(os.listdir("/proc/self/fd")) == before
