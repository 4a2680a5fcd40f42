"""The select plugin of a real service hears every function in the life of some jobs, through `select_tracer.py`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.plugin_host.kinds import KINDS
from rootful.node import NOBODY, PATIENCE, Node, wait_until

HERE = Path(__file__).parent
P = "select_p_"
# One machine is one node: a job cannot give one up. A plugin that gives whole nodes has no second one for a job that is
# to give it to another one: that is in tests/rootful/jobs/test_expansion.py.
NOT_ON_ONE_NODE = {"job_expand", "job_resized"}
SCRIPT = "#!/bin/sh\ntouch began\nuntil [ -e end ]; do sleep 0.05; done\n"

pytestmark = [pytest.mark.rootful, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]


class Life:
    """A node whose plugin writes down each call."""

    def __init__(self) -> None:
        self.node = Node(select_type="select/select_tracer", suspend_grace_time=0, real_memory=1024)
        path = self.node.plugins / "select" / "select_tracer.py"
        path.parent.mkdir()
        path.write_text((HERE / "select_tracer.py").read_text())
        state = Path(str(self.node.values["state_dir"]))
        state.mkdir()
        self.file = state / "select_tracer.calls"
        self.file.touch()
        self.shown: dict[str, Any] = {}

    def names(self) -> list[str]:
        calls: list[Any] = [json.loads(line) for line in self.file.read_text().splitlines()]
        return [str(call[0]).removeprefix(P) for call in calls]

    def ok(self, *words: str, **how: Any) -> str:
        done = self.node.nodectl(*words, **how)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def live(self) -> None:
        node = self.node.start()
        assert node.daemon is not None
        assert node.run("true", user=NOBODY).returncode == 0
        job = self.ok("submit", "-t10", stdin=SCRIPT, user=NOBODY).split()[-1]
        wait_until((node.scratch / "began").exists, "the script has begun")
        waiting = self.ok("submit", "--array=0-1", "--wrap=true", user=NOBODY).split()[-1]
        self.ok("cancel", self.ok("submit", f"-dexpand:{job}", "--wrap=true", user=NOBODY).split()[-1], user=NOBODY)
        for word in ("suspend", "resume"):
            self.ok(word, job, user=NOBODY)
        self.ok("cancel", "-s", "URG", job, user=NOBODY)
        self.shown = {"job": node.call("ShowJob", job=job), "nodes": node.call("Nodes")}
        self.ok("node", "drain", "for a test")
        self.shown["drained"] = node.call("Nodes")
        self.ok("node", "resume")
        self.ok("reserve", "create", "later", "--start=now+2hours", "--duration=10", "--users=nobody")
        told = self.names().count("reconfigure")
        node.daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: self.names().count("reconfigure") > told, "the reload is told")
        node.stop()
        node.configure(real_memory=2048)
        node.start()
        (node.scratch / "end").touch()
        wait_until(lambda: not node.call("Queue")["jobs"], f"jobs {job} and {waiting} have ended", 4 * PATIENCE)
        node.stop()


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    made = Life()
    try:
        made.live()
        yield made
    finally:
        made.node.close()


@pytest.mark.parametrize("name", [name.removeprefix(P) for name in KINDS["select"].functions])
def test_function_is_called_in_a_services_life(life: Life, name: str) -> None:
    assert (name in life.names()) == (name not in NOT_ON_ONE_NODE)


def test_job_is_told_of_in_the_documents_order(life: Life) -> None:
    names = [name for name in life.names() if name.startswith(("job_", "step_"))]
    flow = ["job_test", "job_begin", "job_ready", "step_pick_nodes", "step_finish", "job_fini"]
    first = [names.index(name, names.index("job_test")) for name in flow]
    assert first[:4] == sorted(first[:4])


def test_what_the_plugin_says_is_told(life: Life) -> None:
    assert life.shown["job"]["record"]["select"] == {"text": "network=", "line": "network=", "cons_res": 0}
    assert life.shown["nodes"]["nodes"][0]["select"] == {"cpus": 1, "memory": 1}


def test_reason_of_a_node_has_its_time_and_its_user(life: Life) -> None:
    (drained,) = life.shown["drained"]["nodes"]
    assert (drained["reason"], drained["reason_uid"]) == ("for a test", 0)
    assert drained["reason_time"] > 0


def test_plugin_that_keeps_to_the_document_is_never_blamed(life: Life) -> None:
    assert "plugin select/select_tracer" not in life.node.logged()
    assert "Traceback" not in life.node.logged()
