"""The automatic start of a cluster by an allocation's first command for several nodes, or without a service here.

Run by `nodectl run` and `nodectl bulk`, before they connect.

Several such commands at a time end with one cluster. On one machine the holder's lock decides which command starts it,
and the other commands wait. Between machines the directory of the agent of rank 0 decides: the start whose agent has
the directory goes on, and the other commands find the gateway of that cluster on their machine.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from nodectl.client import cluster_gateway
from nodectl.client.command import NO_PROGRAM, BadOption, Failed, Program
from nodectl.client.configuration import configured
from nodectl.client.run_options import MAYBE_ARGUMENT, Option, RunParser
from nodectl.client.session import DEFAULT_SOCKET
from nodectl.cluster.engine import program
from nodectl.cluster.engine.slurm import Slurm
from nodectl.cluster.start import holders, starter
from nodectl.cluster.start.words import SERVED
from nodectl.model.number import whole
from nodectl.placement.binding.hostlist import expand
from nodectl.placement.binding.no_layout import NoLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodectl.cluster.start.starter import Outcome

SECONDS = 120.0  # the time limit for all agents to join: another start may have to end first
_LOOK = 0.05
_LOOKS = 20  # before Slurm is asked again
_MOST_NODES = 1 << 20
_ELSE = "`nodectl cluster start` tells it of each node"


def _or_a_plugins(parser: type[RunParser]) -> type[RunParser]:
    """Return a parser for which an unknown option is a plugin's: plugins are not loaded yet."""

    class Lenient(parser):  # type: ignore[misc,valid-type]
        def find(self, name: str) -> Option:
            try:
                return super().find(name)  # type: ignore[no-any-return]
            except BadOption:
                return Option(name, "", "", "", str, has_arg=MAYBE_ARGUMENT)

    return Lenient


def begin(words: Sequence[str], parser: type[RunParser], **how: Any) -> None:
    """Start a cluster if the words of this command need a cluster. Raises Failed, BadOption.

    `parser` is the command's parser, `how` its arguments.
    """
    try:
        several = asks_for_several(words, parser, **how)
    except BadOption:
        if _is_served():
            return  # the command reports the mistake once it has loaded the plugins
        raise
    if several is None or (not several and _is_served()):
        return
    engine = Slurm(os.environ)
    nodes = starter.nodes_of(engine)
    if len(nodes.names) < 2 and _is_served():
        return  # the service reports that there is one node
    if sys.stderr.isatty():
        print(
            f"{Program.name}: starting the cluster of job {nodes.job} on {os.environ['SLURM_JOB_NODELIST']}; "
            "`nodectl cluster stop` ends it",
            file=sys.stderr,
        )
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if _is_there(nodes.job):
            return
        try:
            outcome = starter.start(engine, program.agent(), SECONDS)
        except starter.RunsAlready:
            time.sleep(_LOOK)
            continue
        if not outcome.is_there:
            _follow_another(Slurm(os.environ), outcome)
        elif not cluster_gateway.socket():
            why = next(iter(outcome.missing.values()), "its agent here has ended")
            raise Failed(f"the cluster of job {nodes.job} runs, but not here: {why} -> type it on one of its nodes")
        elif outcome.warning:
            print(f"{Program.name}: {outcome.warning}", file=sys.stderr)
        return
    raise Failed(f"the cluster of job {nodes.job} did not come up within {SECONDS:g} s -> {_ELSE}")


def asks_for_several(words: Sequence[str], parser: type[RunParser], **how: Any) -> bool | None:
    """Return True if the command needs several nodes; None if the command asks for no step. Raises BadOption."""
    parsed = _or_a_plugins(parser)(**how).parse(words)
    values = parsed.values
    if not parsed.wants_step:
        return None
    if parser.wants_program and not parsed.argv:
        raise BadOption(NO_PROGRAM)
    try:
        names = expand(str(values.get("nodelist", "")))
    except NoLayout:
        names = ()  # the service reports the mistake
    least = str(values.get("nodes", "")).partition("-")[0]
    return len(names) > 1 or (whole(least, _MOST_NODES) or 0) > 1


def _is_served() -> bool:
    """Return True if a service on this node takes steps for a single node."""
    return any(os.path.exists(path) for path in (DEFAULT_SOCKET, configured(None).socket))


def _is_there(job: int) -> bool:
    """Return True if the cluster of another command is up.

    If that command ran on this machine, all its nodes must have joined.
    """
    told = holders.ask_status(job)
    return (told is None or set(told["joined"]) == set(told["nodes"])) and bool(cluster_gateway.socket())


def _follow_another(engine: Slurm, outcome: Outcome) -> None:
    """Wait for the gateway of a cluster started elsewhere, after this start failed. Raises Failed.

    Another command was quicker, and Slurm runs its agents; or no start is possible.
    """
    job = outcome.nodes.job
    (name, why), *others = ((name, why) for name, why in outcome.missing.items() if name in outcome.nodes.names)
    until = time.monotonic() + SECONDS
    # A cluster without this machine as a guest has no gateway here, and makes none.
    comes = not (why.startswith(SERVED) and outcome.nodes.guests)
    while comes and time.monotonic() < until and engine.runs(outcome.nodes):
        for _ in range(_LOOKS):
            if cluster_gateway.socket():
                return
            time.sleep(_LOOK)
    if why.startswith(SERVED):
        raise Failed(
            f"the cluster of job {job} was started on another machine, and has no gateway here -> type it there"
        )
    more = f", nor {len(others)} others" if others else ""
    raise Failed(f"the cluster of job {job} could not be started: node {name}: {why}{more} -> {_ELSE}")
