"""What a user says to the service by hand about jobs: numbers that are others', words that are too long."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from nodectl.wire import framing
from rootful.node import NOBODY, PATIENCE, Node, wait_until
from rootful.queued import queue, queue_node, submit, wait_for
from rootful.raw import REQUEST

Say = Callable[..., Mapping[str, Any]]


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    node = queue_node(drain_on_failure=["prolog", "epilog"])
    script = node.dir / "prolog"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    node.configure(prolog=str(script), epilog=str(script))
    try:
        yield node.start()
        assert "Traceback" not in node.logged()
    finally:
        node.close()


@pytest.fixture
def say(node: Node) -> Iterator[Say]:
    """One connection of nobody's."""
    os.seteuid(NOBODY.pw_uid)
    try:
        sock = framing.connect(str(node.socket))
    finally:
        os.seteuid(0)
    sock.settimeout(PATIENCE)
    inbox = framing.Inbox(1 << 22)

    def call(method: str, **parameters: object) -> Mapping[str, Any]:
        framing.send(sock, {"method": f"org.nodectl.{method}", "parameters": parameters})
        reply: Any = framing.receive(sock, inbox)
        return reply if "error" in reply else reply["parameters"]  # type: ignore[no-any-return]

    try:
        yield call
    finally:
        sock.close()


def test_number_that_was_reserved_for_a_step_makes_no_second_job_of_that_number(node: Node, say: Say) -> None:
    job = submit(node, "exec sleep 1000")
    wait_for(node, job, "RUNNING")
    wait_until(lambda: "error" not in say("Reserve", jobid=job), "the script has begun")
    named = {**REQUEST, "job": job}
    for reply in (
        say("Allocate", request=named, job={}, held_by="run"),
        say("Submit", request=named, job={}, script="#!/bin/sh\n"),
    ):
        assert reply["error"] == "org.nodectl.InvalidRequest", reply
    assert [(one["job"], one["held_by"]) for one in queue(node)] == [(job, "batch")]
    assert node.nodectl("cancel", str(job)).returncode == 0
    wait_for(node, job, "CANCELLED")
    reply = say("Launch", request=named)  # nor of one that has been
    assert reply["error"] == "org.nodectl.InvalidRequest", reply


def test_option_that_is_too_long_for_a_prologs_environment_is_refused_and_drains_no_node(node: Node, say: Say) -> None:
    for length in (400, 100_000):  # of the name; three bytes are six characters on the wire
        option = ["p" * length, "o", "中" * ((261_000 - length) // 6)]
        reply = say(
            "Submit", request={**REQUEST, "cwd": str(node.scratch), "options": [option]}, job={}, script="#!/bin/sh\n"
        )
        if "error" not in reply:
            wait_for(node, reply["job"], "COMPLETED")
    longest = ["p", "o", "x" * 65_536]
    wait_for(
        node,
        say(
            "Submit", request={**REQUEST, "cwd": str(node.scratch), "options": [longest]}, job={}, script="#!/bin/sh\n"
        )["job"],
        "COMPLETED",
    )
    machine: Any = node.call("Nodes")
    assert machine["nodes"][0]["state"] == "IDLE", machine
