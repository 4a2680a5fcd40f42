"""Which level of confinement a step gets, and the programs that it takes (`nodectl/confine/`).

The programs are compiled once in a daemon's life, by a process of its own, into a memfd that the forkserver has open
and that is sealed when it is whole. A step of a level waits for them; one without does not.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterable, Mapping

from nodectl.config import Config
from nodectl.confine.confinement import CAP_SETPCAP, LEAST_LANDLOCK
from nodectl.daemon.processes.reporting_process import ReportingProcess
from nodectl.daemon.reception import peer_process
from nodectl.daemon.steps.live import LiveStep
from nodectl.kernel import _kernel
from nodectl.model.confinement_level import DEFAULT, LEVELS, NONE, STRICT, is_below
from nodectl.model.step import Step
from nodectl.tracing.recorder import cgroup_of
from nodectl.wire.dispatch import Refused, invalid
from nodectl.wire.framing import Peer

_SECONDS = 30.0
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}  # its library is looked for with ldconfig
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class ConfinementLevels:
    """The levels of one node's steps; `live` gives the running ones."""

    def __init__(self, config: Config, live: Callable[[], Iterable[LiveStep]]) -> None:
        self._config = config
        self._live = live
        self._making: asyncio.Task[str] | None = None
        self._possible = {NONE}
        self.programs = os.memfd_create("nodectl-secure", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(self.programs, 0o600)
        if config.secure != NONE:
            self._make()  # beside the other preparations of a daemon

    def level_of(self, request: Mapping[str, object], peer: Peer) -> str:
        """The level of the step that is asked for. Raises Refused: it is none, or below what must be.

        A process of a step gets no step of a lower level than its own, and one at strict none at all, because that has
        directories of its own choice: else it would only have to ask.
        """
        asked = request.get("secure")
        if asked is not None and asked not in LEVELS:
            raise invalid("secure", f"{asked!r} is none of {', '.join(LEVELS)}")
        level = str(asked or self._config.secure)
        floor = self._config.secure_floor
        if is_below(level, floor):
            raise Refused("NotPermitted", f"secure: {level} is below what this node demands: secure_floor = {floor}")
        own = self._confined_caller(level, peer)
        if own is not None and own.secure == STRICT:
            raise Refused(
                "NotPermitted", f"secure: step {own}, at {STRICT}, starts no other: that could write elsewhere"
            )
        if asked is not None and own is not None:
            raise Refused("NotPermitted", f"secure: {level} is below {own.secure}, the level of step {own}, which asks")
        return level if own is None else own.secure

    def check_enter(self, live: LiveStep, peer: Peer) -> None:
        """Raises Refused for a caller that is more confined than whom it visits, or at strict and of another step."""
        own = self._confined_caller(live.step.secure, peer, visited=live)
        if own is not None:
            theirs = f"step {live.step}, at secure={live.step.secure}"
            raise Refused("NotPermitted", f"{theirs}, is not visited from step {own}, at {own.secure}")

    def is_ready(self, level: str) -> bool:
        """True when a step of the level can begin at once."""
        return level in self._possible

    async def ready(self, level: str) -> None:
        """Waits until a step of the level can begin. Raises Refused where it cannot."""
        why = "" if self.is_ready(level) or self._is_made() else await asyncio.shield(self._make())
        if self.is_ready(level):
            return
        if not why:
            why = f"Landlock version {_kernel.landlock_abi()}, and {LEAST_LANDLOCK} is needed: Linux 5.19, lsm=landlock"
        raise Refused("LaunchRefused", f"secure: {level} is not possible here: {why}", exit_status=1)

    async def settle(self) -> None:
        """Before the daemon ends."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])
        os.close(self.programs)

    def _confined_caller(self, level: str, peer: Peer, visited: LiveStep | None = None) -> Step | None:
        """The step above this level, or at strict, a process of which the peer is; one that has gone may have been of
        any. That which it visits is not looked at.
        """
        steps = [
            live.step
            for live in self._live()
            if live is not visited and live.step.cgroup and _may_be(peer.uid, live.step)
            if live.step.secure == STRICT or is_below(level, live.step.secure)
        ]
        if not steps:
            return None
        peer_process.prove(peer)
        place = cgroup_of(peer.pid)
        if not place or not peer.lives():  # in this order: else it may be the place of who has its number now
            return max(steps, key=lambda step: LEVELS.index(step.secure))
        return next((step for step in steps if f"{place}/".startswith(f"{step.cgroup}/")), None)

    def _is_made(self) -> bool:
        return DEFAULT in self._possible

    def _make(self) -> "asyncio.Task[str]":
        """The making that is under way; where one has failed, another."""
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._compile())
        return self._making

    async def _compile(self) -> str:
        """Returns why there are no programs, "" when there are."""
        if not _kernel.capabilities()[0] & CAP_SETPCAP:
            return "the service lacks CAP_SETPCAP"
        os.ftruncate(self.programs, 0)
        try:
            process = ReportingProcess(
                "nodectl.confine.seccomp_compiler",
                {},
                environment=_ENVIRONMENT,
                seconds=_SECONDS,
                extra=[self.programs],
            )
        except OSError as error:
            return str(error)
        await process.end()
        if not process.results:
            return f"the compiler of system call filters {process.how_it_ended()}"
        if not process.results[0]:
            fcntl.fcntl(self.programs, fcntl.F_ADD_SEALS, _SEALS)
            self._possible |= {DEFAULT, STRICT} if _kernel.landlock_abi() >= LEAST_LANDLOCK else {DEFAULT}
        return process.results[0]


def _may_be(uid: int, step: Step) -> bool:
    """True where a process of the step can have this user's id: confined programs become nobody else, except root's
    that have a capability left for it.
    """
    return uid == step.uid or (step.uid == 0 and step.secure != STRICT)
