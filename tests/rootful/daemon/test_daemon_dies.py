"""A daemon that dies at a given moment of a launch: a client whose step begins is told so all the same."""

from __future__ import annotations

import pwd
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATH, PATIENCE, Node, wait_until

# A daemon that signals itself between what it has given to a client's session and its answer, at its first launch.
DYING = """
import os, sys
sys.path[:0] = {path!r}
from nodectl.service.daemon.connections import connection
finish = connection.Connection._finish

def die(self, call, answer):
    if "job" in answer.get("parameters", {{}}):
        os.kill(os.getpid(), {number})
    finish(self, call, answer)

connection.Connection._finish = die
from nodectl.cli.main import main
sys.exit(main())
"""


@pytest.fixture
def dying(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node whose daemon is struck by that signal; the next one is a daemon like any."""
    node = Node()
    code = DYING.format(path=PATH, number=int(request.param))
    ordinary = node.command

    def command(*words: str) -> list[str]:
        own = ordinary(*words)
        return [code if word == own[3] else word for word in own] if words == ("daemon",) else own

    try:
        node.command = command  # type: ignore[method-assign]
        node.start()
        node.command = ordinary  # type: ignore[method-assign]
        yield node
        node.assert_clean()
    finally:
        node.close()


def state(node: Node) -> str:
    assert node.daemon is not None
    return Path(f"/proc/{node.daemon.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]


@pytest.mark.parametrize("user", [NOBODY, None], ids=["user", "root"])
@pytest.mark.parametrize("dying", [signal.SIGKILL, signal.SIGSTOP], indirect=True, ids=["killed", "stopped"])
def test_a_daemon_that_dies_before_its_answer_costs_no_client_its_step(
    dying: Node, user: pwd.struct_passwd | None
) -> None:
    client = dying.popen("sh", "-c", "echo said; exit 7", user=user)
    wait_until(lambda: state(dying) in "TZ", "the daemon is struck")
    dying.stop(signal.SIGKILL)
    out, err = client.communicate(timeout=PATIENCE)
    assert (client.returncode, out) == (7, "said\n"), err
    dying.start()
    record = dying.record(1)
    assert (record["state"], record["exit_status"]) == ("FAILED", 7)
