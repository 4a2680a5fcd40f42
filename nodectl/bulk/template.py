"""Command lines made of values: {} and the further replacements of GNU parallel.

A template is read once; for each line its parts are put together. Where the first word contains a replacement, the
values are commands themselves, and are not quoted.
"""

from typing import TYPE_CHECKING

from nodectl.bulk.shell import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Values = Sequence[str]
    Part = Callable[[Values, int], str]

_SEQUENCE, _SLOT = "#", "%"


def _same(value: str) -> str:
    return value


def without_extension(value: str) -> str:
    """{.}: a/b.c becomes a/b."""
    dot = value.rfind(".")
    return value if dot < 0 or "/" in value[dot:] else value[:dot]


def base(value: str) -> str:
    """{/}: a/b.c becomes b.c."""
    return value.rpartition("/")[2]


def directory(value: str) -> str:
    """{//}: a/b.c becomes a, as with dirname(1)."""
    head = value.rstrip("/").rpartition("/")
    if not head[1]:
        return "/" if value.startswith("/") else "."
    return head[0].rstrip("/") or "/"


def base_without_extension(value: str) -> str:
    """{/.}: a/b.c becomes b."""
    return without_extension(base(value))


OPERATIONS = {"": _same, ".": without_extension, "/": base, "//": directory, "/.": base_without_extension}


class Template:
    """A template for command lines.

    `slot` marks the slot's number in the lines. `names`: the names of the columns, with --header.
    """

    __slots__ = ("_parts", "has_number", "has_slot", "replaces", "text")

    def __init__(
        self, text: str, *, mark: str = "{}", slot: str = "{%}", names: "Mapping[str, int] | None" = None,
        quoting: bool = True,
    ) -> None:  # fmt: skip
        self.text = text
        self._parts: list[str | Part] = []
        self.has_slot = self.has_number = self.replaces = False  # the last: any value
        first_word = len(text.partition(" ")[0])
        found = _read(text, mark, names or {})
        quoted = quoting and not any(at < first_word and not isinstance(part, str) for at, part in found)
        for _, part in found:
            if isinstance(part, str):
                self._parts.append(part)
            elif part is _slot:
                self._parts.append(slot)
                self.has_slot = True
            else:
                self._parts.append(part(quoted))
                self.has_number = self.has_number or part is _number
                self.replaces = self.replaces or part is not _number

    def line(self, values: "Values", number: int) -> str:
        """Return the line of the command with this number."""
        return "".join([part if isinstance(part, str) else part(values, number) for part in self._parts])


def _read(text: str, mark: str, names: "Mapping[str, int]") -> "list[tuple[int, str | Callable[[bool], Part]]]":
    """Return the parts with their positions: text, or the maker of a replacement."""
    found: list[tuple[int, str | Callable[[bool], Part]]] = []
    plain = at = 0
    while at < len(text):
        end, part = at, None
        if text.startswith(mark, at):
            end, part = at + len(mark), _all(_same)
        elif text[at] == "{" and (close := text.find("}", at)) > 0:
            end, part = close + 1, _replacement(text[at + 1 : close], names, own=mark == "{}")
        if part is None:
            at += 1
            continue
        if plain < at:
            found.append((plain, text[plain:at]))
        found.append((at, part))
        plain = at = end
    if plain < len(text):
        found.append((plain, text[plain:]))
    return found


def _slot(_quoted: bool) -> "Part":
    raise NotImplementedError  # stands for itself: the step puts the number in


def _number(_quoted: bool) -> "Part":
    return lambda _values, number: str(number)


def _replacement(inner: str, names: "Mapping[str, int]", *, own: bool) -> "Callable[[bool], Part] | None":
    """Return the maker of the replacement between braces, None where the text is no replacement."""
    if inner == _SEQUENCE:
        return _number
    if inner == _SLOT:
        return _slot
    for ending in ("//", "/.", "/", ".", ""):
        if not inner.endswith(ending):
            continue
        name, operation = inner[: len(inner) - len(ending)], OPERATIONS[ending]
        if name in names:
            return _one(names[name], operation)
        if not name:
            return _all(operation) if ending or own else None
        digits = name.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) < 7 and int(digits):
            number = int(digits)
            return _one(-number if name[0] == "-" else number - 1, operation)
    return None


def _one(index: int, operation: "Callable[[str], str]") -> "Callable[[bool], Part]":
    def made(quoted: bool) -> "Part":
        def part(values: "Values", _number: int) -> str:
            try:
                value = operation(values[index])
            except IndexError:
                return ""
            return quote(value) if quoted else value

        return part

    return made


def _all(operation: "Callable[[str], str]") -> "Callable[[bool], Part]":
    def made(quoted: bool) -> "Part":
        def part(values: "Values", _number: int) -> str:
            if len(values) == 1:
                value = operation(values[0])
                return quote(value) if quoted else value
            changed = [operation(value) for value in values]
            return " ".join([quote(value) for value in changed] if quoted else changed)

        return part

    return made
