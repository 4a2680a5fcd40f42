"""Enter and Bcast: a program, or a file, for a running job's container. Allowed to the job's user, and to root.

The rest of the admin group may not: it would act as the job's user.
"""

from collections.abc import Mapping

from nodectl.model.wire.dispatch import Call, Refused
from nodectl.model.wire.shape import Optional, array, boolean, integer, mapping, text
from nodectl.service.daemon.admission.confinement import ConfinementLevels
from nodectl.service.daemon.jobs.containers import Containers
from nodectl.service.daemon.jobs.registry import WHICH, Registry
from nodectl.service.daemon.processes.forkserver_channel import ForkserverDied
from nodectl.service.daemon.steps.live import LiveStep

_WORD = text(131_072)
ENTER = {**WHICH, "argv": array(_WORD, most=65_536), "environment": mapping(_WORD, most=16)}
_TIME = integer(-(1 << 62), 1 << 62)  # nanoseconds
BCAST = {
    **WHICH, "path": text(4096), "mode": integer(0, 0o777), "force": Optional(boolean),
    "times": Optional(array(_TIME, most=2)),
}  # fmt: skip
_TERMINAL = ("TERM", "COLORTERM", "LANG")  # what a caller's terminal needs; all else is the job's
_STREAMS_AND_PIPE, _FILE_AND_PIPE = 4, 2


class Enter:
    """The methods of the node to enter containers."""

    def __init__(self, registry: Registry, levels: ConfinementLevels, containers: Containers) -> None:
        self._registry = registry
        self._levels = levels
        self._containers = containers

    async def enter(self, call: Call) -> Mapping[str, object]:
        """Run a program in the container. Reply when the program has ended."""
        if call.fds != _STREAMS_AND_PIPE:
            raise Refused("InvalidRequest", "Enter comes with four descriptors", parameter="argv")
        environment: Mapping[str, str] = call.parameters["environment"]
        kept = {name: value for name, value in environment.items() if name in _TERMINAL}
        words = {"container": "enter", "argv": call.parameters["argv"], "environment": kept}
        return {"status": await self._bring_in(call, words)}

    async def bcast(self, call: Call) -> Mapping[str, object]:
        """Write a file into the container."""
        if call.fds != _FILE_AND_PIPE:
            raise Refused("InvalidRequest", "Bcast comes with a regular file and a pipe", parameter="path")
        names = {name: call.parameters.get(name, False) for name in ("path", "mode", "force")}
        times = call.parameters.get("times") or []
        if len(times) not in (0, 2):
            raise Refused("InvalidRequest", "of access and of modification, both or none", parameter="times")
        await self._bring_in(call, {"container": "bcast", **names, "times": times})
        return {}

    async def _bring_in(self, call: Call, request: Mapping[str, object]) -> int:
        what = str(request["container"])
        try:
            live = self._visited(call)
            what = f"step {live.step}: {what}"
            self._levels.check_enter(live, call.peer)
            await self._levels.ready(live.step.secure)
            answer = await self._containers.enter({**request, "spec": live.files.spec}, call)
        except (OSError, ForkserverDied) as error:  # the service has no descriptor left, or no memory
            why = f"{what}: {getattr(error, 'strerror', None) or error}"
            raise Refused("LaunchRefused", why, exit_status=1) from None
        if answer["why"]:
            raise Refused("LaunchRefused", f"{what}: {answer['why']}", exit_status=1)
        return int(str(answer["status"]))

    def _visited(self, call: Call) -> LiveStep:
        """Return the step whose container the caller may enter. Raises Refused; OSError where the step's files cannot
        be read.
        """
        live = self._registry.find_running(call)
        which = f"step {live.step}"
        if not live.pid:
            raise Refused("NoSuchStep", f"{which} has not begun yet")
        if live.suspended:  # the entering program would be frozen, too
            raise Refused("WrongState", f"{which} is suspended; resume it first")
        if call.peer.uid not in (0, live.step.uid):
            raise Refused("NotPermitted", f"{which} belongs to {live.step.user_name}")
        return live
