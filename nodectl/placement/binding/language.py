"""The common language of `--cpu-bind` and `--mem-bind`: words between commas, flags, and lists up to the next word.

Lean: plugins of the step runner import this module, so no dataclasses, no re.
"""

from __future__ import annotations

from nodectl.placement.binding.entries import MAX_TEXT, Entries, shown
from nodectl.placement.binding.no_layout import NoLayout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Value:
    """A value compared and shown by slots."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__ if getattr(self, name))
        return f"{type(self).__name__}({fields})"


class Words:
    """The parsed words: `flags` by name, the last `word` ("" for none), and the entries of the list."""

    __slots__ = ("entries", "flags", "listed", "word")

    def __init__(self) -> None:
        self.flags: dict[str, bool] = {}
        self.word = ""
        self.entries: tuple[int, ...] = ()
        self.listed = ""


def read(
    option: str,
    text: str,
    flags: Mapping[str, tuple[str, bool]],
    words: Mapping[str, str],
    lists: Mapping[str, Callable[[], Entries]],
) -> Words:
    """Read an option's words, in any case of letters; the last of several words of a kind counts. Raises NoLayout.

    After a list's word every part up to the next word of the language belongs to the list.
    """
    if len(text) > MAX_TEXT:
        raise NoLayout(f"{option}: longer than {MAX_TEXT} characters")
    said = Words()
    entries: Entries | None = None
    in_list = False
    for part in text.split(","):
        word, colon, rest = part.partition(":")
        word = word.lower()
        if not colon and word in flags:
            name, value = flags[word]
            said.flags[name], in_list = value, False
        elif colon and word in lists:
            said.word, in_list = word, True
            entries = lists[word]()
            entries.add(rest)
        elif not colon and word in words:
            said.word, in_list, entries = words[word], False, None
        elif in_list and entries is not None:
            entries.add(part)
        else:
            raise NoLayout(f"unrecognized {option} argument {shown(part)}")
    if entries is not None:
        said.entries, said.listed = entries.values, entries.listed
    return said
