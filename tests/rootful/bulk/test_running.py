"""How many commands run at a time, on which CPUs, and what ends them: as GNU parallel's options say."""

from __future__ import annotations

import os
import subprocess

import pytest

from nodectl.bulk import joblog
from rootful.node import NOBODY, PATIENCE, Node, running
from rootful.queued import QUEUE

CPUS = "echo {%} $(grep Cpus_allowed_list /proc/self/status) #"


def cpus(text: str) -> set[int]:
    """Of a list as the kernel writes it: 0-2,5."""
    ranges = (part.partition("-") for part in text.split(","))
    return {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)}


def test_a_slot_has_as_many_cpus_as_are_asked_for(served: Node) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    words = ("grep Cpus_allowed_list /proc/self/status #", ":::", "a", "b")
    done = served.nodectl("bulk", "-n1", "-c2", *words, user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert [len(cpus(line.split()[1])) for line in done.stdout.splitlines()] == [2, 2]


def test_slots_have_cpus_of_their_own(served: Node) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    barrier = "echo > begun{}; until [ -e begun1 ] && [ -e begun2 ]; do sleep 0.02; done; "
    done = served.nodectl("bulk", "-n2", "-c1", barrier + CPUS, ":::", *"12345678", user=NOBODY)
    assert done.returncode == 0, done.stderr
    of_slots: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        slot, _, found = line.split()
        of_slots.setdefault(slot, set()).add(found)
    assert of_slots.keys() == {"1", "2"}
    (first,), (second,) = of_slots.values()
    assert (len(cpus(first)), len(cpus(second)), cpus(first) & cpus(second)) == (1, 1, set())


def test_without_a_number_a_slot_is_there_for_each_cpu_of_jobs_also_from_a_login_with_fewer(served: Node) -> None:
    """All commands wait for each other."""
    ours = os.sched_getaffinity(0)
    place = served.scratch / "all"
    place.mkdir()
    place.chmod(0o777)
    script = f"echo > {place}/{{}}; until [ $(ls {place} | wc -l) = {len(ours)} ]; do sleep 0.05; done"
    os.sched_setaffinity(0, {min(ours)})
    try:
        words = ("bulk", "--timeout", str(PATIENCE), script, ":::", *map(str, range(len(ours))))
        done = served.nodectl(*words, user=NOBODY)
    finally:
        os.sched_setaffinity(0, ours)
    assert done.returncode == 0, done.stderr


def test_without_a_number_there_are_no_more_slots_than_the_user_may_have_cpus() -> None:
    with running(**QUEUE, max_cpus_per_user=1) as node:
        done = node.nodectl("bulk", "echo {%}", ":::", *"abcd", user=NOBODY)
        assert (done.returncode, done.stdout.split()) == (0, ["1"] * 4), done.stderr


@pytest.mark.parametrize(("option", "number"), [("-j0", 9), ("-j+3", len(os.sched_getaffinity(0)) + 3)])
def test_more_run_at_a_time_than_there_are_cpus(served: Node, option: str, number: int) -> None:
    """All of them wait for each other."""
    place = served.scratch / f"together{number}{option}"
    place.mkdir()
    place.chmod(0o777)
    script = f"echo > {place}/{{}}; until [ $(ls {place} | wc -l) = {number} ]; do sleep 0.05; done"
    done = served.nodectl(
        "bulk", option, "--timeout", str(PATIENCE), script, ":::", *map(str, range(number)), user=NOBODY
    )
    assert done.returncode == 0, done.stderr


def test_j0_without_an_end_has_the_slots_that_a_step_may_have(served: Node) -> None:
    done = served.nodectl("bulk", "-j0", "echo", stdin="a\nb\n", user=NOBODY)
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["a", "b"]), done.stderr


def test_a_command_that_takes_much_longer_than_the_others_is_ended(served: Node) -> None:
    lines = "sleep 0.2\n" * 3 + "sleep 600\n"
    done = served.nodectl("bulk", "-n1", "--timeout", "500%", "--joblog", "median.log", stdin=lines, user=NOBODY)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines() == [
        "nodectl: error: timed out: sleep 600",
        "nodectl: 4 of 4 commands ended, 1 failed; the first was number 4 (timed out): sleep 600",
    ]
    rows = [line.split("\t") for line in (served.scratch / "median.log").read_text().splitlines()[1:]]
    assert [row[6:8] for row in rows] == [["0", "0"]] * 3 + [["-1", "15"]]
    assert float(rows[3][3]) >= 5 * 0.2


def test_halt_soon_lets_those_that_run_come_to_their_end(served: Node) -> None:
    os.mkfifo(served.scratch / "go", 0o666)
    words = ("--halt", "soon,fail=1", "--joblog", "soon.log", "--tmpdir", str(served.scratch))
    command = subprocess.Popen(
        served.command("bulk", "-n2", *words), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=served.environment(), cwd=served.scratch,
    )  # fmt: skip
    assert command.stdin is not None
    assert command.stderr is not None
    command.stdin.write("read x < go; echo came to its end\nexit 7\necho third\necho fourth\n")
    command.stdin.close()
    assert command.stderr.readline() == "nodectl: halt: 1 failed, the last: exit 7\n"
    go = os.open(served.scratch / "go", os.O_RDWR)
    os.write(go, b"\n")
    command.stdin = None
    out, said = command.communicate(timeout=PATIENCE)
    os.close(go)
    assert (command.returncode, out, said) == (7, "came to its end\n", "")
    known = joblog.read(str(served.scratch / "soon.log"))
    assert [number for number in range(6) if known.has_ended(number)] == [1, 2]
