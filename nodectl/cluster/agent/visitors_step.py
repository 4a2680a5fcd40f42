"""The confined step of this node in which a visitor of the gateway runs: a step started from there is no less confined.

To the node's daemon, all calls through the gateway come from the agent, which is in no step. The gateway therefore
looks up the caller as the daemon does (`cgroup/callers.py`), by data of the kernel.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from nodectl.launch.cgroup.callers import Callers, Origin
from nodectl.model.confinement_level import LEVELS, NONE, STRICT, is_below, strictest
from nodectl.model.step_number import step_name
from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import Refused

if TYPE_CHECKING:
    from nodectl.cluster.agent.calls import Calls

CHANGING = ("Signal", "Suspend", "Resume", "SuspendJob", "ResumeJob", "Cancel")
LOOKED_AT = ("Launch", "View", *CHANGING)  # methods that could let a program exceed its rights


class _Step(NamedTuple):
    """A step as listed by the node's daemon."""

    job_id: int
    name: str
    uid: int
    secure: str
    cgroup: str

    def __str__(self) -> str:
        return self.name


class VisitorsStep:
    """The lookup of visitors' steps.

    `calls` reaches the node's daemon; `default` is the level there of steps that ask for none; `has_cgroups`: whether
    steps have cgroups there.
    """

    def __init__(self, calls: "Calls", default: str, *, has_cgroups: bool) -> None:
        self._calls = calls
        self._default = default
        self._callers = Callers("", has_cgroups=has_cgroups)

    async def held(self, peer: framing.Peer, method: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters of the visitor's call, with at least the visitor's level for a launched step.

        Raises Refused where the visitor may not make this call, and Failed.
        """
        own = await self._origin(peer)
        if own is None:
            return parameters
        level = own.step.secure
        if method in CHANGING:
            if level == STRICT and not (own.is_certain and _names(parameters) == {str(own.step)}):
                raise Refused("NotPermitted", f"secure: {own}, at {level}, changes nothing but itself")
            return parameters
        if method != "Launch":
            raise Refused("NotPermitted", f"from {own}, at {level}, no other is looked into")
        if level == STRICT:
            raise Refused("NotPermitted", f"secure: {own}, at {level}, starts no other: that could write elsewhere")
        request = parameters.get("request")
        if not isinstance(request, dict):
            return parameters  # the leader reports the mistake
        asked = request.get("secure")
        if asked in LEVELS and is_below(asked, level):
            raise Refused("NotPermitted", f"secure: {asked} is below {level}, the level of {own}, which asks")
        if asked is None:
            request = {**request, "secure": strictest(level, self._default)}
        return {**parameters, "request": request}

    async def _origin(self, peer: framing.Peer) -> Origin | None:
        """Return the confined step in which the visitor is or may be. Raises Refused, Failed."""
        reply, fds = await self._calls.ask("List", {})
        framing.close(fds)
        own = self._callers.origin(peer, [_step(row) for row in reply["steps"]])
        if own is None and not peer.lives():  # its step may have ended before the daemon was asked
            raise Refused("NotPermitted", f"process {peer.pid} connected and has ended: it starts and changes nothing")
        return own


def _step(row: Mapping[str, Any]) -> _Step:
    name = step_name(int(row["job"]), int(row["step"]))
    return _Step(int(row["job"]), name, int(row["uid"]), str(row.get("secure") or NONE), str(row.get("cgroup") or ""))


def _names(parameters: Mapping[str, Any]) -> set[str]:
    """Return the steps named in a changing call."""
    job, step = parameters.get("job"), parameters.get("step")
    if isinstance(job, int) and isinstance(step, int):
        return {step_name(job, step)}
    jobs = parameters.get("jobs")
    return {str(one) for one in jobs} if isinstance(jobs, list) else set()
