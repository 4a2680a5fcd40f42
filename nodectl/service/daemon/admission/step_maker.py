"""From a request to a Step: the parts of the node needed to make a step, in a single place.

A launch makes the step of its request at once. A batch job's step is made when the job is submitted, to check the
request, and again when the job starts. Used only from the event loop.
"""

import os
import resource
from collections.abc import Mapping

from nodectl.launch.cgroup.constraints import Constraints
from nodectl.launch.task.keys import hard_limit
from nodectl.model.config import Config
from nodectl.model.step import Step
from nodectl.model.wire.dispatch import Refused, shaped
from nodectl.placement.machine.thread_limit import most_threads
from nodectl.service.daemon.admission import launch_request
from nodectl.service.daemon.admission.accounts import User, Users
from nodectl.service.daemon.admission.binder import Binder
from nodectl.service.daemon.admission.confinement import ConfinementLevels
from nodectl.service.request import launch
from nodectl.spank.current_plugstack import CurrentPlugstack

_OF_A_LOGIN = ("NPROC", "MEMLOCK", "CORE")
_FIRST = 1  # its pid


class StepMaker:
    """The step maker of the node. `config` is set anew when the node reads the configuration again."""

    def __init__(  # made once, of all parts that a step needs
        self, config: Config, *, users: Users, plugstack: CurrentPlugstack, binder: Binder, constraints: Constraints,
        levels: ConfinementLevels,
    ) -> None:  # fmt: skip
        self.config = config
        self.users = users
        self.binder = binder
        self._plugstack = plugstack
        self._constraints = constraints
        self._hard_limits = hard_limits(config)
        self.levels = levels

    def shaped(self, request: object) -> Mapping[str, object]:
        """Return a request after a check of the shape. Raises Refused."""
        return shaped(request, launch.REQUEST)

    def known_user(self, request: Mapping[str, object], caller: int) -> User | None:
        """Return the account to run the step, None where a look-up is needed."""
        if "uid" in request or "gid" in request or _is_of_another(caller):
            return None
        return self.users.known(caller)

    async def user_of(self, request: Mapping[str, object], caller: int) -> User:
        """Return the account to run the step, after a look-up if needed. Raises Refused."""
        user = self.known_user(request, caller) or await launch_request.who_runs(self.users, request, caller)
        if _is_of_another(user.uid):
            raise Refused("NotPermitted", f"this is the own node of uid {os.geteuid()}, which starts no others' steps")
        return user

    def make(self, request: Mapping[str, object], user: User, caller: int, level: str) -> Step:
        """Return the step, without number, share and cgroup. Raises Refused."""
        return launch_request.make_step(
            request, user, self.config, caller=caller, stack=self._plugstack.get().entries, binder=self.binder,
            constraints=self._constraints, hard_limits=self._hard_limits, secure=level,
        )  # fmt: skip


def _is_of_another(uid: int) -> bool:
    """Return True on a user's own node for any other uid."""
    return uid != os.geteuid() != 0


def hard_limits(config: Config) -> dict[str, int]:
    """Return the hard limits of tasks by names without RLIMIT_, -1 for infinity.

    A limit that is not configured is the limit of a login session, which has the limits of the first process unless its
    system says otherwise; pam_limits(8) of Debian does the same. Three of them are used: a user's processes, which the
    kernel counts over all of them, locked memory, and core files. No user has more processes than half of the machine's
    threads, which is the kernel's own default, nor than half of its numbers for processes.
    """
    limits = {name: _of_the_first(name) for name in _OF_A_LOGIN}
    half = most_threads() // 2
    limits["NPROC"] = half if limits["NPROC"] < 0 else min(limits["NPROC"], half)
    return limits | dict(map(hard_limit, config.task_hard_limits))


def _of_the_first(name: str) -> int:
    number = getattr(resource, f"RLIMIT_{name}")
    try:
        hard = resource.prlimit(_FIRST, number)[1]
    except OSError:  # in a container the first process may belong to another user
        hard = resource.getrlimit(number)[1]
    return -1 if hard == resource.RLIM_INFINITY else hard
