"""`nodectl cluster`: use several nodes as a single node, for the length of an allocation."""

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from nodectl.cli.node import NODE_HEADER, node_row
from nodectl.client.command import Failed, complain
from nodectl.client.render.table import table
from nodectl.client.session import Session
from nodectl.cluster.engine.engine import NoEngine
from nodectl.cluster.start import holders

if TYPE_CHECKING:
    from nodectl.cluster.engine.engine import Engine

_SECONDS = 60.0
_SWEPT_SECONDS = 45.0  # time for the clean-up after agents, and for a slow Slurm
_LOOK_AGAIN = 0.3
_NONE = "no cluster runs here -> `nodectl cluster start`, in an allocation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl cluster` to the parser."""
    actions = parser.add_subparsers(dest="action", metavar="start|status|stop", required=True)
    start = actions.add_parser(
        "start", help="start an agent on each node, and wait for all of them",
        description="Start an agent on each node of the allocation, and wait until all have joined.",
    )  # fmt: skip
    start.add_argument(
        "-w", "--nodelist", metavar="HOSTS", help="these hosts, by ssh, instead of an allocation of Slurm's"
    )
    start.add_argument("--seconds", type=float, default=_SECONDS, help="how long to wait for agents (%(default)g)")
    status = actions.add_parser(
        "status", help="tell which nodes have joined", description="Tell which nodes have joined, and their load."
    )
    for one in (start, status):
        one.add_argument("--json", action="store_true", help="print one JSON object")
    actions.add_parser(
        "stop", help="end agents and what runs on them",
        description="End all agents and what runs on them, and wait until nothing is left.",
    )  # fmt: skip
    parser.epilog = "Commands in the allocation find the cluster by themselves, on each of its nodes."


def main(arguments: argparse.Namespace) -> int:
    """Start, show or stop the cluster. Return 0, or 1 with a line on stderr for each missing node."""
    if arguments.action == "start":
        return _start(arguments)
    return _status(arguments) if arguments.action == "status" else _stop()


def _engine(hosts: str | None) -> "Engine":
    if hosts is None:
        from nodectl.cluster.engine.slurm import Slurm

        return Slurm(os.environ)
    from nodectl.cluster.engine.hosts import PROGRAM, Hosts

    return Hosts(hosts, os.environ.get("NODECTL_SSH") or PROGRAM, os.environ)


def _start(arguments: argparse.Namespace) -> int:
    from nodectl.client import cluster_gateway
    from nodectl.cluster.engine import program
    from nodectl.cluster.start import starter

    outcome = starter.start(_engine(arguments.nodelist), program.agent(), arguments.seconds)
    job, names, guests = outcome.nodes
    if arguments.json:
        nodes = [{"name": name, "joined": name not in outcome.missing} for name in names]
        print(json.dumps({"job": job, "nodes": nodes, "missing": outcome.missing}, indent=2))
    for name, why in outcome.missing.items():
        complain(f"{'node' if name in names else 'no commands here, on'} {name}: {why}")
    if not outcome.is_there:
        return 1
    if outcome.warning:
        print(f"nodectl: {outcome.warning}", file=sys.stderr)
    if not arguments.json:
        print(f"nodectl: cluster {job} is there: {', '.join(names)}", file=sys.stderr)
        if arguments.nodelist is not None:
            print(f"export NODECTL_CLUSTER={job}.{cluster_gateway.NO_NODE if guests else os.uname().nodename}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    job, nodes = _job(), _nodes(arguments)
    if arguments.json:
        print(json.dumps({"job": job, "nodes": nodes}, indent=2))
    else:
        rows = [(*node_row(node), node.get("steps_by") or "-") for node in nodes]
        print(*table((*NODE_HEADER, "STEPS RUN BY"), rows), sep="\n")
    return 0


def _nodes(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the nodes from the leader, or without access to the leader the states of the agents. Raises Failed."""
    from nodectl.client import cluster_gateway

    gateway = arguments.settings.socket or cluster_gateway.socket()
    if gateway:
        arguments.settings.socket = gateway
        session = Session(arguments.settings, start_private=False)
        try:
            found: list[dict[str, Any]] = session.call("Nodes")["nodes"]  # type: ignore[assignment]
        finally:
            session.close()
        return found
    told = holders.ask_status(_job())
    if told is None:
        raise Failed(_NONE)
    failed = told["failed"]
    return [
        {"name": name, "state": "DOWN" if name in failed else "IDLE" if name in told["joined"] else "UNKNOWN",
         "reason": failed.get(name)}
        for name in told["nodes"]
    ]  # fmt: skip


def _stop() -> int:
    job = _job()
    if holders.stop(job):
        return 0
    engine = _engine(None)
    try:
        nodes = engine.nodes()
        if nodes.job != job or not engine.runs(nodes):
            raise Failed(_NONE)
        engine.cancel(nodes)
        until = time.monotonic() + _SWEPT_SECONDS
        while engine.runs(nodes):
            if time.monotonic() > until:
                raise Failed("Slurm does not end the agents' step -> `scancel` ends the job")
            time.sleep(_LOOK_AGAIN)
    except NoEngine:
        raise Failed(_NONE) from None
    return 0


def _job() -> int:
    """Return the job of the cluster around this command. Raises Failed."""
    named = os.environ.get("NODECTL_CLUSTER", "").partition(".")[0] or os.environ.get("SLURM_JOB_ID", "")
    if not named.isdecimal():
        raise Failed(_NONE)
    return int(named)
