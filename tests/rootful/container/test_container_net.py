"""container_net: a job's own network connected by veth or macvlan, its address, and that no link is left behind."""

from __future__ import annotations

import contextlib
import ipaddress
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

NETWORK = ipaddress.ip_network("198.51.100.0/28")  # for documentation: nobody has it (RFC 5737)
HOST = str(NETWORK[1])
CONNECT = f"import socket; s = socket.create_connection(('{HOST}', PORT), 10); print(s.getsockname()[0])"


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def links(found: Contained) -> list[str]:
    """Links that are this node's, by what is written on them."""
    names = []
    for path in Path("/sys/class/net").iterdir():
        with contextlib.suppress(OSError):
            if found.node.dir.name in (path / "ifalias").read_text(encoding="utf-8"):
                names.append(path.name)
    return names


@contextlib.contextmanager
def connected(kind: str, **config: object) -> Iterator[Contained]:
    """A node that connects jobs to an interface of its own, where this machine has HOST."""
    parent, host = f"ndt{os.getpid()}p"[:15], f"ndt{os.getpid()}h"[:15]
    if kind == "veth":
        host = parent
        ip("link", "add", parent, "type", "bridge")
    else:
        ip("link", "add", parent, "type", "veth", "peer", "name", host)
    try:
        ip("address", "add", f"{HOST}/{NETWORK.prefixlen}", "dev", host)
        for name in {host, parent}:
            ip("link", "set", name, "up")
        values = {"container_net_addresses": str(NETWORK), "container_net_gateway": HOST, **config}
        with contained(container_net=kind, container_net_parent=parent, **values) as found:
            yield found
            if found.node.daemon is not None:
                found.assert_gone()
            assert links(found) == []
        if kind == "macvlan":
            assert not list(Path(f"/sys/class/net/{parent}").glob("upper_*"))
        else:
            assert not list(Path(f"/sys/class/net/{parent}/brif").iterdir())
    finally:
        ip("link", "del", parent)


@pytest.fixture(params=["veth", "macvlan"])
def found(request: pytest.FixtureRequest) -> Iterator[Contained]:
    with connected(request.param) as made:
        yield made


@pytest.mark.parametrize("kinds", ["--container-ns=net", "--container-ns=net,pid,user"])
def test_a_job_with_a_network_of_its_own_reaches_the_machine_by_its_link(found: Contained, kinds: str) -> None:
    with socket.create_server((HOST, 0)) as server:
        program = CONNECT.replace("PORT", str(server.getsockname()[1]))
        address = ipaddress.ip_address(found.out(kinds, "python3", "-c", program).strip())
    assert address in NETWORK
    assert str(address) != HOST
    assert HOST in found.out(kinds, "ip", "route", "show", "default")


def test_a_job_that_does_not_ask_has_the_machines_network_and_no_link(found: Contained) -> None:
    names = {name for _, name in socket.if_nameindex()}
    program = "import socket; print(*(name for _, name in socket.if_nameindex()))"
    assert set(found.out("python3", "-c", program).split()) == names


class Waiting:
    """A job that waits in a network of its own."""

    def __init__(self, found: Contained) -> None:
        script = "ip -o -4 address show eth0; echo ready; read x"
        self.client = found.node.popen(
            "--container-ns=net", "sh", "-c", script, user=NOBODY, stdin=subprocess.PIPE
        )  # fmt: skip
        assert self.client.stdout is not None
        self.address = self.client.stdout.readline().split()[3]
        assert self.client.stdout.readline() == "ready\n"
        wait_for_answer(self.client)

    def end(self) -> int:
        self.client.communicate("\n", timeout=PATIENCE)
        return self.client.returncode


def test_jobs_at_a_time_have_addresses_of_their_own_until_there_is_none() -> None:
    with connected("veth", container_net_addresses="198.51.100.0/29") as found:
        jobs = [Waiting(found) for _ in range(5)]
        assert sorted(job.address for job in jobs) == [f"198.51.100.{n}/29" for n in range(2, 7)]
        assert len(links(found)) == 5
        done = found.node.run("--container-ns=net", "true", user=NOBODY)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert "container_p_create: network: no address of 198.51.100.0/29 is free" in line
        assert jobs[0].end() == 0
        wait_until(lambda: len(found.left()) == 4, "the first has gone")
        again = Waiting(found)
        assert again.address == jobs[0].address
        assert [job.end() for job in (again, *jobs[1:])] == [0] * 5


@pytest.mark.parametrize("kind", ["veth", "macvlan"])
def test_without_addresses_the_link_is_up_and_has_none(kind: str) -> None:
    with connected(kind, container_net_addresses="", container_net_gateway="") as found:
        said = found.out("--container-ns=net", "ip", "-o", "-4", "address", "show", "eth0")
        assert said == ""
        assert "UP" in found.out("--container-ns=net", "ip", "-o", "link", "show", "eth0")


@pytest.mark.parametrize("victim", ["stepd", "daemon", "both"])
def test_no_link_outlives_its_job_whoever_is_killed(found: Contained, victim: str) -> None:
    job = Waiting(found)
    if victim != "daemon":
        os.kill(pid_of(found, "stepd "), signal.SIGKILL)
    if victim != "stepd":
        found.node.restart(signal.SIGKILL)
    job.end()
    found.assert_gone()
    assert links(found) == []


def test_no_link_outlives_its_job_whose_network_somebody_keeps(found: Contained) -> None:
    job = Waiting(found)
    (held,) = found.base.glob("*/ns/net")
    with held.open() as kept:
        assert job.end() == 0
        found.assert_gone()
        assert links(found) == []
        words = ["nsenter", f"--net=/proc/self/fd/{kept.fileno()}", "ip", "-o", "link", "show"]
        said = subprocess.run(words, check=True, capture_output=True, text=True, pass_fds=[kept.fileno()]).stdout
        assert "eth0" not in said


def test_what_died_with_its_whole_node_is_removed_by_the_next(found: Contained) -> None:
    job = Waiting(found)
    (place,) = found.places()
    runner = pid_of(found, "stepd ")
    found.node.stop(signal.SIGKILL)
    os.kill(runner, signal.SIGKILL)
    job.client.kill()
    job.client.communicate()
    (place / "owner").write_text("/nonexistent/1.0.json", encoding="utf-8")
    for path in found.node.steps.iterdir():
        path.unlink()
    found.node.start()
    found.assert_gone()


def test_a_parent_that_is_not_there_refuses_the_job_and_leaves_nothing() -> None:
    with contained(container_net="veth", container_net_parent="ndtmissing") as found:
        done = found.node.run("--container-ns=net", "true", user=NOBODY)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert "(job container by namespaces): container_p_create: network: no interface ndtmissing" in line
        assert found.left() == []
        assert found.node.run("true", user=NOBODY).returncode == 0


def test_a_parent_that_is_no_bridge_refuses_the_job_and_leaves_nothing() -> None:
    with contained(container_net="veth", container_net_parent="lo") as found:
        done = found.node.run("--container-ns=net", "true", user=NOBODY)
        assert done.returncode == 1
        assert "network: " in done.stderr
        assert found.left() == []
        assert links(found) == []
