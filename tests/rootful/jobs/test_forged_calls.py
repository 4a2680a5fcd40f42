"""What a user says to the service by hand about jobs: numbers that are others', words that are too long; what of others
jobs they are told.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from nodectl.model.wire import framing
from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_until
from rootful.queued import all_cpus, queue, queue_node, state, submit, wait_for
from rootful.raw import REQUEST

Say = Callable[..., Mapping[str, Any]]
NONE = 4_000_000  # a job that is not there


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


def test_file_that_a_job_could_not_open_is_told_to_nobody_else(node: Node) -> None:
    job = submit(node, "true", "--output=/etc/secret-project/out")
    wait_for(node, job, "FAILED")
    os.seteuid(OTHER.pw_uid)
    try:
        told: Any = node.call("ShowJob", job=str(job))
    finally:
        os.seteuid(0)
    assert told["record"]["state"] == "FAILED"
    assert "secret-project" not in json.dumps(told)
    assert "secret-project" in json.dumps(node.call("ShowJob", job=str(job)))


def test_who_may_not_see_others_jobs_is_not_told_for_whom_a_job_waits() -> None:
    node = queue_node(private_data=["jobs"])
    try:
        node.start()
        blocker = submit(node, "exec sleep 1000", f"-n{all_cpus(node)}", user=OTHER)
        wait_for(node, blocker, "RUNNING")
        job = submit(node, "true", "--time=1")
        wait_until(lambda: state(node, job) == "PENDING", "it waits")
        everything: Any = node.call("ExplainJob", job=str(job))
        assert f"job {blocker} of {OTHER.pw_name}" in everything["explanation"]["for"]
        told = node.nodectl("explain", str(job), user=NOBODY)
        assert told.returncode == 0, told.stderr
        os.seteuid(NOBODY.pw_uid)
        try:
            answers = [node.call("ExplainJob", job=str(job)), node.call("ShowJob", job=str(job)),
                       node.call("Await", job=job, seen="")]  # fmt: skip
        finally:
            os.seteuid(0)
        assert all("error" not in answer for answer in answers)
        assert f" of {OTHER.pw_name}" not in told.stdout + json.dumps(answers)
    finally:
        node.close()


def test_who_may_not_see_others_jobs_learns_of_none_from_a_refusal_or_by_waiting_for_it() -> None:
    """The words named the first step of a running job, and a dependency told when it ended, and how."""
    node = queue_node(private_data=["jobs"])
    try:
        node.start()
        theirs = submit(node, "exec sleep 1000", user=OTHER)
        wait_for(node, theirs, "RUNNING")
        own = submit(node, "true", "--hold")
        for words in (
            ("submit", "--wrap=true", "--dependency=afterok:{}"),
            ("submit", "--wrap=true", "--dependency=expand:{}"),
            ("update", str(own), "--dependency=afterany:{}"),
            ("show", "{}"),
            ("trace", "{}"),
            ("cancel", "{}"),
        ):
            told, of_none = (
                node.nodectl(*(word.format(job) for word in words), user=NOBODY).stderr.replace(str(job), "N")
                for job in (theirs, NONE)
            )
            assert told
            assert told == of_none
        assert node.nodectl("submit", f"--dependency=afterok:{own}", "--wrap=true", user=NOBODY).returncode == 0
        assert node.nodectl("submit", f"--dependency=afterok:{theirs}", "--wrap=true").returncode == 0  # root's
    finally:
        node.close()
