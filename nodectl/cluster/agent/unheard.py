"""The orders of this node's clients to steps, kept until a leader has confirmed the orders.

Another leader may follow before that.
"""

from collections import OrderedDict
from collections.abc import Mapping

from nodectl.cluster.agent.post import Header, Key, Post
from nodectl.cluster.tree import LEADER

_HANG_UP = {"method": "hangup", "parameters": {}}
_MOST_REMEMBERED = 4096


class Unheard:
    """The unconfirmed orders, and the steps of disconnected clients.

    Each order has a number, the leader confirms it, and a part carries it out once, even if it is repeated. Each leader
    is told of disconnected clients whenever it may have missed the message.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self._orders: OrderedDict[int, Header] = OrderedDict()
        self._hung_up: OrderedDict[Key, None] = OrderedDict()
        self._count = 0

    def order(self, key: Key, method: str, parameters: Mapping[str, object]) -> None:
        """Send an order: a signal, or the end of a step."""
        self._count -= 1  # calls of the gateway have numbers above 0
        call = {"method": method, "parameters": parameters}
        self._orders[self._count] = {"id": self._count, "job": key[0], "step": key[1], "call": call}
        while len(self._orders) > _MOST_REMEMBERED:
            self._orders.popitem(last=False)
        self._post.send(LEADER, "order", self._orders[self._count])

    def heard(self, rank: int, header: Header, body: bytes) -> None:
        """Handle the leader's confirmation."""
        self._orders.pop(int(header["id"]), None)

    def hang_up(self, key: Key) -> None:
        """Tell the leader about the step of a disconnected client."""
        remember(self._hung_up, key)
        self._say(key)

    def _say(self, key: Key) -> None:
        self._post.send(LEADER, "order", {"job": key[0], "step": key[1], "call": _HANG_UP})

    def say_again(self) -> None:
        """Repeat the orders to a leader back again, or to a new leader."""
        for header in self._orders.values():
            self._post.send(LEADER, "order", header)
        for key in self._hung_up:
            self._say(key)


def remember(keys: OrderedDict[Key, None], key: Key) -> None:
    """Add a key, and keep only the latest keys."""
    keys[key] = None
    while len(keys) > _MOST_REMEMBERED:
        keys.popitem(last=False)
