"""A task that shares its stepd's memory and one that is a fork do the same, and which tasks are which."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl import plugin_host
from rootful.contained import contained
from rootful.held import Held, share_memory, shares_memory, sleepers
from rootful.native import native
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until
from rootful.programs import LONGEST_WORD, being_written
from rootful.raw import events

pytestmark = shares_memory


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running(always_fork=False) as started:
        yield started


Row = tuple[Any, ...]


def rows(node: Node, *words: str) -> list[Row]:
    """What the tasks' lines of a trace say, but for times and pids."""
    done = node.run(*words, user=NOBODY)
    return [told_of(node, done.returncode, done.stderr.splitlines()), *traced(node)]


def told_of(node: Node, status: int, lines: list[str]) -> Row:
    # Tasks that end at once may be told of in one line.
    step = f"{node.last_job()}.0"
    return (status, *sorted(line.replace(step, "JOB") for line in lines if "Exited with" not in line))


def traced(node: Node) -> list[Row]:
    lines = [line for line in node.trace(node.last_job()) if line["process"] == "task"]
    facts = (
        "call", "kind", "plugin", "task", "ruid", "euid", "rgid", "egid", "groups", "caps", "affinity", "rc", "note",
    )  # fmt: skip
    return [
        (*(line.get(name) for name in facts), str(line["cgroup"]).rpartition("/")[2])
        for line in sorted(lines, key=lambda line: int(str(line["task"])))
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("-n2", "true"),
        ("--secure=strict", "-D", "/usr", "true"),
        ("--secure=none", "true"),
        ("no-such-program",),
        ("/tmp",),
        ("-n2", "-o", "/root/out", "true"),
        ("-D", "/root", "true"),
        ("--label", "echo", "x"),
    ],
    ids=" ".join,
)
def test_a_fork_and_a_task_that_shares_memory_do_the_same(node: Node, words: tuple[str, ...]) -> None:
    shared = rows(node, *words)
    with running(always_fork=True) as forking:
        assert rows(forking, *words) == shared
        forking.assert_clean()
    assert len(shared) > 4


def test_a_fork_and_a_task_that_shares_memory_say_the_same_of_a_word_that_is_too_long(node: Node) -> None:
    def told(by: Node) -> list[Row]:
        *news, end = events(by, argv=["true", "x" * LONGEST_WORD], uid=NOBODY.pw_name)
        texts = [event["text"] for event in news if event["event"] == "message"]
        return [told_of(by, end["record"]["exit_status"], texts), *traced(by)]

    shared = told(node)
    with running(always_fork=True) as forking:
        assert told(forking) == shared
    assert shared[0][0] == errno.E2BIG
    assert "Argument list too long" in shared[0][1]


def test_a_fork_and_a_task_that_shares_memory_say_the_same_of_a_program_that_is_being_written(node: Node) -> None:
    with being_written(node.scratch / "written") as path:
        shared = rows(node, str(path))
        with running(always_fork=True) as forking:
            assert rows(forking, str(path)) == shared
    assert shared[0][0] == errno.ETXTBSY
    assert "Text file busy" in shared[0][1]


KINDS = [[], ["pid"], ["ipc", "uts", "net", "cgroup"], ["pid", "ipc", "uts", "net", "cgroup"]]


@pytest.mark.parametrize("kinds", KINDS, ids=" ".join)
def test_a_task_in_a_container_shares_memory_and_does_what_a_fork_does(kinds: list[str]) -> None:
    words = ("-n2", "-D", "/usr", "sh", "-c", "echo $(($$ == SLURM_TASK_PID)) >&2; pwd >&2; touch /dev/shm/of-the-job")
    with contained(always_fork=False, container_dirs=["/dev/shm"], container_namespaces=kinds) as found:
        held = Held(found.node, "true")
        assert share_memory(held.pid, held.stepd), "the test is about a task that shares it"
        assert held.let_go() == (0, "")
        shared = rows(found.node, *words)
    with contained(always_fork=True, container_dirs=["/dev/shm"], container_namespaces=kinds) as found:
        assert rows(found.node, *words) == shared
    joined = [row for row in shared if row[0] == "container_p_add_pid"]
    assert len(joined) == 2
    assert not Path("/dev/shm/of-the-job").exists()


@pytest.mark.parametrize("kind", ["user", "time"])
def test_a_namespace_that_wants_a_process_of_its_own_memory_gets_a_fork(kind: str) -> None:
    with contained(always_fork=False, container_dirs=["/dev/shm"], container_namespaces=[kind]) as found:
        held = Held(found.node, "true")
        assert not share_memory(held.pid, held.stepd)
        assert held.let_go() == (0, "")


@pytest.mark.parametrize("always_fork", [False, True])
def test_tasks_born_in_a_pid_namespace_are_one_process_group(*, always_fork: bool) -> None:
    with contained(always_fork=always_fork, container_namespaces=["pid"]) as found:
        node = found.node
        step = node.popen("-n3", "sh", "-c", "echo begun; exec sleep 1000", user=NOBODY)
        assert step.stdout is not None
        assert [step.stdout.readline() for _ in range(3)] == ["begun\n"] * 3
        wait_until(lambda: len(sleepers(node)) == 3, "all tasks are their programs")
        assert len({os.getpgid(pid) for pid in sleepers(node)}) == 1
        step.terminate()
        step.communicate(timeout=PATIENCE)


def test_a_container_that_cannot_be_joined_says_what_a_fork_says(tmp_path: Path) -> None:
    plugin = tmp_path / "job_container" / "broken.py"
    plugin.parent.mkdir()
    plugin.write_text(BROKEN, encoding="utf-8")
    said = []
    for always_fork in (False, True):
        with running(
            always_fork=always_fork, plugin_dir=[str(tmp_path), str(BUILTIN)], job_container_type="job_container/broken"
        ) as node:
            said.append(rows(node, "-n2", "true"))
            node.assert_clean()
    assert said[0] == said[1]
    assert "container_p_add_pid: join the container: Invalid argument (mnt namespace)" in said[0][0][1]


BUILTIN = Path(plugin_host.BUILTIN_DIR)
BROKEN = """
import os
from nodectl.kernel import operations

plugin_type = "job_container/broken"
plugin_name = "a container that is none"
plugin_version = (22, 5, 8)
NULL = os.open("/dev/null", os.O_RDONLY)

def container_p_add_pid_plan(step, task):
    return [operations.join_namespace(NULL, "join the container: ", " (mnt namespace)")]

def container_p_add_pid(job_id, pid, uid):
    raise AssertionError("called in the place of its plan")
"""


@pytest.mark.parametrize(
    "hooks", [("init", "init_post_opt", "user_init", "task_post_fork", "task_exit", "exit"), ("task_init",)]
)
def test_only_a_stack_with_hooks_of_the_task_costs_a_fork(node: Node, hooks: tuple[str, ...]) -> None:
    native(node, "stacked", **dict.fromkeys(hooks, ""))
    node.plugstack("required stacked.so\n")
    try:
        held = Held(node, "true")
        assert share_memory(held.pid, held.stepd) == ("task_init" not in hooks)
        assert held.let_go() == (0, "")
    finally:
        node.plugstack("")
    node.assert_clean()
