"""The search for a parent: ancestors are asked, the nearest first, until one takes us. No I/O, no clock."""

from collections.abc import Iterable

from nodectl.cluster import tree
from nodectl.cluster.mesh.core import Above
from nodectl.cluster.mesh.envelope import Header
from nodectl.cluster.mesh.roll import Addresses
from nodectl.cluster.mesh.words import BadWords, addresses_of, ranks_of


class NotJoined(Exception):
    """Nobody has taken us; str() is one line."""


class Search:
    """`above` are whom we know, the root last. `avoided` are those whom others know and we could not reach."""

    def __init__(self, above: Above, avoided: Iterable[int] = ()) -> None:
        self._above = above
        self._left: Above = []
        self._asked = tree.ROOT
        self.avoided = list(avoided)
        self.why = "nobody is known who could be asked"
        self.again()

    def again(self) -> None:
        """From the beginning: those who were avoided come last, but for the root."""
        self._left = sorted(self._above, key=lambda one: (one[0] in self.avoided, -one[0]))

    def next(self) -> Addresses | None:
        """The addresses of whom to ask now; None when all were asked: `again`, after a while."""
        if not self._left:
            return None
        self._asked, addresses = self._left.pop(0)
        return addresses

    def failed(self, why: str) -> None:
        """Whom we asked last does not answer, or does not want us."""
        self.why = why
        if self._asked != tree.ROOT and self._asked not in self.avoided:
            self.avoided.append(self._asked)

    def answered(self, say: str, words: Header) -> bool:
        """True where we are welcome. Raises NotJoined where we are lost."""
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
