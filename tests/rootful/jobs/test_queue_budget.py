"""What the daemon keeps for one user's jobs in the queue has a bound, whatever it consists of."""

from __future__ import annotations

import pwd
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from nodectl.model.wire import framing
from rootful import raw
from rootful.hostile import as_user
from rootful.node import NOBODY, OTHER, Node, running

MOST = 1 << 20
KEY = f"max_batch_bytes_per_user = {MOST}"
IRREGULAR = [7 * number + number * number % 5 for number in range(8000)]  # no ranges of them have a step
SOME = ",".join(map(str, IRREGULAR[:2000]))
MASKS = ",".join(["0x1"] * 4000)


@pytest.fixture
def node() -> Iterator[Node]:
    with running(max_batch_bytes_per_user=MOST, max_array_size=100_000) as started:
        yield started


def as_one(node: Node, user: pwd.struct_passwd, method: str, **parameters: object) -> Mapping[str, Any]:
    """The reply to a call of the user's."""
    path = node.scratch / "reply"
    path.unlink(missing_ok=True)

    def act() -> None:
        with raw.connect(node) as sock:
            framing.send(sock, {"method": f"org.nodectl.{method}", "parameters": parameters})
            path.write_bytes(framing.encode(framing.receive(sock, framing.Inbox(1 << 20)) or {}))

    with as_user(act, user.pw_uid, user.pw_gid):
        return framing.decode(path.read_bytes()[:-1])


def allocate(node: Node, user: pwd.struct_passwd, **options: object) -> Mapping[str, Any]:
    request = {**raw.REQUEST, "layout": {"cpu_bind": f"mask_cpu:{MASKS}"}}
    return as_one(node, user, "Allocate", request=request, job={"hold": True, **options}, held_by="alloc")


def submit(node: Node, user: pwd.struct_passwd, **options: object) -> Mapping[str, Any]:
    job = {"hold": True, **options}
    return as_one(node, user, "Submit", request=raw.REQUEST, job=job, script="#!/bin/sh\n")


def scripts(node: Node, user: pwd.struct_passwd, **options: object) -> Mapping[str, Any]:
    """A script that would be small when compressed."""
    job = {"hold": True, **options}
    return as_one(node, user, "Submit", request=raw.REQUEST, job=job, script=f"#!/bin/sh\n#{'x' * 200_000}\n")


def cancel(node: Node, user: pwd.struct_passwd, *jobs: str) -> Mapping[str, Any]:
    return as_one(node, user, "Cancel", jobs=list(jobs))


def filled(node: Node, act: Any, **options: object) -> list[str]:
    """The jobs of NOBODY's, made by `act` until one is refused."""
    jobs: list[str] = []
    while "error" not in (reply := act(node, NOBODY, **options)):
        jobs.append(str(reply["parameters"]["job"]))
        assert len(jobs) < 20
    assert KEY in str(reply)
    assert len(jobs) > 1
    return jobs


@pytest.mark.parametrize(
    ("act", "options"),
    [
        (allocate, {}),
        (submit, {"array": SOME}),
        (submit, {"dependency": ",".join(f"after:1+{minutes}" for minutes in range(250))}),
        (scripts, {}),
    ],
    ids=["layouts", "arrays", "dependencies", "scripts"],
)
def test_more_than_the_bytes_of_a_users_jobs_is_refused_until_some_are_gone(
    node: Node, act: Any, options: Mapping[str, object]
) -> None:
    assert "error" not in submit(node, NOBODY)  # job 1
    jobs = filled(node, act, **options)
    assert "error" not in act(node, OTHER, **options)
    node.restart()
    assert KEY in str(act(node, NOBODY, **options))
    assert "error" not in cancel(node, NOBODY, *jobs)
    assert len(filled(node, act, **options)) == len(jobs)


def test_what_is_left_of_an_array_counts_and_whole_arrays_can_be_cancelled_all_the_same(node: Node) -> None:
    job = str(submit(node, NOBODY, array="0-99999")["parameters"]["job"])
    for first in range(0, len(IRREGULAR), 100):  # a name has 1024 characters at most
        reply = cancel(node, NOBODY, f"{job}_[{','.join(map(str, IRREGULAR[first : first + 100]))}]")
        if "error" in reply:
            break
    assert KEY in str(reply)
    assert KEY in str(submit(node, NOBODY))
    assert "error" not in submit(node, OTHER)
    assert "error" not in cancel(node, NOBODY, job)
    assert "error" not in submit(node, NOBODY)
