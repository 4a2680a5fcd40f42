"""The methods of org.nodectl.step, for the step's user and the daemon. Runs in the stepd, as root.

Only the daemon may call `Confine` (new limits), `Limit` (a new time limit), `Victim` (a process that the kernel
killed), `Say` (a line for the user), and `End` with a state and a reason. Only the daemon may call `Suspend` and
`Resume`, because the queue may have given the CPUs of a suspended job to another job.
"""

from nodectl import messages
from nodectl.kernel.identity import BEGAN_AS
from nodectl.kernel.signals import KILL, TERM, TSTP
from nodectl.model.states import CANCELLED, COMPLETED, NODE_FAIL, PREEMPTED, RUNNING, SUSPENDED, TIMEOUT
from nodectl.model.step_number import EXTERN
from nodectl.model.wire.dispatch import STEP, Refused
from nodectl.model.wire.names import QUEUED_AGAIN
from nodectl.model.wire.shape import Optional, boolean, integer, mapping, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.launch.stepd.run import Commands, Run
    from nodectl.launch.stepd.termination import Termination
    from nodectl.model.wire.dispatch import Call

_UID = integer(0, 2**32 - 1)
_CONFINE = {"memory": integer(0, 1 << 40), "limits": mapping(text(65_536), most=64)}
_END = {"state": Optional(text(32)), "reason": Optional(text(4096))}
_DUE_TO = {PREEMPTED: "DUE TO PREEMPTION", TIMEOUT: "DUE TO TIME LIMIT", NODE_FAIL: "DUE TO NODE FAILURE"}
_LIMIT = {"time_limit": integer(0, 366 * 86_400)}
_OTHERS = mapping(integer(-(1 << 40), 1 << 40), most=3)
_VICTIM = {"task": integer(0, 1 << 20), "pid": integer(1, 1 << 22), "name": text(64)}


