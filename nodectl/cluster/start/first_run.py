"""The first command of an allocation that asks for more than one node, or that no service is there for, starts the
cluster. Run by `nodectl run` and `nodectl bulk`, before they connect.

Several such commands at a time end with one cluster. On one machine the holder's lock says whose start it is, and the
others wait for it. Among machines it is the directory of the agent of rank 0: whose agent has it goes on, and the
others find the door of that cluster on their machine.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from nodectl.binding.hostlist import expand
from nodectl.binding.refused import Refused
from nodectl.client import cluster_door
from nodectl.client.command import NO_PROGRAM, BadOption, Failed, Program
from nodectl.client.configuration import configured
from nodectl.client.run_options import MAYBE_ARGUMENT, Option, Parser
from nodectl.client.session import DEFAULT_SOCKET
from nodectl.cluster.engine import program
from nodectl.cluster.engine.slurm import Slurm
from nodectl.cluster.start import holders, starter
from nodectl.cluster.start.words import SERVED
from nodectl.model.number import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodectl.cluster.start.starter import Outcome

SECONDS = 120.0  # in which all agents have to be there: another start may have to end first
_LOOK = 0.05
_LOOKS = 20  # before Slurm is asked again
_MOST_NODES = 1 << 20
_ELSE = "`nodectl cluster start` tells it of each node"


def _or_a_plugins(parser: type[Parser]) -> type[Parser]:
    """A parser for which what it does not know is a plugin's option: plugins are not asked yet."""

    class Lenient(parser):  # type: ignore[misc,valid-type]
        def find(self, name: str) -> Option:
            try:
                return super().find(name)  # type: ignore[no-any-return]
            except BadOption:
                return Option(name, "", "", "", str, has_arg=MAYBE_ARGUMENT)

    return Lenient


def begin(words: Sequence[str], parser: type[Parser], **how: Any) -> None:
    """Has a cluster where these words, of a command with this parser, need one. Raises Failed, BadOption."""
    try:
        several = asks_for_several(words, parser, **how)
    except BadOption:
        if _is_served():
            return  # whoever reads them with its plugins says what is wrong
        raise
    if several is None or (not several and _is_served()):
        return
    engine = Slurm(os.environ)
    nodes = starter.nodes_of(engine)
    if len(nodes.names) < 2 and _is_served():
        return  # whoever is asked says that there is one node
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
        elif not cluster_door.socket():
            why = next(iter(outcome.missing.values()), "its agent here has ended")
            raise Failed(f"the cluster of job {nodes.job} runs, but not here: {why} -> type it on one of its nodes")
        elif outcome.warning:
            print(f"{Program.name}: {outcome.warning}", file=sys.stderr)
        return
    raise Failed(f"the cluster of job {nodes.job} did not come up within {SECONDS:g} s -> {_ELSE}")


def asks_for_several(words: Sequence[str], parser: type[Parser], **how: Any) -> bool | None:
    """Whether it cannot be done on one node; None where they ask for no step. Raises BadOption."""
    parsed = _or_a_plugins(parser)(**how).parse(words)
    values = parsed.values
    if not parsed.wants_step:
        return None
    if parser.wants_program and not parsed.argv:
        raise BadOption(NO_PROGRAM)
    try:
        names = expand(str(values.get("nodelist", "")))
    except Refused:
        names = ()  # whoever is asked says what is wrong
    least = str(values.get("nodes", "")).partition("-")[0]
    return len(names) > 1 or (whole(least, _MOST_NODES) or 0) > 1


def _is_served() -> bool:
    """Whether a service on this node takes steps of one node."""
    return any(os.path.exists(path) for path in (DEFAULT_SOCKET, configured(None).socket))


def _is_there(job: int) -> bool:
    """The cluster that another command has started: where that was on this machine, with all of its nodes."""
    told = holders.ask_status(job)
    return (told is None or set(told["joined"]) == set(told["nodes"])) and bool(cluster_door.socket())


def _follow_another(engine: Slurm, outcome: Outcome) -> None:
    """None was started: a command elsewhere was quicker, whose agents Slurm runs; or it cannot be. Raises Failed."""
    job = outcome.nodes.job
    (name, why), *others = ((name, why) for name, why in outcome.missing.items() if name in outcome.nodes.names)
    until = time.monotonic() + SECONDS
    comes = not (why.startswith(SERVED) and outcome.nodes.guests)  # else the others have no door here, and make none
    while comes and time.monotonic() < until and engine.runs(outcome.nodes):
        for _ in range(_LOOKS):
            if cluster_door.socket():
                return
            time.sleep(_LOOK)
    if why.startswith(SERVED):
        raise Failed(f"the cluster of job {job} was started on another machine, and has no door here -> type it there")
    more = f", nor {len(others)} others" if others else ""
    raise Failed(f"the cluster of job {job} could not be started: node {name}: {why}{more} -> {_ELSE}")
