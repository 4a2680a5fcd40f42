"""The level of confinement for a step, and the compiled filters for the levels (`nodectl/launch/confine/`).

A helper process compiles the filters into a memfd, which the forkserver has open and which is sealed when it is
complete, unless the filters kept by an earlier daemon still hold. A step with a level waits for them; a step without a
level does not.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Mapping

from nodectl.kernel import _kernel
from nodectl.launch.cgroup.callers import Callers, Origin
from nodectl.launch.confine import kept_programs
from nodectl.launch.confine.confinement import CAP_SETPCAP, LEAST_LANDLOCK
from nodectl.model.config import Config
from nodectl.model.confinement_level import DEFAULT, LEVELS, NONE, STRICT, is_below
from nodectl.model.step import Step
from nodectl.model.wire.dispatch import Call, Refused, invalid
from nodectl.model.wire.framing import Peer
from nodectl.service.daemon.processes.reporting_process import ReportingProcess
from nodectl.service.daemon.steps.live import LiveStep

_SECONDS = 30.0
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class ConfinementLevels:
    """The levels of the node's steps; `live` returns the running steps, `base` is the cgroup of jobs, "" for none."""

    def __init__(self, config: Config, live: Callable[[], Iterable[LiveStep]], base: str) -> None:
        self._config = config
        self._live = live
        self._callers = Callers(base, has_cgroups=bool(base))
        self._kept = f"{config.state_dir}/{kept_programs.NAME}"
        self._making: asyncio.Task[str] | None = None
        self._possible = {NONE}
        self.programs = os.memfd_create("nodectl-secure", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(self.programs, 0o600)
        if config.secure != NONE:
            self._make()  # beside the other preparations of a daemon

    def level_of(self, request: Mapping[str, object], peer: Peer) -> str:
        """Return the level of the requested step. Raises Refused where the level is unknown or too low.

        A process of a step gets no step of a lower level than its own: otherwise it could escape by asking. A process
        at strict gets no step at all, because a step chooses its own directories.
        """
        asked = request.get("secure")
        if asked is not None and asked not in LEVELS:
            raise invalid("secure", f"{asked!r} is none of {', '.join(LEVELS)}")
        level = str(asked or self._config.secure)
        floor = self._config.secure_floor
        if is_below(level, floor):
            raise Refused("NotPermitted", f"secure: {level} is below what this node demands: secure_floor = {floor}")
        if level == STRICT and not self._callers.can_tell:
            why = "without cgroups, and with no_new_privs itself, this service tells no process of a step from others"
            raise Refused("LaunchRefused", f"secure: {level} is not possible here: {why}", exit_status=1)
        own = self._origin(peer)
        if own is not None and own.step.secure == STRICT:
            raise Refused("NotPermitted", f"secure: {own}, at {STRICT}, starts no other: that could write elsewhere")
        if own is None or not is_below(level, own.step.secure):
            return level
        if asked is not None:
            raise Refused("NotPermitted", f"secure: {level} is below {own.step.secure}, the level of {own}, which asks")
        return own.step.secure

    def check_enter(self, live: LiveStep, peer: Peer) -> None:
        """Raise Refused for a caller more confined than the entered step, or of another step and at strict."""
        own = self._origin(peer, entered=live.step)
        if own is not None and (own.step.secure == STRICT or is_below(live.step.secure, own.step.secure)):
            theirs = f"step {live.step}, at secure={live.step.secure}"
            raise Refused("NotPermitted", f"{theirs}, is not entered from {own}, at {own.step.secure}")

    def check_change(self, call: Call, name_of: Callable[[int], str]) -> None:
        """Raise Refused for a process of a strict step, unless the only change is to the process's own job.

        `name_of` returns the name of a job besides its number.
        """
        own = self._origin(call.peer)
        if own is None or own.step.secure != STRICT:
            return
        job, jobs = call.parameters.get("job"), call.parameters.get("jobs", [])
        named = set(jobs if job is None else [job])
        if not own.is_certain or not named or not named <= _own_names(own.step.job_id, name_of):
            raise Refused("NotPermitted", f"secure: {own}, at {STRICT}, changes nothing but its own job")

    def is_ready(self, level: str) -> bool:
        """Return True when a step of the level can begin at once."""
        return level in self._possible

    async def ready(self, level: str) -> None:
        """Wait until a step of the level can begin. Raises Refused where the level is not possible."""
        why = "" if self.is_ready(level) or self._is_made() else await asyncio.shield(self._make())
        if self.is_ready(level):
            return
        if not why:
            why = f"Landlock version {_kernel.landlock_abi()}, and {LEAST_LANDLOCK} is needed: Linux 5.19, lsm=landlock"
        raise Refused("LaunchRefused", f"secure: {level} is not possible here: {why}", exit_status=1)

    async def settle(self) -> None:
        """Stop the compilation and close the memfd, before the daemon ends."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])
        os.close(self.programs)

    def _origin(self, peer: Peer, entered: Step | None = None) -> Origin | None:
        """Return the confined step of the caller, or the step possibly containing the caller. Raises Refused."""
        return self._callers.origin(peer, (live.step for live in self._live()), entered)

    def _is_made(self) -> bool:
        return DEFAULT in self._possible

    def _make(self) -> "asyncio.Task[str]":
        """Return the running compilation; start a new compilation where the last has failed."""
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._compile())
        return self._making

    async def _compile(self) -> str:
        """Compile the filters. Return the error, "" for none."""
        if os.geteuid() == 0 and not _kernel.capabilities()[0] & CAP_SETPCAP:
            return "the service lacks CAP_SETPCAP"
        os.ftruncate(self.programs, 0)
        if kept := kept_programs.read(self._kept):
            os.pwrite(self.programs, kept, 0)
            self._seal()
            return ""
        try:
            process = ReportingProcess(
                "nodectl.launch.confine.seccomp_compiler",
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
            self._seal()
            with contextlib.suppress(OSError):  # the next daemon compiles them, too
                kept_programs.keep(self._kept, os.pread(self.programs, os.fstat(self.programs).st_size, 0))
        return process.results[0]

    def _seal(self) -> None:
        fcntl.fcntl(self.programs, fcntl.F_ADD_SEALS, _SEALS)
        self._possible |= {DEFAULT, STRICT} if _kernel.landlock_abi() >= LEAST_LANDLOCK else {DEFAULT}


def _own_names(number: int, name_of: Callable[[int], str]) -> set[object]:
    """Return the names of a job in calls about steps and in calls about jobs.

    The last task of an array has the array's own number; in calls about jobs that number means the whole array, so it
    is left out.
    """
    name = name_of(number) or str(number)
    return {number, name} if name.startswith(f"{number}_") else {number, name, str(number)}
