"""Allocate and Await: a job whose client waits for its turn and launches its first step itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodectl.daemon.controller.options import an_object
from nodectl.daemon.jobs.registry import JOB
from nodectl.wire.dispatch import Call, Refused
from nodectl.wire.shape import Optional, boolean, text

if TYPE_CHECKING:
    from nodectl.wire.shape import Shape

ALLOCATE: "Shape" = {"request": an_object, "job": an_object, "held_by": text(16)}
AWAIT: "Shape" = {"job": JOB, "seen": text(1024), "step": Optional(boolean)}


class Allocate:
    """The methods of one node."""

    def allocate(self, call: Call) -> Mapping[str, object]:
        """Takes a job that its client waits for."""
        raise Refused("WrongState", "no queue here yet")

    def wait(self, call: Call) -> Mapping[str, object]:
        """Answers when something of the job has changed."""
        raise Refused("WrongState", "no queue here yet")
