"""The node of the leader is lost for good: another one leads, from the journal, and the rest goes on."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter

import psutil
import pytest

from rootful.cluster.agents import GIVEN_UP, Agents, agents
from rootful.node import wait_for_answer, wait_until

pytestmark = pytest.mark.rootful
ON = "echo here; while [ ! -e go ]; do sleep 0.05; done; echo done"


def begun(cluster: Agents, *words: str, tasks: int, rank: int = 1) -> subprocess.Popen[str]:
    """A step whose tasks wait for a file `go`."""
    client = cluster.popen("run", *words, "sh", "-c", ON, rank=rank)
    assert client.stdout is not None
    assert [client.stdout.readline() for _ in range(tasks)] == ["here\n"] * tasks
    cluster.look()
    return client


def leads(cluster: Agents, rank: int) -> bool:
    return len(cluster.children(rank, "nodectl.cluster.leader")) == 1


def states(cluster: Agents, rank: int) -> dict[str, str]:
    told = cluster.nodectl("cluster", "status", "--json", rank=rank)
    assert told.returncode == 0, told.stderr + cluster.logged()
    return {node["name"]: node["state"] for node in json.loads(told.stdout)["nodes"]}


def test_steps_go_on_and_others_begin() -> None:
    with agents() as cluster:
        assert cluster.nodectl("run", "-wn0", "true", rank=0).returncode == 0
        running = begun(cluster, "-N2", "-n2", "-w", "n[1-2]", tasks=2)
        waiting = cluster.popen("run", "-N2", "-n2", "--whole", "-w", "n[1-2]", "echo", "later", rank=2)
        cluster.kill(0)
        done = cluster.nodectl("run", "-N2", "-n2", "--overlap", "echo", "well", rank=2)
        assert (done.returncode, done.stdout) == (0, "well\nwell\n"), done.stderr + cluster.logged()
        assert leads(cluster, 1)
        assert states(cluster, 2)["n0"] == "DOWN"
        assert running.poll() is None
        (cluster.home / "go").touch()
        out, error = running.communicate(timeout=GIVEN_UP)
        assert (out, error, running.returncode) == ("done\ndone\n", "", 0)
        out, error = waiting.communicate(timeout=GIVEN_UP)
        assert (out, error, waiting.returncode) == ("later\nlater\n", "", 0)
        steps = json.loads(cluster.nodectl("ps", "--all", "--json", rank=1).stdout)["steps"]
        assert len({step["step"] for step in steps}) == len(steps) == 4  # the journal was read: it tells of the first


def test_a_signal_that_a_client_passes_on_while_nobody_leads_is_not_lost() -> None:
    with agents() as cluster:
        client = begun(cluster, "-N2", "-n2", "-w", "n[1-2]", tasks=2)
        wait_for_answer(client)
        cluster.kill(0)
        client.send_signal(signal.SIGUSR1)
        client.communicate(timeout=GIVEN_UP)
        assert client.returncode == 128 + signal.SIGUSR1
        assert leads(cluster, 1)


def test_a_step_that_had_a_part_there_fails_and_says_why() -> None:
    with agents() as cluster:
        client = begun(cluster, "-N3", "-n3", tasks=3)
        cluster.kill(0)
        _, error = client.communicate(timeout=GIVEN_UP)
        assert client.returncode != 0
        assert "n0 was lost" in error, error
        wait_until(lambda: not cluster.children(1, "while [") + cluster.children(2, "while ["), "all tasks have ended")


def test_commands_of_a_bulk_step_that_were_lost_there_run_elsewhere_once() -> None:
    with agents() as cluster:
        program = "echo {} >> begun; while [ ! -e go ]; do sleep 0.05; done; echo {}"
        bulk = cluster.popen("bulk", "--nodes=3", "-j6", program, ":::", *map(str, range(12)), rank=1)
        ran = cluster.home / "begun"
        wait_until(lambda: ran.exists() and len(ran.read_text().split()) == 6, "all slots have a command")
        cluster.look()
        cluster.kill(0)
        wait_until(lambda: leads(cluster, 1), "another one leads", GIVEN_UP)
        (cluster.home / "go").touch()
        out, error = bulk.communicate(timeout=GIVEN_UP)
        assert sorted(map(int, out.split())) == list(range(12)), error
        assert max(Counter(ran.read_text().split()).values()) == 2, "once more, and no more"


def test_the_next_one_may_be_lost_as_well() -> None:
    with agents(4) as cluster:
        running = begun(cluster, "-N2", "-n2", "-w", "n[2-3]", tasks=2, rank=3)
        for lost, next_one in ((0, 1), (1, 2)):
            cluster.kill(lost)
            done = cluster.nodectl("run", "--overlap", "echo", "well", rank=3)
            assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr + cluster.logged()
            assert leads(cluster, next_one)
        (cluster.home / "go").touch()
        out, error = running.communicate(timeout=GIVEN_UP)
        assert (out, error, running.returncode) == ("done\ndone\n", "", 0)


def test_who_stood_still_and_comes_back_leads_no_more() -> None:
    with agents() as cluster:
        running = begun(cluster, "-N2", "-n2", "-w", "n[1-2]", tasks=2)
        old = psutil.Process(cluster.agents[0].pid)
        old.suspend()
        try:
            wait_until(lambda: leads(cluster, 1), "another one leads", GIVEN_UP)
        finally:
            old.resume()
        assert cluster.agents[0].wait(GIVEN_UP) == 1
        assert "the others follow another leader" in cluster.logged()
        (cluster.home / "go").touch()
        out, error = running.communicate(timeout=GIVEN_UP)
        assert (out, error, running.returncode) == ("done\ndone\n", "", 0)


def test_where_no_disk_is_shared_all_end_and_say_so() -> None:
    with agents(shares=False) as cluster:
        client = begun(cluster, "-N2", "-n2", "-w", "n[1-2]", tasks=2)
        assert "n1 does not share" in cluster.logged()
        cluster.kill(0)
        client.communicate(timeout=GIVEN_UP)
        assert client.returncode != 0
        for agent in cluster.agents[1:]:
            assert agent.wait(GIVEN_UP) == 1
        wait_until(lambda: not cluster.left(), "nothing is left")


def test_nothing_is_left_on_the_shared_disk() -> None:
    with agents() as cluster:
        places = cluster.home / ".local" / "state" / "nodectl" / "cluster"
        assert len(list(places.iterdir())) == 1
        cluster.kill(0, signal.SIGKILL)
        wait_until(lambda: leads(cluster, 1), "another one leads", GIVEN_UP)
        assert states(cluster, 2), "it has an answer, and looks for no leader any more"
        cluster.stop()
        assert not list(places.iterdir())
