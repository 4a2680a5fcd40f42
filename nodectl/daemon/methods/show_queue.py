"""Queue, ShowJob and ExplainJob: what is known of jobs, and why they wait."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodectl.wire.dispatch import Call, Refused
from nodectl.wire.shape import Optional, array, integer, text

if TYPE_CHECKING:
    from nodectl.wire.shape import Shape

MOST_NAMED = 10_000  # jobs, users or states in one call
WORD = text(1024)
WORDS = array(WORD, most=MOST_NAMED)
QUEUE: "Shape" = {
    **{name: Optional(WORDS) for name in ("jobs", "users", "states", "names")},
    "skip": Optional(integer(0, 2**31)),
}
ONE_JOB: "Shape" = {"job": WORD}


class ShowQueue:
    """The methods of one node."""

    def queue(self, call: Call) -> Mapping[str, object]:
        """The jobs that have not ended."""
        raise Refused("WrongState", "no queue here yet")

    def show_job(self, call: Call) -> Mapping[str, object]:
        """One job."""
        raise Refused("WrongState", "no queue here yet")

    def explain_job(self, call: Call) -> Mapping[str, object]:
        """Why one job waits."""
        raise Refused("WrongState", "no queue here yet")
