"""Submit and TestOnly: a batch job for the queue, and what would become of one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodectl.daemon.controller.options import an_object
from nodectl.wire.dispatch import Call, Refused
from nodectl.wire.shape import text

if TYPE_CHECKING:
    from nodectl.wire.shape import Shape

_LONGEST_SCRIPT = 1 << 30  # characters; the key max_script_size bounds its bytes
SUBMIT: "Shape" = {"request": an_object, "job": an_object, "script": text(_LONGEST_SCRIPT)}
TEST_ONLY: "Shape" = {"request": an_object, "job": an_object}


class Submit:
    """The methods of one node."""

    def submit(self, call: Call) -> Mapping[str, object]:
        """Takes a batch job."""
        raise Refused("WrongState", "no queue here yet")

    def test_only(self, call: Call) -> Mapping[str, object]:
        """Says when and where a job would start."""
        raise Refused("WrongState", "no queue here yet")