class Methods:
    """The methods of a step, and the parts of the step needed by the methods."""

    __slots__ = ("_run", "_termination")

    def __init__(self, run: "Run", termination: "Termination") -> None:
        self._run = run
        self._termination = termination

    def table(self) -> "Mapping[str, tuple[object, object]]":
        """Return each method with the shape of the parameters."""
        return {
            f"{STEP}.Attach": ({}, self._attach),
            f"{STEP}.Status": ({}, self._status),
            f"{STEP}.Suspend": ({"by_owner": Optional(boolean)}, self._suspend),
            f"{STEP}.Resume": ({}, self._resume),
            f"{STEP}.Signal": (
                {"signal": integer(1, 64), "forwarded": Optional(boolean), "by": Optional(_UID)},
                self._signal,
            ),
            f"{STEP}.End": (_END, self._end),
            f"{STEP}.Confine": (_CONFINE, self._confine),
            f"{STEP}.Limit": (_LIMIT, self._limit),
            f"{STEP}.Victim": (_VICTIM, self._victim),
            f"{STEP}.Say": ({"text": text(1024)}, self._say),
            f"{STEP}.Run": ({"commands": _a_list, "others": Optional(_OTHERS)}, self._run_commands),
            f"{STEP}.NoMore": ({}, self._no_more),
            f"{STEP}.Withdraw": ({}, self._withdraw),
        }

    def _allow(self, call: "Call") -> None:
        if call.peer.uid not in (0, self._run.step.uid):
            raise Refused(f"{STEP}.NotPermitted", f"step {self._run.step} belongs to {self._run.step.user_name}")

    def _attach(self, call: "Call") -> "Mapping[str, object]":
        self._allow(call)
        if self._run.bulk is not None and call.peer.uid in (0, BEGAN_AS):  # a client's calls cost the service nothing
            self._run.bulk.tell_again()
        return {}

    def _status(self, call: "Call") -> "Mapping[str, object]":
        self._allow(call)
        status = self._run.status()
        suspension = self._termination.suspension
        if suspension.suspended:
            status = {**status, "state": SUSPENDED, "by_owner": suspension.by_owner}
        return {"step": status}

    def _suspend(self, call: "Call") -> "Mapping[str, object]":
        _allow_service(call)
        self._termination.suspension.begin(by_owner=bool(call.parameters.get("by_owner")))
        self._termination.signal(TSTP)
        return {}

    def _resume(self, call: "Call") -> "Mapping[str, object]":
        _allow_service(call)
        self._termination.suspension.end()
        return {}

    def _signal(self, call: "Call") -> "Mapping[str, object]":
        self._allow(call)
        number: int = call.parameters["signal"]
        if number != KILL:
            self._termination.suspension.refuse_if_suspended()
        if number in (TERM, KILL):
            # Only the daemon, which is root, may say on whose behalf it calls.
            uid = call.parameters.get("by", 0) if call.peer.uid == 0 else call.peer.uid
            reason = f"signal {number} by uid {uid}"
            if not self._termination.runs():
                self._termination.cut_short(reason, 0 if number == KILL else self._run.step.kill_wait)
            elif not call.parameters.get("forwarded"):
                self._run.announce_cancel("")
                self._run.end_as(CANCELLED, reason)
        self._termination.signal(number)
        return {}

    def _end(self, call: "Call") -> "Mapping[str, object]":
        self._allow(call)
        if call.parameters:
            _allow_service(call)
            wanted = call.parameters.get("state") == COMPLETED  # by its user
            if self._termination.runs() and self._run.state == RUNNING and not wanted:
                again = call.parameters.get("reason", "").startswith(QUEUED_AGAIN)
                due = "DUE TO JOB REQUEUE" if again else _DUE_TO.get(call.parameters.get("state", ""), "")
                self._run.announce_cancel(due)
        reason = call.parameters.get("reason", f"interrupted by uid {call.peer.uid}")
        state = call.parameters.get("state", self._ended_by_client())
        self._termination.cut_short(reason, self._run.step.kill_wait, state)
        return {}

    def _ended_by_client(self) -> str:
        """Return COMPLETED for an allocation, which the client gives back, CANCELLED for any step else."""
        return COMPLETED if self._run.step.step_id == EXTERN else CANCELLED

    def _confine(self, call: "Call") -> "Mapping[str, object]":
        _allow_service(call)
        step = self._run.step
        step.memory, limits = call.parameters["memory"], call.parameters["limits"]
        step.limits.update(limits)
        if self._run.group is not None:
            try:
                self._run.group.child("user").write(limits)
            except OSError:
                pass  # not made yet, or gone: the plugin will write them, or no process needs them
        return {}

    def _limit(self, call: "Call") -> "Mapping[str, object]":
        _allow_service(call)
        self._termination.limit(call.parameters["time_limit"])
        return {}

    def _victim(self, call: "Call") -> "Mapping[str, object]":
        _allow_service(call)
        if call.parameters["task"] < len(self._run.tasks):
            task = self._run.tasks[call.parameters["task"]]
            if self._run.bulk is not None:
                task.out_of_memory = True  # of a command; there may be any number of them
            else:
                self._run.end_reasons.add_victim(task, call.parameters["pid"], call.parameters["name"])
        return {}

    def _say(self, call: "Call") -> "Mapping[str, object]":
        """Tell the step's user something, on standard error."""
        _allow_service(call)
        messages.say(messages.PLAIN, f"nodectl: {call.parameters['text']}")
        return {}

    def _commands(self, call: "Call") -> "Commands":
        self._allow(call)
        if self._run.bulk is None:
            raise Refused(f"{STEP}.WrongState", f"step {self._run.step} takes no commands")
        return self._run.bulk

    def _run_commands(self, call: "Call") -> "Mapping[str, object]":
        """Add commands to a bulk step. End the step if the client breaks the rules, having lost count."""
        bulk = self._commands(call)
        try:
            bulk.take(call.parameters["commands"], call.parameters.get("others"))
        except ValueError as error:
            self._termination.end(CANCELLED, str(error))
            raise Refused(f"{STEP}.WrongState", str(error)) from None
        return {}

    def _no_more(self, call: "Call") -> "Mapping[str, object]":
        self._commands(call).closed = True
        return {}

    def _withdraw(self, call: "Call") -> "Mapping[str, object]":
        self._commands(call).withdraw()
        return {}


def _a_list(value: object) -> str:
    """Check only for a list: `bulk.take` checks the commands, once."""
    return "" if isinstance(value, list) else "not a list"


def _allow_service(call: "Call") -> None:
    """Refuse any peer but the service. Raises Refused.

    The service is root, as this process is; the service of a node of a user's own is that user.
    """
    if call.peer.uid not in (0, BEGAN_AS):  # not the current uid: a plugin may have changed that
        raise Refused(f"{STEP}.NotPermitted", "only the service, which is root, says that")
