"""The tasks' environment: Slurm's variables, --export, and the scripts around a task."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, Node, running


def environment(node: Node, *words: str, env: dict[str, str] | None = None, **how: object) -> list[dict[str, str]]:
    """The environment of each task, by rank."""
    done = node.run("-o", "env_%t", *words, "/usr/bin/env", "-0", env=env, **how)
    assert done.returncode == 0, done.stderr
    found = []
    for path in sorted(node.scratch.glob("env_*")):
        found.append(
            dict(
                line.split("=", 1)
                for line in path.read_text(encoding="utf-8", errors="surrogateescape").split("\0")
                if line
            )
        )
        path.unlink()
    return found


def test_every_variable_of_a_step_on_one_node(shared_node: Node) -> None:
    before = int(time.time())
    tasks = environment(shared_node, "-n3", "-J", "my job", "-t", "1:00", user=NOBODY)
    name = shared_node.call("Hello")["node"]
    job = shared_node.last_job()
    cpus = str(len(os.sched_getaffinity(0)))
    assert len(tasks) == 3
    for rank, found in enumerate(tasks):
        expected = {
            "SLURM_JOB_ID": str(job),
            "SLURM_JOBID": str(job),
            "SLURM_STEP_ID": "0",
            "SLURM_STEPID": "0",
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank),
            "SLURM_NODEID": "0",
            "SLURM_GTIDS": "0,1,2",
            "SLURM_CPUS_ON_NODE": cpus,
            "SLURM_NTASKS": "3",
            "SLURM_NPROCS": "3",
            "SLURM_STEP_NUM_TASKS": "3",
            "SLURM_NNODES": "1",
            "SLURM_STEP_NUM_NODES": "1",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_NODELIST": name,
            "SLURM_JOB_NODELIST": name,
            "SLURM_STEP_NODELIST": name,
            "SLURM_TASKS_PER_NODE": "3",
            "SLURM_STEP_TASKS_PER_NODE": "3",
            "SLURM_JOB_NAME": "my job",
            "SLURM_JOB_CPUS_PER_NODE": cpus,
            "SLURM_UMASK": "0022",
            "SLURM_JOB_UID": str(NOBODY.pw_uid),
            "SLURM_JOB_GID": str(NOBODY.pw_gid),
            "SLURM_JOB_USER": "nobody",
            "SLURMD_NODENAME": name,
            "SLURM_SUBMIT_DIR": str(shared_node.scratch),
            "SLURM_SUBMIT_HOST": os.uname().nodename,
            "SLURM_TOPOLOGY_ADDR": name,
            "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
            "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
            "SLURM_SRUN_COMM_HOST": "127.0.0.1",
            "SLURM_SRUN_COMM_PORT": "0",  # a number: programs read it as one
            "SLURM_CLUSTER_NAME": shared_node.values.get("cluster_name", "nodectl"),
            "SLURM_JOB_PARTITION": shared_node.values.get("partition_name", "local"),
        }
        assert {key: found.get(key) for key in expected} == expected
        start = int(found["SLURM_JOB_START_TIME"])
        assert before <= start <= time.time()
        assert int(found["SLURM_JOB_END_TIME"]) == start + 60
        assert int(found["SLURM_TASK_PID"]) > 1
        assert found["SLURM_CPU_BIND"].startswith("quiet")
        assert found["SLURM_CPU_BIND"] == ",".join(
            part
            for part in (found["SLURM_CPU_BIND_VERBOSE"], found["SLURM_CPU_BIND_TYPE"] + found["SLURM_CPU_BIND_LIST"])
            if part
        )
        assert "SLURM_SCRIPT_CONTEXT" not in found
        assert "SLURM_CPUS_PER_TASK" not in found
    assert len({found["SLURM_TASK_PID"] for found in tasks}) == 3


def test_what_was_not_asked_for_is_not_set(shared_node: Node) -> None:
    (found,) = environment(shared_node, user=NOBODY)
    assert not {"SLURM_JOB_END_TIME", "SLURM_CPUS_PER_TASK"} & set(found)
    assert found["SLURM_JOB_NAME"] == "env"


def test_cpus_per_task_is_told_where_it_was_asked_for(shared_node: Node) -> None:
    (found,) = environment(shared_node, "-c1", user=NOBODY)
    assert found["SLURM_CPUS_PER_TASK"] == "1"


def test_the_steps_variables_replace_those_of_an_outer_step(shared_node: Node) -> None:
    outer = {"SLURM_PROCID": "77", "SLURM_NTASKS": "88", "SLURM_JOB_ID": "99", "SLURM_OTHER": "kept"}
    (found,) = environment(shared_node, "-n1", user=NOBODY, env=outer)
    assert (found["SLURM_PROCID"], found["SLURM_NTASKS"], found["SLURM_OTHER"]) == ("0", "1", "kept")
    assert found["SLURM_JOB_ID"] == str(shared_node.last_job())


USERS = {"A": "one", "B": "two words", "EMPTY": "", "SPANK_X": "p", "ODD": "\udcff", "MULTI": "a\nb"}


@pytest.mark.parametrize(
    ("choice", "there", "gone"),
    [
        (None, USERS, ()),
        ("ALL", USERS, ()),
        ("NONE", {"SPANK_X": "p"}, ("A", "PATH")),
        ("NIL", {"SPANK_X": "p"}, ("A", "PATH")),
        ("A", {"A": "one", "SPANK_X": "p"}, ("B", "PATH")),
        ("A=1,NEW=x y", {"A": "1", "NEW": "x y"}, ("B", "PATH")),
        ("ALL,Q='a,b',A=z", {**USERS, "Q": "a,b", "A": "z"}, ()),
    ],
)
def test_export_chooses_what_goes_along(
    shared_node: Node, choice: str | None, there: dict[str, str], gone: tuple[str, ...]
) -> None:
    words = [f"--export={choice}"] if choice else []
    (found,) = environment(shared_node, *words, user=NOBODY, env=USERS)
    assert {name: found.get(name) for name in there} == there
    assert not set(gone) & set(found)
    assert found["SLURM_NTASKS"] == "1"


def test_a_variable_too_long_for_a_program_is_left_out_and_the_rest_goes_along(shared_node: Node) -> None:
    limit = 128 * 1024
    request = {
        "argv": ["sh", "-c", "echo ${#FITS} ${LONG+set} ${WIDE+set}"],
        "cwd": str(shared_node.scratch),
        "ntasks": 1,
        "stdout": "long.out",
        "environment": {
            "PATH": "/usr/bin:/bin",
            "FITS": "x" * (limit - 6),
            "LONG": "x" * (limit - 5),
            "WIDE": "ä" * (limit // 2),
        },
    }
    record = shared_node.call("Wait", **shared_node.call("Launch", request=request))["record"]
    assert record["exit_status"] == 0, record  # type: ignore[index]
    assert (shared_node.scratch / "long.out").read_text(encoding="ascii") == f"{limit - 6}\n"


# Scripts.


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def scripted() -> Iterator[Node]:
    """A node with the site's scripts: each writes who and where it is into `log`."""
    with running() as node:
        log = node.scratch / "log"
        line = 'echo "{} $(id -u) $SLURM_SCRIPT_CONTEXT task $SLURM_PROCID $(pwd) $(umask)" >> ' + str(log)
        script(
            node.dir / "site_prolog",
            line.format("site_prolog") + '; echo print from site; echo "export BY=site"; echo unset A',
        )
        script(node.dir / "site_epilog", line.format("site_epilog"))
        script(
            node.scratch / "prolog",
            line.format("user_prolog") + '; echo "print from user $BY"; echo "export BY=user"; echo noise',
        )
        script(node.scratch / "epilog", line.format("user_epilog") + "; echo nobody hears this")
        node.stop()
        node.configure(task_prolog=str(node.dir / "site_prolog"), task_epilog=str(node.dir / "site_epilog"))
        node.start()
        yield node


