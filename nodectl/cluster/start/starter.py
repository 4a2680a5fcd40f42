"""The starter: has a holder start the agents, and waits until all have joined. The holder stays.

Run by the command `nodectl cluster start`.
"""

from __future__ import annotations

import os
import secrets
import select
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nodectl.client.command import Failed
from nodectl.cluster.engine.engine import Engine, Nodes, NoEngine
from nodectl.cluster.start.holder import Holder, become
from nodectl.cluster.start.place import HoldersPlace, Taken
from nodectl.cluster.start.words import Lines
from nodectl.kernel.closing import close_all_but
from nodectl.model.config import own_node
from nodectl.model.config.own_node import NotOurs
from nodectl.model.wire import lean_json

_KEY_BYTES = 32
_CHUNK = 65536
_MOST_SAID = 64  # lines
_MOST_NAMED = 8
_PATIENCE = 40.0  # seconds for a holder that is to end


class RunsAlready(Failed):
    """A cluster of this job already runs on this machine, or is about to start."""


class Outcome(NamedTuple):
    """The result of a start.

    `missing`: the reason for each node, or guest, that has not joined. `alone`: the nodes without a disk shared with
    the first node.
    """

    nodes: Nodes
    missing: Mapping[str, str]
    alone: Sequence[str] = ()

    @property
    def is_there(self) -> bool:
        """True if the cluster is up, with all nodes."""
        return self.missing.keys().isdisjoint(self.nodes.names)

    @property
    def warning(self) -> str:
        """A line about nodes unable to follow the first node as leader; "" where all nodes can."""
        first, *others = self.nodes.names
        alone = [name for name in others if name in self.alone]
        if not alone:
            return ""
        told = f"{first} and {', '.join(alone[:_MOST_NAMED])}{' ...' if alone[_MOST_NAMED:] else ''}"
        return f"{told} share no {own_node.state_dir()}: if {first} is lost, all end -> set XDG_STATE_HOME"


def nodes_of(engine: Engine) -> Nodes:
    """Return the nodes of the cluster, with this machine as a guest if not among the nodes. Raises Failed."""
    try:
        nodes = engine.nodes()
    except NoEngine as error:
        raise Failed(str(error)) from None
    return nodes._replace(guests=_guests(nodes))


def start(engine: Engine, agent: Sequence[str], seconds: float) -> Outcome:
    """Start `agent` on all nodes. Where a node is missing at the end, stop all nodes again. Raises Failed."""
    nodes = nodes_of(engine)
    try:
        place = HoldersPlace(nodes.job)
        lock = place.take()
    except Taken:
        raise RunsAlready("the cluster of this job runs already -> `nodectl cluster status`") from None
    except (NotOurs, OSError) as error:
        raise Failed(str(error)) from None
    reader, writer = os.pipe2(os.O_CLOEXEC)
    holder = os.fork()
    if holder == 0:
        _detach(place, {writer, lock})
        become(Holder(engine, nodes, secrets.token_bytes(_KEY_BYTES), place, writer), agent)
    os.close(writer)
    os.close(lock)
    waiting = _Waiting(nodes)
    try:
        waiting.read(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)  # if a node is missing, the holder ends the cluster
        if waiting.missing.keys() & {*nodes.names}:
            _wait_for(holder)
    return Outcome(nodes, waiting.reasons(engine, seconds), waiting.alone)


def _guests(nodes: Nodes) -> tuple[str, ...]:
    """Return this machine's name unless the machine is a node: commands typed here need a gateway."""
    here = os.uname().nodename
    is_node = {os.environ.get("SLURMD_NODENAME"), here} & {*nodes.names}
    return () if is_node else (here,)


def _detach(place: HoldersPlace, keep: set[int]) -> None:
    """Redirect the holder's standard streams and close every other descriptor but `keep`.

    An open terminal would stay in use, and a script would wait for the end of its output.
    """
    null = os.open("/dev/null", os.O_RDWR)
    log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, target in ((null, 0), (null, 1), (log, 2)):
        os.dup2(fd, target)
    close_all_but(keep)


def _wait_for(holder: int) -> None:
    end = time.monotonic() + _PATIENCE
    while os.waitpid(holder, os.WNOHANG) == (0, 0) and time.monotonic() < end:
        time.sleep(0.02)


class _Waiting:
    """The holder's messages, until the cluster is up or has failed."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.missing = dict.fromkeys(nodes.members)  # in the order of nodes
        self.alone: list[str] = []
        self._failed: dict[str, str] = {}
        self._said: list[str] = []
        self._over = False

    @property
    def _fails(self) -> bool:
        """True if a node has failed, so there will be no cluster. Guests do not count."""
        return not self._failed.keys().isdisjoint(self._nodes.names)

    def read(self, fd: int, deadline: float) -> None:
        """Read messages until all have joined, a node fails, the holder ends, or `deadline`."""
        lines = Lines()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while self.missing.keys() - self._failed.keys() and not self._over and not self._fails:
            if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
                return
            data = os.read(fd, _CHUNK)
            self._over = not data
            for line in lines.feed(data):
                self._take(lean_json.load_object(line.encode()))

    def _take(self, said: Mapping[str, object]) -> None:
        if "joined" in said:
            self.missing.pop(str(said["joined"]), None)
            if said.get("alone"):
                self.alone.append(str(said["joined"]))
        elif "failed" in said:
            self._failed[str(said["failed"])] = str(said["why"])
        elif "said" in said:
            self._said = [*self._said[-_MOST_SAID:], str(said["said"])]

    def reasons(self, engine: Engine, seconds: float) -> dict[str, str]:
        """Return the best known reason for each missing node; after a failure, only the first failed node's."""
        if not self.missing:
            return {}
        if self._fails:
            return self._first_failure()
        states = engine.states(self._nodes)
        otherwise = f"its agent has not joined within {seconds:g} s"
        if self._over:
            otherwise = self._said[-1] if self._said else "its agent has ended"
        told = {name: f"{engine.name} says that it is {state}" for name, state in states.items()}
        if self.missing.keys() <= {*self._nodes.guests}:
            told |= self._failed
        # Where srun does not reach a node, it ends the others: only the first of these reasons is the cause.
        told |= {name: why for name in self.missing if (why := self._said_of(f"failed on node {name}:"))}
        told = told or {name: why for name in self.missing if (why := self._said_of(f" {name}:", f"-{name}:"))}
        return told or dict.fromkeys(self.missing, otherwise)

    def _first_failure(self) -> dict[str, str]:
        """Return the first failure, with a count of further failures.

        How many nodes fail at the same moment is chance.
        """
        name, *others = (name for name in self._failed if name in self._nodes.names)
        if not others:
            return {name: self._failed[name]}
        reason, arrow, advice = self._failed[name].partition(" -> ")
        return {name: f"{reason}; {len(others)} other{'s' * (len(others) > 1)} failed, too{arrow}{advice}"}

    def _said_of(self, *words: str) -> str | None:
        """Return the last line of srun or slurmstepd with any of `words`."""
        return next((line for line in reversed(self._said) if any(word in line for word in words)), None)
