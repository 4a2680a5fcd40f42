"""Cancel, Hold, ReleaseJobs, Requeue, UpdateJob, SuspendJob and ResumeJob: what is done to jobs of the queue."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodectl.daemon.admission.launch_request import MEMORY
from nodectl.daemon.controller.options import LONGEST_LIST, MOMENT, NICE, PRIORITY
from nodectl.daemon.methods.show_queue import ONE_JOB, WORD, WORDS
from nodectl.wire.dispatch import Call, Refused
from nodectl.wire.shape import Optional, boolean, integer, text

if TYPE_CHECKING:
    from nodectl.wire.shape import Shape

CANCEL: "Shape" = {
    **{name: Optional(WORDS) for name in ("jobs", "users", "names", "states")},
    "signal": Optional(integer(1, 64)),
    "batch": Optional(boolean),
}
JOBS: "Shape" = {"jobs": WORDS}
REQUEUE: "Shape" = {"jobs": WORDS, "hold": Optional(boolean)}
_YEAR = 366 * 86_400
UPDATE_JOB: "Shape" = {
    **ONE_JOB,
    "time_limit": Optional(integer(0, _YEAR)),
    "priority": Optional(PRIORITY),
    "nice": Optional(NICE),
    "begin": Optional(MOMENT),
    "deadline": Optional(MOMENT),
    "dependency": Optional(text(LONGEST_LIST)),
    "qos": Optional(WORD),
    "reservation": Optional(WORD),
    "requeue": Optional(boolean),
    "name": Optional(WORD),
    "comment": Optional(WORD),
    "mem": Optional(MEMORY),
    "array_limit": Optional(integer(0, 2**31)),
}


class Control:
    """The methods of one node."""

    def cancel(self, call: Call) -> Mapping[str, object]:
        """Ends or signals jobs."""
        raise Refused("WrongState", "no queue here yet")

    def hold(self, call: Call) -> Mapping[str, object]:
        """Keeps waiting jobs from starting."""
        raise Refused("WrongState", "no queue here yet")

    def release(self, call: Call) -> Mapping[str, object]:
        """Lets held jobs wait for their turn."""
        raise Refused("WrongState", "no queue here yet")

    def requeue(self, call: Call) -> Mapping[str, object]:
        """Puts running batch jobs into the queue again."""
        raise Refused("WrongState", "no queue here yet")

    def update(self, call: Call) -> Mapping[str, object]:
        """Changes a job."""
        raise Refused("WrongState", "no queue here yet")

    def suspend(self, call: Call) -> Mapping[str, object]:
        """Stops a running job."""
        raise Refused("WrongState", "no queue here yet")

    def resume(self, call: Call) -> Mapping[str, object]:
        """Lets a suspended job go on."""
        raise Refused("WrongState", "no queue here yet")
