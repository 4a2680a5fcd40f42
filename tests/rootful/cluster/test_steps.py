"""Steps over three agents on this machine: output, input, signals, exit statuses, and what fails."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.cluster.agents import GIVEN_UP, Agents, agents
from rootful.node import OTHER, interrupt, wait_for_answer, wait_until

pytestmark = pytest.mark.rootful


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    with agents() as started:
        yield started


def test_a_step_over_all_nodes_runs(cluster: Agents) -> None:
    done = cluster.nodectl("run", "-N3", "-n6", "sh", "-c", "echo $SLURM_PROCID $SLURM_NODEID $SLURMD_NODENAME")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["0 0 n0", "1 0 n0", "2 1 n1", "3 1 n1", "4 2 n2", "5 2 n2"]


def test_a_step_is_over_all_nodes_of_the_allocation_where_nothing_else_is_said(cluster: Agents) -> None:
    how = cluster.how(0, SLURM_NNODES="3", SLURM_JOB_NUM_NODES="3")
    done = cluster.nodectl("run", "printenv", "SLURMD_NODENAME", **how)
    assert sorted(done.stdout.split()) == ["n0", "n1", "n2"], done.stderr


@pytest.mark.parametrize("rank", range(3))
def test_any_node_may_ask(cluster: Agents, rank: int) -> None:
    done = cluster.nodectl("run", "-N3", "-n3", "-l", "hostname", rank=rank)
    assert sorted(line.partition(":")[0] for line in done.stdout.splitlines()) == ["0", "1", "2"], done.stderr


def test_exit_statuses_are_the_highest_of_all_nodes(cluster: Agents) -> None:
    done = cluster.nodectl("run", "-N3", "-n3", "sh", "-c", "exit $SLURM_PROCID")
    assert done.returncode == 2
    assert "nodectl: error: n1: task 1: Exited with exit code 1" in done.stderr
    assert "nodectl: error: n2: task 2: Exited with exit code 2" in done.stderr


def test_a_signal_is_told_as_on_one_node(cluster: Agents) -> None:
    done = cluster.nodectl("run", "-N3", "-n3", "sh", "-c", "[ $SLURM_PROCID = 1 ] && kill -SEGV $$; true")
    assert done.returncode == 128 + signal.SIGSEGV
    assert "nodectl: error: n1: task 1: Segmentation fault" in done.stderr


def test_all_nodes_get_the_input(cluster: Agents) -> None:
    client = cluster.popen("run", "-N3", "-n6", "-l", "wc", "-c", stdin=subprocess.PIPE)
    out, error = client.communicate("x" * 300_000, GIVEN_UP)
    assert error == ""
    assert sorted(out.splitlines()) == [f"{task}: 300000" for task in range(6)]


def test_input_that_nobody_reads_does_not_keep_a_step_from_its_end(cluster: Agents) -> None:
    client = cluster.popen("run", "-N3", "-n3", "true", stdin=subprocess.PIPE)
    assert client.wait(GIVEN_UP) == 0
    client.communicate()


def test_a_hundred_megabytes_arrive(cluster: Agents) -> None:
    size = 35_000_000
    words = cluster.words("run", "-N3", "-n3", "sh", "-c", f"yes | head -c {size}; echo $SLURM_PROCID >&2")
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **cluster.how(0)
    ) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        total = 0
        while data := client.stdout.read(1 << 20):
            total += len(data)
        assert sorted(client.stderr.read().split()) == [b"0", b"1", b"2"]
    assert (total, client.returncode) == (3 * size, 0)


def test_output_goes_into_a_file_whole(cluster: Agents) -> None:
    path = cluster.home / "out"
    with path.open("wb") as file:
        words = cluster.words("run", "-N3", "-n3", "-l", "seq", "20000")
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=file, check=True, timeout=GIVEN_UP, **cluster.how(0))
    lines = path.read_text().splitlines()
    for task in range(3):
        assert [line for line in lines if line.startswith(f"{task}: ")] == [f"{task}: {n}" for n in range(1, 20_001)]


def test_patterns_of_file_names_are_of_the_whole_step(cluster: Agents) -> None:
    done = cluster.nodectl("run", "-N3", "-n3", "-o", "o.%t.%N.%n", "hostname")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in cluster.home.glob("o.*")) == ["o.0.n0.0", "o.1.n1.1", "o.2.n2.2"]


def test_a_file_that_tasks_of_all_nodes_share_has_all_of_their_output_and_nothing_older(cluster: Agents) -> None:
    script = "echo out $SLURM_PROCID; echo err $SLURM_PROCID >&2"
    path = cluster.home / f"both.{cluster.job}.n"
    path.write_text("before\n")
    os.chown(path, cluster.user.pw_uid, cluster.user.pw_gid)
    for more in ((), ("--open-mode=append", "-l")):
        done = cluster.nodectl("run", "-N3", "-n6", *more, "-o", "both.%j.n", "sh", "-c", script)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        lines = path.read_text().splitlines()
        wanted = [f"{word} {task}" for word in ("out", "err") for task in range(6)]
        if more:
            wanted += [f"{line[-1]}: {line}" for line in wanted]
        assert sorted(lines) == sorted(wanted)


def test_errors_alone_go_into_a_file_that_all_nodes_share(cluster: Agents) -> None:
    script = "echo out $SLURM_PROCID; echo err $SLURM_PROCID >&2"
    done = cluster.nodectl("run", "-N3", "-n3", "-e", "errors.%x", "-J", "name", "sh", "-c", script)
    assert sorted(done.stdout.splitlines()) == ["out 0", "out 1", "out 2"], done.stderr
    assert sorted((cluster.home / "errors.name").read_text().splitlines()) == ["err 0", "err 1", "err 2"]


def test_a_file_of_input_is_read_where_the_command_is_typed(cluster: Agents) -> None:
    (cluster.home / "input").write_text("x" * 200_000)
    done = cluster.nodectl("run", "-N3", "-n6", "-l", "-i", "input", "wc", "-c")
    assert sorted(done.stdout.splitlines()) == [f"{task}: 200000" for task in range(6)], done.stderr
    done = cluster.nodectl("run", "-N3", "-n3", "-i", "input", "sh", "-c", "test -p /dev/stdin && echo a pipe")
    assert done.stdout.splitlines() == ["a pipe"] * 3, done.stderr


def test_a_file_that_cannot_be_opened_ends_the_step_and_is_named(cluster: Agents) -> None:
    for option in ("-o", "-i"):
        done = cluster.nodectl("run", "-N3", "-n3", option, "/nonexistent/file", "sleep", "1000")
        assert done.returncode == 1
        assert "open file '/nonexistent/file': No such file or directory" in done.stderr
    wait_until(lambda: not cluster.nodectl("ps").stdout.count("sleep"), "the step has ended")


def test_tasks_whose_reader_has_gone_are_told(cluster: Agents) -> None:
    client = cluster.popen("run", "-N3", "-n3", "yes")
    assert client.stdout is not None
    client.stdout.readline()
    client.stdout.close()
    assert client.wait(GIVEN_UP) == 128 + signal.SIGPIPE


def running(cluster: Agents) -> list[str]:
    done = cluster.nodectl("ps", "--json")
    assert done.returncode == 0, done.stderr
    return [f"{step['job']}.{step['step']}" for step in json.loads(done.stdout)["steps"]]


def test_ctrl_c_twice_ends_a_step(cluster: Agents) -> None:
    client = cluster.popen("run", "-N3", "-n3", "sh", "-c", "echo here; exec sleep 1000")
    assert client.stdout is not None
    assert [client.stdout.readline() for _ in range(3)] == ["here\n"] * 3
    wait_for_answer(client)
    interrupt(client, "forcing termination of step")
    out, _ = client.communicate(timeout=GIVEN_UP)
    assert client.returncode != 0, out
    assert not running(cluster)


def test_a_signal_reaches_all_tasks(cluster: Agents) -> None:
    program = "trap 'echo got it; exit 0' USR1; echo here; while :; do sleep 0.05; done"
    client = cluster.popen("run", "-N3", "-n3", "sh", "-c", program)
    assert client.stdout is not None
    assert [client.stdout.readline() for _ in range(3)] == ["here\n"] * 3
    wait_for_answer(client)
    client.send_signal(signal.SIGUSR1)
    out, _ = client.communicate(timeout=GIVEN_UP)
    assert (out, client.returncode) == ("got it\n" * 3, 0)


def test_another_command_sees_and_ends_a_step(cluster: Agents) -> None:
    client = cluster.popen("run", "-N3", "-n3", "sh", "-c", "echo here; exec sleep 1000")
    assert client.stdout is not None
    client.stdout.readline()
    (name,) = running(cluster)
    done = cluster.nodectl("signal", "-s", "KILL", name, rank=2)
    assert done.returncode == 0, done.stderr
    client.communicate(timeout=GIVEN_UP)
    assert client.returncode == 128 + signal.SIGKILL


def test_a_program_that_is_not_there_fails_as_on_one_node(cluster: Agents) -> None:
    done = cluster.nodectl("run", "-N3", "-n3", "/nonexistent")
    assert done.returncode == 2
    assert "execute '/nonexistent': No such file or directory" in done.stderr


def test_a_launch_that_one_node_refuses_is_refused(cluster: Agents) -> None:
    done = cluster.nodectl("run", "-N3", "-n3", "--chdir=/nonexistent", "true")
    assert done.returncode != 0 or "nonexistent" in done.stderr
    done = cluster.nodectl("run", "-N4", "true")
    assert done.returncode != 0
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_another_user_does_not_come_in(cluster: Agents) -> None:
    done = cluster.nodectl("run", "-N3", "true", **cluster.how(0, user=OTHER))
    assert done.returncode != 0


def test_a_step_in_a_step_comes_to_the_cluster(cluster: Agents) -> None:
    words = cluster.words("run", "-N3", "-n3", "--overlap", "--cpu-bind=none", "hostname")
    script = cluster.home / "script"
    script.write_text(f"#!/bin/sh\n{shlex.join(words)}\n")
    script.chmod(0o755)
    done = cluster.nodectl("run", "-N1", "-n1", str(script))
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3), done.stderr


def test_nothing_of_a_step_is_left_in_an_agent(cluster: Agents) -> None:
    def open_files() -> list[int]:
        return [len(list(Path(f"/proc/{agent.pid}/fd").iterdir())) for agent in cluster.agents]

    cluster.nodectl("run", "-N3", "-n3", "echo", "warm")
    before = open_files()
    for _ in range(5):
        cluster.nodectl("run", "-N3", "-n3", "-l", "echo", "one")
    wait_until(
        lambda: all(now <= then for now, then in zip(open_files(), before, strict=True)),
        f"no more files are open than {before}",
    )
