"""The lists in --cpu-bind and --mem-bind: numbers or masks, each perhaps repeated, as `0*2,8` or `0x3,c`.

Lean: the languages that read them are imported in the tasks' processes.
"""

from __future__ import annotations

from nodectl.binding.refused import Refused

# A repetition as `0*1000000000` must not cost memory, neither here nor in the environment.
MAX_ENTRIES = 65_536
_HEX = frozenset("0123456789abcdefABCDEF")
_DECIMAL = frozenset("0123456789")


class Entries:
    """A list as it is read. `option`: the word before its colon, for messages; `masks`: it holds hexadecimal masks,
    otherwise numbers, decimal or with 0x; `highest`: the number that may be named; `noun`: of what.
    """

    __slots__ = ("_highest", "_masks", "_noun", "_option", "_values", "_words")

    def __init__(self, option: str, *, masks: bool, highest: int, noun: str) -> None:
        self._option = option
        self._masks = masks
        self._highest = highest
        self._noun = noun
        self._values: list[int] = []
        self._words: list[str] = []

    @property
    def values(self) -> tuple[int, ...]:
        """The numbers or masks, repetitions expanded."""
        return tuple(self._values)

    @property
    def listed(self) -> str:
        """The same in the words of the user."""
        return ",".join(self._words)

    def add(self, element: str) -> None:
        """Read `value` or `value*times`. Raises Refused."""
        text, star, count = element.partition("*")
        value = _hexadecimal(text) if self._masks or text[:2] in ("0x", "0X") else _decimal(text)
        top = value if value is None or not self._masks else max(value.bit_length() - 1, 0)
        if value is None or top is None or top > self._highest:
            kind = "mask" if self._masks else "number"
            raise self._refused(element, f"is not a {kind} of {self._noun} up to {self._highest}")
        times = 1
        if star:
            if not count or not _DECIMAL.issuperset(count) or not count.strip("0"):
                raise self._refused(element, "does not repeat a positive number of times")
            # Bounded in digits first: int() of thousands of them is slow.
            times = int(count) if len(count) <= 9 else MAX_ENTRIES + 1
        if len(self._values) + times > MAX_ENTRIES:
            raise self._refused(element, f"makes the list longer than {MAX_ENTRIES} entries")
        self._values += [value] * times
        self._words += [text] * times

    def _refused(self, element: str, why: str) -> Refused:
        return Refused(f"{self._option}: {shown(element)} {why}")


def without_prefix(listed: str) -> str:
    """A list of masks without 0x, as the variables have it."""
    return ",".join(word[2:] if word[:2] in ("0x", "0X") else word for word in listed.split(","))


def shown(word: str) -> str:
    """A word of the user's as it may stand in a one-line message: quoted, bounded."""
    return repr(word if len(word) <= 60 else word[:57] + "...")


def _decimal(text: str) -> int | None:
    if not text or not _DECIMAL.issuperset(text):
        return None
    return int(text) if len(text) <= 9 else 1 << 62


def _hexadecimal(text: str) -> int | None:
    digits = text[2:] if text[:2] in ("0x", "0X") else text
    if not digits or not _HEX.issuperset(digits):
        return None
    return int(digits, 16)
