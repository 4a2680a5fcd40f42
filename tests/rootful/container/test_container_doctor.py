"""nodectl doctor: what of containers works on this machine, one line each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from rootful.node import Node

KINDS = ("mnt", "pid", "ipc", "uts", "net", "cgroup", "time", "user")
Finding = tuple[str, str, str]


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.close()


def findings(node: Node, *before: str) -> dict[str, Finding]:
    """level, detail and advice of each thing looked at; `before` are words that run the command."""
    words = [*before, *node.command("doctor", "--json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=node.environment())
    assert not done.stderr
    checks = json.loads(done.stdout)["checks"]
    return {check["what"]: (check["level"], check["detail"], check["advice"]) for check in checks}


def test_each_kind_of_namespace_and_of_mount_has_a_line(node: Node) -> None:
    found = findings(node)
    for kind in KINDS:
        assert found[f"{kind} namespace"] == ("ok", "can be made", "")
    assert found["private directories"] == ("ok", "can be mounted", "")
    assert found["idmapped mounts"][0] == "ok"
    assert "not needed" in found["idmapped mounts"][1]


@pytest.mark.parametrize(("configured", "level"), [([], "warn"), (["uts"], "fail")])
def test_a_kind_that_cannot_be_made_is_told_with_what_to_do(node: Node, configured: list[str], level: str) -> None:
    node.configure(job_container_type="job_container/namespace", container_namespaces=configured)
    # The limits are those of a user namespace, and this one is the test's own.
    limit = 'echo 0 > /proc/sys/user/max_uts_namespaces; exec "$@"'
    found = findings(node, "unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh")
    assert found["uts namespace"] == (level, "No space left on device", "raise /proc/sys/user/max_uts_namespaces")
    assert found["ipc namespace"][0] == "ok"


def test_what_jobs_are_to_be_connected_to_is_looked_at(node: Node) -> None:
    containers = {"job_container_type": "job_container/namespace"}
    node.configure(**containers, container_net="veth", container_net_parent="lo")
    assert findings(node)["container_net"][:2] == ("fail", "lo is no bridge")
    node.configure(container_net="macvlan")
    assert findings(node)["container_net"] == ("ok", "macvlan at lo", "")
    node.configure(container_net_parent="ndtmissing")
    assert findings(node)["container_net"][:2] == ("fail", "no interface ndtmissing")


def test_private_directories_that_can_take_the_room_of_the_queue_are_told_by_doctor_and_at_the_start(
    node: Node,
) -> None:
    node.configure(job_container_type="job_container/namespace")
    node.start()
    told = [line for line in node.logged().splitlines() if "stops the queue for all" in line]
    assert len(told) == 1
    level, detail, advice = findings(node)["room of private directories"]
    assert level == "warn"
    assert f"{detail}: {advice}" in told[0]
    node.stop()
    node.configure(container_dirs=["/tmp:tmpfs,size=1M", "/dev/shm"])
    node.start()
    assert node.logged().count("stops the queue for all") == 1
    assert findings(node)["room of private directories"][0] == "ok"
