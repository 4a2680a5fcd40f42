"""What neighbours say to each other, read: each value is checked before it is used."""

from collections.abc import Mapping
from typing import NamedTuple

from nodectl.cluster import tree
from nodectl.cluster.mesh.roll import Addresses, Entry

_MOST_ADDRESSES = 64


class BadWords(Exception):
    """A word is missing or is not what it has to be."""


class Census(NamedTuple):
    """Whom `at` has directly beneath it: all of them. `turn` counts: on two ways an older one may come later."""

    at: int
    turn: int
    entries: list[Entry]

    @classmethod
    def of(cls, words: Mapping[str, object]) -> "Census":
        """Raises BadWords."""
        return cls(number(words, "at"), number(words, "turn"), entries_of(words))

    def words(self) -> dict[str, object]:
        """As it is sent."""
        return {"say": "census", "at": self.at, "turn": self.turn, "there": [[*entry] for entry in self.entries]}


class Join(NamedTuple):
    """Somebody wants to stand beneath us. `avoid` are those whom it could not reach."""

    rank: int
    turn: int
    addresses: Addresses
    avoid: tuple[int, ...]
    first: bool  # it has never stood beneath anybody

    @classmethod
    def of(cls, words: Mapping[str, object], count: int) -> "Join":
        """Raises BadWords."""
        rank = number(words, "rank")
        if not tree.LEADER <= rank < count or rank == tree.ROOT:
            raise BadWords(f"rank {rank} of {count} cannot join")
        avoid = tuple(one for one in _list(words, "avoid") if isinstance(one, int))
        return cls(rank, number(words, "turn"), addresses_of(words.get("addresses")), avoid, words.get("first") is True)


def number(words: Mapping[str, object], name: str) -> int:
    """Raises BadWords."""
    value = words.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadWords(f"{name} is no number")
    return value


def text(words: Mapping[str, object], name: str) -> str:
    """Raises BadWords."""
    value = words.get(name)
    if not isinstance(value, str):
        raise BadWords(f"{name} is no text")
    return value


def addresses_of(value: object) -> Addresses:
    """Pairs of host and port. Raises BadWords."""
    if not isinstance(value, list) or len(value) > _MOST_ADDRESSES:
        raise BadWords("no list of addresses")
    found = []
    for one in value:
        if not (isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], int)):
            raise BadWords("an address that is none")
        found.append((one[0], one[1]))
    return tuple(found)


def ranks_of(words: Mapping[str, object], name: str) -> list[tuple[int, object]]:
    """Pairs of a rank and something. Raises BadWords."""
    found = []
    for one in _list(words, name):
        if not (isinstance(one, list) and len(one) == 2 and isinstance(one[0], int)):
            raise BadWords(f"{name} has an entry that is none")
        found.append((one[0], one[1]))
    return found


def entries_of(words: Mapping[str, object]) -> list[Entry]:
    """Of a census. Raises BadWords."""
    found = []
    for one in _list(words, "there"):
        if not (isinstance(one, list) and len(one) == 3 and isinstance(one[0], int) and isinstance(one[1], int)):
            raise BadWords("a census with an entry that is none")
        found.append(Entry(one[0], one[1], addresses_of(one[2])))
    return found


def _list(words: Mapping[str, object], name: str) -> list[object]:
    value = words.get(name)
    if not isinstance(value, list):
        raise BadWords(f"{name} is no list")
    return value
