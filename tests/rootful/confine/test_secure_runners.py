"""The runner of several tasks is confined as they are, and they are born so. Root's hooks keep what they have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodectl.kernel import _kernel
from rootful.confined import EPERM, errors_of, program, read_status, status
from rootful.node import NOBODY, Node, running
from rootful.stage import staged

MANY = 33  # tasks: too many for a runner that goes on to other steps
KEPT_BY_ROOT = 0xA184C5FB  # what nodectl/launch/confine/confinement.py says
CONFINED = ("1", "2")
FREE = ("0", "0")
DENIED = ("keyctl", "add_key", "userfaultfd", "quotactl")
LOOK = """#!/bin/sh
cat /proc/$PPID/status > {scratch}/runner.$SLURM_PROCID
cat /proc/self/status > {scratch}/task.$SLURM_PROCID
"""
NOTE = """
with open({path!r}, "w") as file:
    file.write(open("/proc/self/status").read())
"""


@pytest.fixture(params=[False, True], ids=["shares memory", "forks"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    with running(always_fork=request.param) as started:
        yield started
        started.assert_clean()
        assert "Traceback" not in started.logged()


def facts(found: Mapping[str, str]) -> tuple[str, str]:
    return found["NoNewPrivs"], found["Seccomp"]


def bound(found: Mapping[str, str]) -> int:
    return int(found["CapBnd"], 16)


def looked(node: Node, of: str) -> list[dict[str, str]]:
    found = [read_status(path.read_text(encoding="utf-8")) for path in sorted(node.scratch.glob(f"{of}.*"))]
    for path in node.scratch.glob(f"{of}.*"):
        path.unlink()
    return found


def looker(node: Node) -> str:
    path = node.scratch / "look"
    path.write_text(LOOK.format(scratch=node.scratch), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def own() -> Mapping[str, str]:
    return read_status(Path("/proc/self/status").read_text(encoding="utf-8"))


@pytest.mark.parametrize("level", ["default", "strict"])
@pytest.mark.parametrize("bulk", [False, True], ids=["run", "bulk"])
def test_tasks_are_confined_once_by_the_runner_that_starts_them(node: Node, level: str, *, bulk: bool) -> None:
    look = looker(node)
    where = f"--secure={level}", f"--chdir={node.scratch}"
    if bulk:
        numbers = "".join(f"{number}\n" for number in range(MANY))
        done = node.nodectl("bulk", "-n2", *where, look, user=NOBODY, stdin=numbers)
    else:
        done = node.run(f"-n{MANY}", *where, look, user=NOBODY)
    assert done.returncode == 0, done.stderr
    tasks, runners = looked(node, "task"), looked(node, "runner")
    assert len(tasks) == len(runners) == MANY
    kept = KEPT_BY_ROOT if level == "default" else 0
    root = _kernel.capabilities()[0]
    for task in tasks:
        assert (facts(task), task.get("Seccomp_filters", "1")) == (CONFINED, "1")
        assert (bound(task), int(task["CapEff"], 16)) == (bound(own()) & kept, 0)
    for runner in runners:
        assert facts(runner) == (CONFINED if level == "default" else FREE)
        assert (bound(runner), int(runner["CapEff"], 16)) == (bound(own()) & kept, root)


def test_calls_are_denied_to_tasks_that_were_born_so(node: Node) -> None:
    for level in ("default", "strict"):
        found = errors_of(node, level, *DENIED, options=(f"-n{MANY}",))
        assert found == dict.fromkeys(DENIED, EPERM)
    numbers = "".join(f"{number}\n" for number in range(MANY))
    done = node.nodectl("bulk", "-n2", str(program(node)), *DENIED, "{#}", user=NOBODY, stdin=numbers)
    said = [line for line in done.stdout.splitlines() if line.partition("=")[0] in DENIED]
    assert sorted(said) == sorted(MANY * [f"{name}={EPERM}" for name in DENIED]), done.stderr


def test_a_runner_that_goes_on_to_further_steps_can_still_make_their_keyrings(node: Node) -> None:
    """And what it has bounded for steps of one level is not bounded in those of another."""
    look = looker(node)
    for level, kept in (("default", KEPT_BY_ROOT), ("none", -1), ("default", KEPT_BY_ROOT), ("none", -1)):
        done = node.run("-n2", f"--secure={level}", look, user=NOBODY)
        assert done.returncode == 0, done.stderr
        for found in (*looked(node, "task"), *looked(node, "runner")):
            assert bound(found) == bound(own()) & kept
    looked(node, "task")
    done = node.run("-n2", "--secure=default", look, user=NOBODY)
    assert {facts(found) for found in looked(node, "runner")} == {FREE}, done.stderr
    assert {facts(found) for found in looked(node, "task")} == {CONFINED}


def test_roots_hooks_in_the_runner_of_many_tasks_are_not_confined() -> None:
    with staged() as stage:
        node = stage.node
        path = str(node.scratch / "hook")
        for call in ("slurm_spank_task_post_fork", "slurm_spank_exit"):
            stage.order(f"first.{call}", NOTE.format(path=f"{path}.{call}"))
        assert facts(status(node, f"-n{MANY}", "--secure=default")) == CONFINED
        for call in ("slurm_spank_task_post_fork", "slurm_spank_exit"):
            found = read_status(Path(f"{path}.{call}").read_text(encoding="utf-8"))
            assert (facts(found), bound(found)) == (FREE, bound(own())), call


def test_a_sites_plugin_in_the_runner_of_many_tasks_is_not_confined() -> None:
    node = Node(task_plugin=["task/affinity", "task/cgroup", "task/looks"])
    path = node.scratch / "plugin"
    lines = NOTE.format(path=str(path)).strip().splitlines()
    node.plugin("looks", "def task_p_post_step(step):\n" + "".join(f"    {line}\n" for line in lines), kind="task")
    try:
        node.start()
        assert facts(status(node, f"-n{MANY}")) == CONFINED
        found = read_status(path.read_text(encoding="utf-8"))
        assert (facts(found), bound(found)) == (FREE, bound(own()))
        node.assert_clean()
    finally:
        node.close()