def log_of(node: Node) -> list[str]:
    lines = (node.scratch / "log").read_text(encoding="utf-8").splitlines()
    (node.scratch / "log").unlink()
    return lines


def test_scripts_run_in_order_as_the_user_around_the_task(scripted: Node) -> None:
    done = scripted.run(
        "--task-prolog=prolog",
        f"--task-epilog={scripted.scratch}/epilog",
        "sh",
        "-c",
        f'echo "task BY=$BY A=$A"; echo task >> {scripted.scratch}/log',
        user=NOBODY,
        env={"A": "x"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "from site\nfrom user site\ntask BY=user A=\n", "")
    lines = log_of(scripted)
    assert [line.split()[0] for line in lines] == ["site_prolog", "user_prolog", "task", "user_epilog", "site_epilog"]
    where = f"{scripted.scratch} 0022"
    for line, context in zip(
        (lines[0], lines[1], lines[3], lines[4]), ("prolog_task",) * 2 + ("epilog_task",) * 2, strict=True
    ):
        assert line.split(" ", 1)[1].startswith(f"{NOBODY.pw_uid} {context} task 0"), line
        assert line.endswith(where), line


def test_each_task_has_its_scripts(scripted: Node) -> None:
    done = scripted.run("-n3", "-l", "true", user=NOBODY)
    assert sorted(done.stdout.splitlines()) == [f"{rank}: from site" for rank in range(3)]
    lines = log_of(scripted)
    assert sorted((line.split()[0], line.split()[4]) for line in lines) == sorted(
        (name, str(rank)) for name in ("site_prolog", "site_epilog") for rank in range(3)
    )


@pytest.mark.parametrize("status", [1, 3, 255])
def test_a_prolog_that_fails_fails_the_task_with_its_status(scripted: Node, status: int) -> None:
    path = script(scripted.scratch / "failing", f"exit {status}")
    done = scripted.run("-n2", f"--task-prolog={path}", "echo", "ran", user=NOBODY)
    assert done.returncode == status
    assert "ran" not in done.stdout
    for rank in range(2):
        assert f"task {rank}: task prolog '{path}' ended with status {status}" in done.stderr
    log_of(scripted)


def test_a_prolog_that_is_not_there_fails_the_task(scripted: Node) -> None:
    done = scripted.run("--task-prolog=nosuch", "echo", "ran", user=NOBODY)
    assert done.returncode == 127
    assert "ran" not in done.stdout
    assert f"task prolog '{scripted.scratch}/nosuch' ended with status 127" in done.stderr
    log_of(scripted)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("exit 3", "ended with exit code 3"),
        ("kill -9 $$", "was ended by signal 9"),
        ("sleep 300 >/dev/null 2>&1 & exit 0", ""),
    ],
)
def test_an_epilog_changes_nothing_of_the_steps_end_and_its_failure_is_told(
    scripted: Node, text: str, told: str
) -> None:
    path = script(scripted.scratch / "last", text)
    done = scripted.run(f"--task-epilog={path}", "sh", "-c", "exit 4", user=NOBODY)
    assert done.returncode == 4
    lines = [line for line in done.stderr.splitlines() if "epilog" in line]
    assert [line.partition("step ")[2].partition(": ")[2] for line in lines] == (
        [f"task 0: task epilog '{path}': {told}"] if told else []
    )
    scripted.assert_clean()
    log_of(scripted)


def test_a_users_epilog_has_five_seconds(scripted: Node) -> None:
    path = script(scripted.scratch / "endless", "while :; do echo chatter; done")
    started = time.monotonic()
    done = scripted.run(f"--task-epilog={path}", "true", user=NOBODY)
    assert done.returncode == 0
    assert f"task 0: task epilog '{path}': had not ended after 5 s and was killed" in done.stderr
    assert 4.5 < time.monotonic() - started < PATIENCE
    log_of(scripted)


def test_a_prolog_does_not_take_the_tasks_input(scripted: Node) -> None:
    path = script(scripted.scratch / "reader", "cat > /dev/null")
    done = scripted.run(f"--task-prolog={path}", "cat", user=NOBODY, stdin="for the task\n")
    assert done.stdout == "from site\nfor the task\n"
    log_of(scripted)
