"""CreateReservation, DeleteReservation and Reservations: what is kept for some users' jobs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodectl.daemon.controller.options import MOMENT
from nodectl.daemon.methods.show_queue import WORD, WORDS
from nodectl.wire.dispatch import Call, Refused
from nodectl.wire.shape import Optional, integer

if TYPE_CHECKING:
    from nodectl.wire.shape import Shape

CREATE: "Shape" = {
    "name": Optional(WORD),
    "start": MOMENT,
    "end": Optional(MOMENT),
    "duration": Optional(integer(1, 100 * 366 * 86_400)),
    "cores": Optional(integer(1, 2**31)),
    "cpus": Optional(integer(1, 2**31)),
    "users": WORDS,
}
DELETE: "Shape" = {"name": WORD}


class Reservations:
    """The methods of one node."""

    def create(self, call: Call) -> Mapping[str, object]:
        """Makes one."""
        raise Refused("WrongState", "no queue here yet")

    def delete(self, call: Call) -> Mapping[str, object]:
        """Removes one."""
        raise Refused("WrongState", "no queue here yet")

    def reservations(self, call: Call) -> Mapping[str, object]:
        """All of them."""
        raise Refused("WrongState", "no queue here yet")
