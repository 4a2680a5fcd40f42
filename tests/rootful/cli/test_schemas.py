"""What commands print with --json is what their schemas say, on a node with jobs, steps, a plugin and a reservation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from jsonschema import Draft202012Validator

from nodectl.model.schemas import files as schemas
from rootful.node import NOBODY, Node, running, wait_until

PLUGIN = "def slurm_spank_task_init(s, c, v):\n    return 0\n"
# By schema: command lines whose output it is. {} is the plugin's file.
COMMANDS = {
    "acct": ["acct --json", "acct -j 1 --json"],
    "bind": ["bind -n1 --json", "bind -n1 --explain --json", "bind --machine 2s:4c:2t -n4 --json",
             "bind -n9999 --json"],
    "config": ["config --json"],
    "config-explain": ["config --explain --json"],
    "doctor": ["doctor --json"],
    "explain": ["explain 3 --json", "explain 4 --json", "explain 3 4 --json"],
    "fence": ["fence --json", "fence status --json"],
    "node": ["node --json", "node show --json"],
    "plugins": ["plugins --json"],
    "plugins-hooks": ["plugins --hooks --json"],
    "ps": ["ps -a --json"],
    "queue": ["queue --json", "queue --start --json"],
    "report": ["report --json", "report --by total --json"],
    "reserve": ["reserve list --json"],
    "select-check": ["select check select/linear --json"],
    "select-try": ["select try select/linear --nodes 2*4c --generate 20 --json"],
    "show": ["show 1 --json", "show 3.batch --json", "show 4 --json", "show 1 4 --json"],
    "slurm-commands": ["slurm-commands --list --json"],
    "spank-check": ["spank check {} --json"],
    "spank-list": ["spank list --json"],
    "spank-try": ["spank try {} --json"],
    "topo": ["topo --json", "topo --machine 2s:4c:2t:2n --json"],
    "trace": ["trace 1 --json"],
}  # fmt: skip
IN_A_CLUSTER = ("cluster-start", "cluster-status")  # tests/cluster/test_cluster.py
LINES = [(name, line) for name, lines in COMMANDS.items() for line in lines]


@pytest.fixture(scope="module")
def busy() -> Iterator[tuple[Node, str]]:
    """Jobs 1 and 2 have ended, 3 runs, 4 waits."""
    with running(trace=True) as node:
        plugin = str(node.plugin("harmless", PLUGIN))
        node.plugstack(f"optional {plugin}\n")
        assert _nodectl(node, "run -n2 true").returncode == 0
        assert _nodectl(node, "run false").returncode == 1
        assert _nodectl(node, "submit -t 60 -o /dev/null", "#!/bin/sh\nsleep infinity\n").returncode == 0
        assert _nodectl(node, "submit --begin=now+1day -a 0-3 -o /dev/null --wrap true").returncode == 0
        wait_until(lambda: node.call("List")["steps"], "the batch job runs")
        reserved = ["reserve", "create", "course", "--start=now+2days", "--duration=60", "--users=nobody"]
        assert node.nodectl(*reserved).returncode == 0
        yield node, plugin
        assert _nodectl(node, "cancel --me").returncode == 0


def _nodectl(node: Node, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return node.nodectl(*line.split(), user=NOBODY, cwd="/tmp", stdin=stdin)


@pytest.mark.parametrize(("name", "line"), LINES)
def test_what_is_printed_is_what_the_schema_says(busy: tuple[Node, str], name: str, line: str) -> None:
    node, plugin = busy
    printed = _nodectl(node, line.format(plugin)).stdout
    values = [json.loads(one) for one in printed.splitlines()] if name == "trace" else [json.loads(printed)]
    validator = Draft202012Validator(schemas.load(name))
    for value in values:
        wrong = [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(value)]
        assert not wrong


def test_every_schema_is_compared_with_a_command() -> None:
    assert sorted((*COMMANDS, *IN_A_CLUSTER)) == schemas.names()
