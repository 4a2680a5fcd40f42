"""Parse the control messages between neighbours: check every value before use."""

from collections.abc import Mapping
from typing import NamedTuple

from nodectl.cluster import tree
from nodectl.cluster.mesh.roll import Addresses, Entry

_MOST_ADDRESSES = 64


class BadWords(Exception):
    """A value is missing or malformed."""


class Census(NamedTuple):
    """All ranks directly beneath `at`. `turn` counts up: by two ways an older census may arrive later."""

    at: int
    turn: int
    entries: list[Entry]

    @classmethod
    def of(cls, words: Mapping[str, object]) -> "Census":
        """Parse a census. Raises BadWords."""
        return cls(number(words, "at"), number(words, "turn"), entries_of(words))

    def words(self) -> dict[str, object]:
        """Return the census as sent."""
        return {"say": "census", "at": self.at, "turn": self.turn, "there": [[*entry] for entry in self.entries]}


class Join(NamedTuple):
    """A request to stand beneath the receiver. `avoid` are ranks out of the sender's reach."""

    rank: int
    turn: int
    addresses: Addresses
    avoid: tuple[int, ...]
    first: bool  # the sender has never had a parent

    @classmethod
    def of(cls, words: Mapping[str, object], count: int) -> "Join":
        """Parse a join request. Raises BadWords."""
        rank = number(words, "rank")
        if not tree.LEADER <= rank < count or rank == tree.ROOT:
            raise BadWords(f"rank {rank} of {count} cannot join")
        avoid = tuple(one for one in _list(words, "avoid") if isinstance(one, int))
        return cls(rank, number(words, "turn"), addresses_of(words.get("addresses")), avoid, words.get("first") is True)


def number(words: Mapping[str, object], name: str) -> int:
    """Return the integer `name`. Raises BadWords."""
    value = words.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadWords(f"{name} is no number")
    return value


def text(words: Mapping[str, object], name: str) -> str:
    """Return the string `name`. Raises BadWords."""
    value = words.get(name)
    if not isinstance(value, str):
        raise BadWords(f"{name} is no text")
    return value


def addresses_of(value: object) -> Addresses:
    """Parse a list of pairs of host and port. Raises BadWords."""
    if not isinstance(value, list) or len(value) > _MOST_ADDRESSES:
        raise BadWords("no list of addresses")
    found = []
    for one in value:
        if not (isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], int)):
            raise BadWords("an address that is none")
        found.append((one[0], one[1]))
    return tuple(found)


def ranks_of(words: Mapping[str, object], name: str) -> list[tuple[int, object]]:
    """Parse a list of pairs of a rank and a value. Raises BadWords."""
    found = []
    for one in _list(words, name):
        if not (isinstance(one, list) and len(one) == 2 and isinstance(one[0], int)):
            raise BadWords(f"{name} has an entry that is none")
        found.append((one[0], one[1]))
    return found


def entries_of(words: Mapping[str, object]) -> list[Entry]:
    """Parse the entries of a census. Raises BadWords."""
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
