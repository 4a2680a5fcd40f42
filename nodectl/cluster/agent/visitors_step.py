"""In which step of this node a command at the door runs, where that is confined: what it starts is to be no less.

To its daemon all that comes through the door is the agent's, which is in no step: so the door looks, as the daemon does
(`daemon/admission/confinement.py`), by the kernel's word. Where steps have no cgroups nobody can tell.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nodectl.model.confinement_level import LEVELS, NONE, STRICT, is_below, strictest
from nodectl.model.step_number import step_name
from nodectl.tracing.recorder import cgroup_of
from nodectl.wire import framing, peer_process
from nodectl.wire.dispatch import Refused

if TYPE_CHECKING:
    from nodectl.cluster.agent.calls import Calls


class VisitorsStep:
    """`calls` reaches the node's daemon; `default` is the level there of steps that ask for none."""

    def __init__(self, calls: "Calls", default: str) -> None:
        self._calls = calls
        self._default = default

    async def held(self, peer: framing.Peer, method: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """The parameters of the visitor's call, which starts a step or looks into one, for a step that is no less
        confined than the visitor. Raises Refused where there is none, and Failed.
        """
        own = await self._of(peer)
        if own is None:
            return parameters
        level = str(own["secure"])
        name = step_name(int(own["job"]), int(own["step"]))
        if method != "Launch":
            raise Refused("NotPermitted", f"from step {name}, at {level}, no other is looked into")
        if level == STRICT:
            raise Refused(
                "NotPermitted", f"secure: step {name}, at {level}, starts no other: that could write elsewhere"
            )
        request = parameters.get("request")
        if not isinstance(request, dict):
            return parameters  # the leader says what is wrong with it
        asked = request.get("secure")
        if asked in LEVELS and is_below(asked, level):
            why = f"secure: {asked} is below {level}, the level of step {name}, which asks"
            raise Refused("NotPermitted", why)
        if asked is None:
            request = {**request, "secure": strictest(level, self._default)}
        return {**parameters, "request": request}

    async def _of(self, peer: framing.Peer) -> Mapping[str, Any] | None:
        """The visitor's step, if that is confined. A visitor that has gone, or cannot be told from others that may have
        its number, may be of any such step. Raises Failed.
        """
        reply, fds = await self._calls.ask("List", {})
        framing.close(fds)
        steps: list[Mapping[str, Any]] = [step for step in reply["steps"] if _is_confined(step)]
        if not steps:
            return None
        peer_process.prove(peer)
        place = cgroup_of(peer.pid)
        if not place or not peer.lives():  # in this order: otherwise another process may have its number by now
            return max(steps, key=lambda step: LEVELS.index(str(step["secure"])))
        return next((step for step in steps if f"{place}/".startswith(f"{step['cgroup']}/")), None)


def _is_confined(step: Mapping[str, Any]) -> bool:
    level = step.get("secure")
    return bool(step.get("cgroup")) and step["uid"] == os.geteuid() and level in LEVELS and is_below(NONE, str(level))
