"""The lists in --cpu-bind, --mem-bind and --gpu-bind: numbers or masks, perhaps with repetitions: `0*2,8`, `0x3,c`.

Lean: the languages that read them are imported in the tasks' processes.
"""

from __future__ import annotations

from nodectl.model.number import whole
from nodectl.placement.binding.no_layout import NoLayout

# A list becomes a variable of the step, and a step within the step reads it back: it has to fit into one, which the
# kernel bounds at 128 KiB. A repetition as `0*1000000000` must not cost memory either.
MAX_TEXT = 131_072
MAX_LISTED = 131_000
MAX_ENTRIES = 8192
MAX_NODE = 1023
_HEX = frozenset("0123456789abcdefABCDEF")
_PREFIXES = ("0x", "0X")


class Entries:
    """A reader of a list. `option`: the word before the list's colon, for messages.

    `masks`: the list holds hexadecimal masks, otherwise numbers: decimal, or with 0x where `hexadecimal` allows that.
    `highest`: the highest number allowed; `noun`: the counted objects, for messages.
    """

    __slots__ = ("_hexadecimal", "_highest", "_masks", "_noun", "_option", "_room", "_values", "_words")

    def __init__(self, option: str, *, masks: bool, highest: int, noun: str, hexadecimal: bool = True) -> None:
        self._option = option
        self._masks = masks
        self._hexadecimal = hexadecimal
        self._highest = highest
        self._noun = noun
        self._room = MAX_LISTED
        self._values: list[int] = []
        self._words: list[str] = []

    @property
    def values(self) -> tuple[int, ...]:
        """The numbers or masks, repetitions expanded."""
        return tuple(self._values)

    @property
    def listed(self) -> str:
        """The numbers or masks in the words of the user, repetitions expanded."""
        return ",".join(self._words)

    def add(self, element: str) -> None:
        """Read `value` or `value*times`. Raises NoLayout."""
        text, star, count = element.partition("*")
        value = self._mask(text) if self._masks else self._number(text)
        if value is None:
            kind = "mask" if self._masks else "number" if self._hexadecimal else "decimal number"
            raise self._refused(element, f"is not a {kind} of {self._noun} up to {self._highest}")
        times: int | None = 1
        if star:
            times = whole(count, MAX_ENTRIES)
            if times == 0 or not (count.isascii() and count.isdecimal()):
                raise self._refused(element, "does not repeat a positive number of times")
        if times is None or len(self._values) + times > MAX_ENTRIES:
            raise self._refused(element, f"makes the list longer than {MAX_ENTRIES} entries")
        self._room -= times * (len(text) + 1)
        if self._room < 0:
            raise self._refused(element, f"makes the list longer than {MAX_LISTED} characters")
        self._values += [value] * times
        self._words += [text] * times

    def _number(self, text: str) -> int | None:
        if self._hexadecimal and text.startswith(_PREFIXES):
            number = hexadecimal(text)
            return number if number is not None and number <= self._highest else None
        return whole(text, self._highest)

    def _mask(self, text: str) -> int | None:
        mask = hexadecimal(text)
        return mask if mask is not None and mask.bit_length() <= self._highest + 1 else None

    def _refused(self, element: str, why: str) -> NoLayout:
        return NoLayout(f"{self._option}: {shown(element)} {why}")


def without_prefix(listed: str) -> str:
    """Return a list of masks without 0x, as in the variables."""
    return ",".join(word[2:] if word.startswith(_PREFIXES) else word for word in listed.split(","))


def shown(word: str) -> str:
    """Return a user's word for a message of a single line: quoted and shortened."""
    return repr(word if len(word) <= 60 else word[:57] + "...")


def hexadecimal(text: str) -> int | None:
    """Return the number of a text of hexadecimal digits, with or without 0x; None for any different text."""
    digits = text[2:] if text.startswith(_PREFIXES) else text
    return int(digits, 16) if digits and _HEX.issuperset(digits) else None
