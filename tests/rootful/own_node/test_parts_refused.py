"""A part of a step that asks for what it cannot have, or comes from somebody else; and the numbers of a node's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rootful.node import NOBODY, OTHER, Node
from rootful.own import OwnNode, own_node
from rootful.parts import JOB, MACHINE, PartRun, by_hand, call, request, run

ABOVE = f"{1 << 4000:x}"
EVERY = f"{MACHINE.usable:x}"


@pytest.fixture(scope="module")
def node() -> Iterator[OwnNode]:
    with own_node() as node:
        yield node


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"cpus": ABOVE}, "none of the CPUs here"),
        ({"cpus": "0"}, "none of the CPUs here"),
        ({"cpus": "-1"}, "not a mask"),
        ({"cpus": "f" * 20_000}, "longer than"),
        ({"masks": [ABOVE, "0"]}, "is no part of the step's CPUs"),
        ({"masks": ["0"]}, "1 for 2 tasks"),
        ({"masks": ["0", "0x1"]}, "not a mask"),
        ({"masks": ["0", 1]}, "not a mask"),
        ({"tasks": "1,1"}, "'1' is not behind what is before it"),
        ({"tasks": "2,1"}, "'1' is not behind what is before it"),
        ({"tasks": "1-3"}, "more than 2"),
        ({"tasks": "1-999999999"}, "is no number and no range below 4"),
        ({"tasks": "1"}, "they are 1, and 2 are asked for"),
        ({"tasks": "3-4"}, "no range below 4"),
        ({"tasks": ""}, "no number"),
        ({"tasks": "1,x"}, "no number"),
        ({"ntasks": 1}, "are more than its 1 tasks"),
        ({"ntasks": 1 << 40}, "ntasks"),
        ({"nodeid": 2}, "none of 2 nodes"),
        ({"nodeid": -1}, "nodeid"),
        ({"nnodes": 0}, "nnodes"),
        ({"node": "../../x"}, "no name of a node"),
        ({"node": ""}, "no name of a node"),
        ({"node": "a\nb"}, "no name of a node"),
        ({"job": 0}, "job"),
        ({"job": 1 << 32}, "job"),
        ({"step": 0xFFFFFFFB}, "step"),
        ({"mems": "4000"}, "none of the NUMA nodes here"),
        ({"mems": ""}, "none of the NUMA nodes here"),
        ({"mems": "x"}, "mems"),
        ({"mem_policies": [[2, "4000"], []]}, "none of the NUMA nodes here"),
        ({"mem_policies": [[3, "0"], []]}, "mem_policies"),
        ({"mem_policies": [[2], []]}, "mem_policies"),
        ({"mem_policies": [[]]}, "1 for 2 tasks"),
        ({"bind": ["a", "b", "c"]}, "bind"),
        ({"devices": ["gpu:4711"]}, "there is no 'gpu:4711' here"),
        ({"environment": {"A=B": "c"}}, "no name"),
        ({"environment": "A"}, "not an object"),
        ({"whatever": 1}, "no such parameter"),
        ({"nodes": None}, "missing"),
        ({"nodes": "n" * 200_000}, "longer than"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)
def test_a_part_that_makes_no_sense_here_is_refused(node: OwnNode, changed: dict[str, object], why: str) -> None:
    part = {**by_hand(0, ["0,3", "1-2"])[1], **changed}
    reply = call(node, "Launch", request={**request(node, by_hand(0, ["0,3", "1-2"])[1], ["true"]), "part": part})
    assert reply.get("error") == "org.nodectl.InvalidRequest", reply
    assert why in reply["parameters"]["reason"]
    assert reply["parameters"]["parameter"] == "part"


@pytest.mark.parametrize("part", [1, "x", [], True])
def test_a_part_that_is_none_is_refused(node: OwnNode, part: object) -> None:
    reply = call(node, "Launch", request={**request(node, by_hand(0, ["0", "1"])[0], ["true"]), "part": part})
    assert reply.get("error") == "org.nodectl.InvalidRequest", reply


@pytest.mark.parametrize("name", ["job", "step", "jobid"])
def test_a_part_takes_no_other_number(node: OwnNode, name: str) -> None:
    reply = call(node, "Launch", request={**request(node, by_hand(0, ["0", "1"])[0], ["true"]), name: 1})
    assert (reply["error"], reply["parameters"]["parameter"]) == ("org.nodectl.InvalidRequest", name)


def test_numbers_of_tasks_that_the_whole_step_has_not_are_refused(node: OwnNode) -> None:
    part = by_hand(0, ["0,3", "1-2"])[1]
    for more, parameter in (({"pty": [4, 24, 80, 0, 0]}, "pty"), ({"programs": [["0-4", ["true"]]]}, "programs")):
        one = PartRun(node, request(node, part, ["true"], **more))
        assert one.reply["parameters"]["parameter"] == parameter
        one.refusal()


def test_a_part_is_no_job_and_reserves_no_number(node: OwnNode) -> None:
    asked = request(node, by_hand(0, ["0", "1"])[0], ["true"])
    methods: dict[str, dict[str, Any]] = {
        "Submit": {"job": {}, "script": "#!/bin/sh\n"},
        "Allocate": {"job": {}, "held_by": "run"},
        "Reserve": {},
    }
    for method, more in methods.items():
        reply = call(node, method, request=asked, **more)
        assert (reply["error"], reply["parameters"]["parameter"]) == ("org.nodectl.InvalidRequest", "part"), method


def test_mpi_of_a_part_that_does_not_reach_the_others_is_refused(node: OwnNode) -> None:
    one = PartRun(node, request(node, by_hand(0, ["0", "1"])[0], ["true"], mpi="pmi2"))
    assert "this part of a step over 2 nodes does not reach the others" in one.refusal()


def test_mpi_of_a_step_on_one_of_a_jobs_nodes_is_served(node: OwnNode) -> None:
    argv = ["sh", "-c", "echo $PMI_RANK $PMI_SIZE"]
    one = PartRun(node, request(node, by_hand(70, ["0-1"])[0], argv, mpi="pmi2"))
    assert one.end()["state"] == "COMPLETED"
    assert sorted(one.out.splitlines()) == ["0 2", "1 2"]


def test_root_and_others_start_no_part_in_a_users_node(node: OwnNode) -> None:
    asked = request(node, by_hand(0, ["0", "1"])[0], ["true"])
    for uid in (0, OTHER.pw_uid):
        node.socket.chmod(0o666)
        for path in (node.runtime, node.socket.parent):
            path.chmod(0o755)
        try:
            reply = call(node, "Launch", uid, request=asked)
        finally:
            for path in (node.runtime, node.socket.parent):
                path.chmod(0o700)
            node.socket.chmod(0o600)
        assert reply["error"] == "org.nodectl.NotPermitted", reply


@pytest.mark.parametrize("uid", [0, NOBODY.pw_uid])
def test_the_service_of_a_machine_takes_no_part(shared_node: Node, node: OwnNode, uid: int) -> None:
    """There CPUs and numbers are everybody's, and its daemon gives them; but within a job of Slurm's."""
    asked = request(node, by_hand(0, ["0", "1"])[0], ["true"])
    reply = call(shared_node, "Launch", uid, request={**asked, "cwd": "/"})  # type: ignore[arg-type]  # it has a socket
    assert reply["error"] == "org.nodectl.NotPermitted", reply
    assert "no steps of a job of Slurm's: the configuration names no slurm_scope" in reply["parameters"]["reason"]


def test_a_step_that_runs_is_not_started_once_more(node: OwnNode) -> None:
    part = by_hand(71, ["0", "1"])[0]
    one = PartRun(node, request(node, part, ["sleep", "1000"]))
    one.until("start")
    assert "runs here already" in PartRun(node, request(node, part, ["true"])).refusal()
    assert "error" not in call(node, "Signal", job=JOB, step=71, signal=9)
    one.end()
    assert "runs here already, or has" in PartRun(node, request(node, part, ["true"])).refusal()


def test_a_job_of_the_nodes_own_is_not_joined_and_its_next_has_another_number() -> None:
    with own_node() as node:
        own = node.popen("run", "sh", "-c", "echo $SLURM_JOB_ID; exec sleep 1000")
        assert own.stdout is not None
        number = int(own.stdout.readline())
        for taken in (number, call(node, "Reserve")["parameters"]["job"]):
            part = by_hand(1, ["0", "1"], job=taken)[0]
            assert f"{taken} is one of this node's own" in PartRun(node, request(node, part, ["true"])).refusal()
        later = number + 20
        run([node], by_hand(0, ["0", "1"], job=later)[:1], ["true"])
        done = node.nodectl("run", "-n1", "--overlap", "-O", "printenv", "SLURM_JOB_ID")
        own.kill()
        own.communicate()
        assert int(done.stdout or 0) > later, done.stderr
