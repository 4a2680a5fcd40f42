"""Reserve and Launch: a number for a step that a client is about to ask for, and the step itself.

A request is looked at in both methods alike: who asks, what they may have, where the tasks would go. Launch then starts
the step (`start.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from nodectl.cgroup import tree
from nodectl.cgroup.constraints import Constraints
from nodectl.config import Config
from nodectl.daemon.admission import hard_limits, launch_request
from nodectl.daemon.admission.accounts import User, Users
from nodectl.daemon.admission.binder import Binder
from nodectl.daemon.admission.confinement import ConfinementLevels
from nodectl.daemon.admission.current_plugstack import CurrentPlugstack
from nodectl.daemon.admission.job_cpus import JobCpus
from nodectl.daemon.admission.user_budget import UserBudget
from nodectl.daemon.history.store import Store
from nodectl.daemon.jobs import further_steps
from nodectl.daemon.jobs.further_steps import FurtherSteps
from nodectl.daemon.jobs.registry import JOB
from nodectl.daemon.methods.start import StepStart
from nodectl.model.step import Step
from nodectl.wire.dispatch import Call, invalid
from nodectl.wire.shape import BadShape, Optional, check

Reply = Mapping[str, object]
_Answer = Callable[[Call, Mapping[str, object], User, str], Reply | Awaitable[Reply]]
_STREAMS = 3


def _request(value: object) -> str:
    """The shape of a request, which has a shape of its own and is checked later."""
    return "" if isinstance(value, dict) else "not an object"


RESERVE = {"jobid": Optional(JOB), "request": Optional(_request)}
LAUNCH = {"request": _request}


class Launch:
    """The methods of one node. `base` is the path below the cgroup2 mount where jobs live, "" without cgroups. `config`
    is set anew when the node reads its configuration again.
    """

    def __init__(  # made once, of everything that a launch needs
        self, config: Config, base: str, store: Store, *, users: Users, plugstack: CurrentPlugstack, binder: Binder,
        constraints: Constraints, levels: ConfinementLevels, budget: UserBudget, numbers: FurtherSteps,
        job_cpus: JobCpus, start: StepStart,
    ) -> None:  # fmt: skip
        self.config = config
        self._base = base
        self._store = store
        self._users = users
        self._plugstack = plugstack
        self._binder = binder
        self._constraints = constraints
        self._hard_limits = hard_limits.of_tasks(config)
        self._levels = levels
        self._budget = budget
        self._numbers = numbers
        self._job_cpus = job_cpus
        self._start = start

    def reserve(self, call: Call) -> Reply | Awaitable[Reply]:
        """A number. Where the call says what it is for, that is looked at as at the launch."""
        if "request" in call.parameters:
            return self._consider(call, self._reserve_for)
        return self._numbers.reserve(call)

    def _reserve_for(self, call: Call, request: Mapping[str, object], user: User, level: str) -> Reply:
        return self._numbers.reserve(call, self._made(call, request, user, level))

    def launch(self, call: Call) -> Reply | Awaitable[Reply]:
        """Starts a step."""
        if call.fds not in (0, _STREAMS):
            raise invalid("request", f"comes with {call.fds} descriptors instead of none or three")
        return self._consider(call, self._admit)

    def _consider(self, call: Call, answer: _Answer) -> Reply | Awaitable[Reply]:
        """Answers at once for a known user's own step, so that thousands of short steps do not wait in line."""
        try:
            request = check(call.parameters["request"], launch_request.REQUEST)
        except BadShape as error:
            raise invalid(error.parameter, str(error).partition(": ")[2]) from None
        known = None if "uid" in request or "gid" in request else self._users.known(call.peer.uid)
        level = self._levels.level_of(request, call.peer)
        if known is None or not self._levels.is_ready(level):
            return self._look_up(call, request, level, answer)
        return answer(call, request, known, level)

    async def _look_up(self, call: Call, request: Mapping[str, object], level: str, answer: _Answer) -> Reply:
        await self._levels.ready(level)
        user = await launch_request.who_runs(self._users, request, call.peer.uid)
        answered = answer(call, request, user, level)
        return await answered if isinstance(answered, Awaitable) else answered

    def _made(self, call: Call, request: Mapping[str, object], user: User, level: str) -> Step:
        self._budget.check(user.uid, int(str(request["ntasks"])))
        return launch_request.make_step(
            request, user, self.config, caller=call.peer.uid, stack=self._plugstack.get().entries,
            binder=self._binder, constraints=self._constraints, hard_limits=self._hard_limits, secure=level,
        )  # fmt: skip

    def _admit(self, call: Call, request: Mapping[str, object], user: User, level: str) -> Reply | Awaitable[Reply]:
        step = self._made(call, request, user, level)
        first = self._numbers.first_for(request, call.peer.uid, user.uid)
        if first is not None:
            further_steps.fit(step, first, request)
            self._job_cpus.claim(step, first)
        # Not before: a request that makes no sense takes no job's number.
        job, number = self._numbers.take(request, call.peer.uid, first)
        if first is None and "job" not in request:
            asyncio.get_running_loop().call_soon(self._store.draw_next_job)
        step.job_id, step.step_id = job, number
        step.cgroup = tree.step_path(self._base, job, number) if self._base else ""
        return self._start.begin(step, call)
