"""Nodes and UpdateNode: the machine as jobs see it, and whether jobs may start on it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodectl.daemon.methods.show_queue import WORD
from nodectl.wire.dispatch import Call, Refused
from nodectl.wire.shape import Optional

if TYPE_CHECKING:
    from nodectl.wire.shape import Shape

UPDATE_NODE: "Shape" = {"state": WORD, "reason": Optional(WORD)}


class Nodes:
    """The methods of one node."""

    def nodes(self, call: Call) -> Mapping[str, object]:
        """The machine."""
        raise Refused("WrongState", "no queue here yet")

    def update(self, call: Call) -> Mapping[str, object]:
        """Drains it, or lets jobs start again."""
        raise Refused("WrongState", "no queue here yet")
