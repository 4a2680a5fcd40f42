"""The confined step of a caller, if any: otherwise programs of a step could escape by asking for more steps.

The place of a caller is fixed when its connection is accepted (`wire/peer_process.py`). A caller that had ended by then
may start and change nothing, and neither may a caller in the cgroup of an ended step. Where the kernel does not tell,
the strictest running step counts in which the caller may be.

Steps without cgroups cannot be told from each other, but from everything else: each process of a confined step has
no_new_privs, which nothing takes back.

Used by the daemon, and by agents of a cluster, at whose gateway its user's commands are.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from nodectl.kernel.processes import has_no_new_privs
from nodectl.launch.cgroup import slurms, tree
from nodectl.model.confinement_level import LEVELS, NONE, STRICT
from nodectl.model.wire import peer_process
from nodectl.model.wire.dispatch import Refused
from nodectl.model.wire.framing import Peer


class Confined(Protocol):
    """A running step; str() is the step's number."""

    @property
    def job_id(self) -> int:
        """The job's id."""

    @property
    def uid(self) -> int:
        """The uid of the step's user."""

    @property
    def secure(self) -> str:
        """The step's level of confinement."""

    @property
    def cgroup(self) -> str:
        """The step's cgroup, "" for none."""


class Origin(NamedTuple):
    """The confined step of a caller. Without `is_certain` the caller may be of the step, or of none."""

    step: Confined
    is_certain: bool

    def __str__(self) -> str:
        return f"step {self.step}" if self.is_certain else f"step {self.step} (of which the caller may be)"


class Callers:
    """The callers of a node. `has_cgroups`: steps have cgroups; `base`: the cgroup of jobs, "" if not known."""

    def __init__(self, base: str, *, has_cgroups: bool) -> None:
        self._base = base
        self._has_cgroups = has_cgroups
        self._all_have_no_new_privs = has_no_new_privs()  # as this process has, from which steps inherit it

    @property
    def can_tell(self) -> bool:
        """True if a process of a confined step can be told from all processes outside of steps."""
        return self._has_cgroups or not self._all_have_no_new_privs

    def origin(self, peer: Peer, running: Iterable[Confined], entered: Confined | None = None) -> Origin | None:
        """Return the confined step in which the caller is or may be; of several steps, the strictest.

        A step that it enters, `entered`, does not count. Raises Refused for a caller that has ended, or whose step is
        over.
        """
        running = list(running)
        try:
            place = peer_process.place_of(peer)
        except peer_process.PeerGone as gone:
            raise _nothing(str(gone)) from None
        own = next((step for step in running if place and _is_below(place, step.cgroup)), None)
        if own is not None:
            return Origin(own, is_certain=True) if own is not entered and _confines(own, peer) else None
        if tree.is_of_job(place, self._base) or slurms.is_of_step(place):
            raise _nothing(f"process {peer.pid} is of a step that is over")
        if tree.is_of_notice(place, self._base):  # of a job, which it outlives, and no less confined
            raise _nothing(f"process {peer.pid} is of a mail or a command of --notify")
        steps = [step for step in self._it_may_be_in(peer, place, running) if step is not entered]
        return Origin(max(steps, key=lambda step: LEVELS.index(step.secure)), is_certain=False) if steps else None

    def _it_may_be_in(self, peer: Peer, place: str, running: list[Confined]) -> list[Confined]:
        """Return the confined steps in which the caller may be. Raises Refused for a caller of an ended step."""
        steps = [step for step in running if _confines(step, peer)]
        unplaced = [step for step in steps if not (place and step.cgroup)]
        if self._has_cgroups and not unplaced:
            return []
        has_it = peer.inode >= 0 or has_no_new_privs(peer.pid)
        if not peer.lives():  # in this order: otherwise another process may have its number by now
            raise _nothing(f"process {peer.pid} connected and has ended")
        if has_it and not (steps or self._has_cgroups or self._all_have_no_new_privs):
            why = "has no_new_privs, as what is left of a confined step, and without cgroups nothing tells them apart"
            raise _nothing(f"process {peer.pid} {why}")
        return unplaced if has_it else []


def _nothing(why: str) -> Refused:
    return Refused("NotPermitted", f"{why}: it starts and changes nothing")


def _is_below(place: str, cgroup: str) -> bool:
    return bool(cgroup) and f"{place}/".startswith(f"{cgroup}/")


def _confines(step: Confined, peer: Peer) -> bool:
    """Return True if a process of this uid can be of a confined program of the step.

    Confined programs cannot change their uid, except root's that keep a capability for it.
    """
    return step.secure != NONE and (peer.uid == step.uid or (step.uid == 0 and step.secure != STRICT))
