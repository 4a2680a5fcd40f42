"""The search for a parent: the order in which to ask ancestors, the nearest first. No I/O, no clock."""

from collections.abc import Iterable

from nodectl.cluster import tree
from nodectl.cluster.mesh.core import Above
from nodectl.cluster.mesh.envelope import Header
from nodectl.cluster.mesh.roll import Addresses
from nodectl.cluster.mesh.words import BadWords, addresses_of, ranks_of


class NotJoined(Exception):
    """No rank has accepted this member. str() is a single line."""


class Search:
    """A search for a parent.

    `above` are the known ancestors, the root last. `avoided` are ancestors that could not be reached.
    """

    def __init__(self, above: Above, avoided: Iterable[int] = ()) -> None:
        self._above = above
        self._left: Above = []
        self._asked = tree.ROOT
        self.avoided = list(avoided)
        self.why = "no node is known that could be asked"
        self.again()

    def again(self) -> None:
        """Start over. Avoided ranks come last, except the root."""
        self._left = sorted(self._above, key=lambda one: (one[0] in self.avoided, -one[0]))

    def next(self) -> Addresses | None:
        """Return the addresses of the next rank to ask; None when all were asked: call `again` after a while."""
        if not self._left:
            return None
        self._asked, addresses = self._left.pop(0)
        return addresses

    def failed(self, why: str) -> None:
        """Record a failure: the last rank asked does not answer, or refuses."""
        self.why = why
        if self._asked != tree.ROOT and self._asked not in self.avoided:
            self.avoided.append(self._asked)

    def answered(self, say: str, words: Header) -> bool:
        """Handle an answer. Return True for a welcome. Raises NotJoined where this rank is lost."""
        if say == "welcome":
            return True
        if say == "go":
            try:
                self._left = [(rank, addresses_of(rest)) for rank, rest in ranks_of(words, "to")] + self._above[-1:]
            except BadWords as error:
                self.failed(str(error))
            return False
        why = str(words.get("why"))
        if words.get("lost"):
            raise NotJoined(why)
        self.failed(why)
        return False
