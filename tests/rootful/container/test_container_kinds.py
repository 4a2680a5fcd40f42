"""--container-ns: namespaces of a job's own, each kind seen from inside and from outside."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.contained import Contained, contained
from rootful.container.test_container_attacks import pid_of
from rootful.node import NOBODY, PATIENCE, wait_for_answer, wait_until

KINDS = ("pid", "ipc", "uts", "net", "cgroup", "time", "user")


@pytest.fixture(scope="module")
def shared() -> Iterator[Contained]:
    with contained() as found:
        yield found


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_job_that_asks_has_a_namespace_of_its_own(shared: Contained, kind: str) -> None:
    ours = os.readlink(f"/proc/self/ns/{kind}")
    assert shared.out("readlink", f"/proc/self/ns/{kind}").strip() == ours
    assert shared.out(f"--container-ns={kind}", "readlink", f"/proc/self/ns/{kind}").strip() != ours
    others = [f"/proc/self/ns/{other}" for other in KINDS if other != kind]
    assert shared.out(f"--container-ns={kind}", "readlink", *others).split() == [os.readlink(path) for path in others]


def test_tasks_of_a_job_are_in_the_same_namespaces(shared: Contained) -> None:
    kinds = [f"/proc/self/ns/{kind}" for kind in ("mnt", "pid", "ipc", "uts", "net", "time", "user")]
    words = shared.out("-n3", "--container-ns=pid,ipc,uts,net,time,user", "readlink", *kinds).split()
    assert len(words) == 3 * len(kinds)
    assert len(set(words)) == len(kinds)


def test_a_configured_kind_needs_not_be_asked_for_and_bad_words_are_refused() -> None:
    with contained(container_namespaces=["uts"]) as found:
        assert found.out("uname", "-n").strip() != socket.gethostname()
        assert "-job" in found.out("uname", "-n")
        done = found.node.run("--container-ns=uts,moon", "true", user=NOBODY)
        assert done.returncode == 1
        assert "--container-ns: 'moon' is none of pid, ipc, uts, net, cgroup, time, user" in done.stderr
    with contained(job_container_type="job_container/none") as found:
        done = found.node.run("--container-ns=net", "true", user=NOBODY)
        assert done.returncode == 1
        assert "job_container_type is job_container/none" in done.stderr


def test_a_network_of_its_own_has_a_loopback_that_is_up(shared: Contained) -> None:
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); "
        "print([name for _, name in socket.if_nameindex()])"
    )
    assert shared.out("--container-ns=net", "python3", "-c", program).strip().startswith("['lo'")


def test_in_a_pid_namespace_proc_shows_the_job_alone_and_orphans_are_reaped(shared: Contained) -> None:
    script = (
        "ls /proc | grep -c '^[0-9]'; cat /proc/1/comm; echo $$ $SLURM_TASK_PID; "
        "for orphan in $(sh -c 'for n in 1 2; do sleep 0.1 >/dev/null & echo $!; done'); do "
        "while [ -e /proc/$orphan ]; do sleep 0.05; done; done; echo reaped; "
        "kill -9 1; kill -TERM 1; sleep 0.1; cat /proc/1/comm"
    )
    out = shared.out("--container-ns=pid", "sh", "-c", script).split()
    assert int(out[0]) <= 5
    assert out[1] == "nodectl-first"
    assert out[2] == out[3]
    assert out[4] == "reaped"
    assert out[5] == "nodectl-first"


def test_everything_of_a_step_works_in_a_pid_namespace(shared: Contained) -> None:
    node = shared.node
    done = node.run(
        "-n4", "-l", "--container-ns=pid", "sh", "-c", "echo $SLURM_PROCID; exit $SLURM_PROCID", user=NOBODY
    )
    assert sorted(done.stdout.splitlines()) == [f"{n}: {n}" for n in range(4)]
    assert done.returncode == 3
    record = node.record(node.last_job())
    assert [os.waitstatus_to_exitcode(int(task["status"])) for task in record["tasks"]] == [0, 1, 2, 3]  # type: ignore[attr-defined]
    done = node.run("-t", "1", "--container-ns=pid", "sh", "-c", "sleep 100 & setsid sleep 100 & exit 0", user=NOBODY)
    assert done.returncode == 0


@pytest.mark.parametrize("kinds", ["pid,net", "pid,net,user"])
@pytest.mark.parametrize("victim", ["stepd", "daemon", "first"])
def test_kills_around_a_pid_namespace_leave_nothing(victim: str, kinds: str) -> None:
    with contained() as found:
        words = [f"--container-ns={kinds}", "sh", "-c", "echo ready; read line; echo done"]
        job = found.node.popen(*words, user=NOBODY, stdin=subprocess.PIPE)
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        wait_for_answer(job)
        first = first_of(found)
        assert is_first(first)
        if victim == "daemon":
            found.node.restart(signal.SIGKILL)
        else:
            os.kill(first if victim == "first" else pid_of(found, "stepd "), signal.SIGKILL)
            job.wait(PATIENCE)  # its task would end well if it were told to go on before it is dead
        _, err = job.communicate("go\n", timeout=PATIENCE)
        assert (job.returncode == 0) == (victim == "daemon"), err
        found.assert_gone()
        wait_until(lambda: not is_first(first), "the first process has ended")


def first_of(found: Contained) -> int:
    """The first process of the one job there is."""
    (place,) = found.places()
    return int((place / "first").read_text(encoding="ascii").split()[0])


def is_first(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") == "nodectl-first\n"
    except OSError:
        return False


def test_without_cgroups_the_pid_namespace_ends_with_the_job() -> None:
    with contained(proctrack_type="proctrack/linuxproc", task_plugin=["task/none"]) as found:
        script = "cat /proc/1/comm; read line"
        job = found.node.popen("--container-ns=pid", "sh", "-c", script, user=NOBODY, stdin=subprocess.PIPE)
        assert job.stdout is not None
        assert job.stdout.readline() == "nodectl-first\n"
        first = first_of(found)
        assert is_first(first)
        job.communicate("go\n", timeout=PATIENCE)
        found.assert_gone()
        wait_until(lambda: not is_first(first), "the first process has ended")
