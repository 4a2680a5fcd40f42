"""Enter and Bcast: a program, or a file, for a running job's container. Who may: the job's user, and root.

The rest of the admin group may not: it would act as the job's user.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from nodectl.daemon.processes.forkserver_channel import ForkserverDied
from nodectl.wire.dispatch import Call, Refused
from nodectl.wire.shape import Optional, array, boolean, integer, mapping, text

if TYPE_CHECKING:
    from nodectl.daemon.node import Node
    from nodectl.wire.shape import Shape

_JOB = {"job": integer(1, 2**32 - 1), "step": integer(0, 2**32 - 1)}
_TERMINAL = ("TERM", "COLORTERM", "LANG")  # what a caller's terminal needs; all else is the job's
_STREAMS_AND_PIPE, _FILE_AND_PIPE = 4, 2


class Visits:
    """The methods of one node."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def methods(self) -> "dict[str, tuple[Shape, Callable[[Call], Awaitable[object]]]]":
        """Rows of the table of methods."""
        word = text(131_072)
        return {
            "Enter": ({**_JOB, "argv": array(word, most=65_536), "environment": mapping(word, most=16)}, self._enter),
            "Bcast": ({**_JOB, "path": text(4096), "mode": integer(0, 0o777), "force": Optional(boolean)}, self._bcast),
        }

    async def _enter(self, call: Call) -> Mapping[str, object]:
        if call.fds != _STREAMS_AND_PIPE:
            raise Refused("InvalidRequest", "Enter comes with four descriptors", parameter="argv")
        environment: Mapping[str, str] = call.parameters["environment"]
        kept = {name: value for name, value in environment.items() if name in _TERMINAL}
        words = {"container": "enter", "argv": call.parameters["argv"], "environment": kept}
        return {"status": await self._visit(call, words)}

    async def _bcast(self, call: Call) -> Mapping[str, object]:
        if call.fds != _FILE_AND_PIPE:
            raise Refused("InvalidRequest", "Bcast comes with a regular file and a pipe", parameter="path")
        names = {name: call.parameters.get(name, False) for name in ("path", "mode", "force")}
        await self._visit(call, {"container": "bcast", **names})
        return {}

    async def _visit(self, call: Call, request: Mapping[str, object]) -> int:
        live = self._node.find_running(call)
        which = f"step {live.step}"
        if not live.pid:
            raise Refused("NoSuchStep", f"{which} has not begun yet")
        if live.suspended:  # where a visitor would be frozen, too
            raise Refused("WrongState", f"{which} is suspended; resume it first")
        if call.peer.uid not in (0, live.step.uid):
            raise Refused("NotPermitted", f"{which} belongs to {live.step.user_name}")
        self._node.securing.check_visit(live, call.peer)
        await self._node.securing.ready(live.step.secure)
        try:
            answer = await self._node.containers.visit({**request, "spec": live.files.spec}, call)
        except (OSError, ForkserverDied) as error:
            why = f"{which}: {request['container']}: {getattr(error, 'strerror', None) or error}"
            raise Refused("LaunchRefused", why, exit_status=1) from None
        if answer["why"]:
            raise Refused("LaunchRefused", f"{which}: {request['container']}: {answer['why']}", exit_status=1)
        return int(str(answer["status"]))
