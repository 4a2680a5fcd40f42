"""Strict decoding of what comes over a socket: first the shape, then the meaning.

A shape is a mapping from parameter name to a check; an unknown parameter, a missing one and a wrong type are each an
error with the parameter's name. Optional parameters are wrapped in `Optional`. Used by the daemon and the stepd; pure.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check = Callable[[object], str]  # "" when the value is of the shape, else what is wrong with it
    Shape = Mapping[str, "Check | Optional"]


class BadShape(ValueError):
    """`parameter` is not what the method takes; str() is one line."""

    def __init__(self, parameter: str, reason: str) -> None:
        super().__init__(f"{parameter}: {reason}")
        self.parameter = parameter


class Optional:
    """A parameter that may be absent (or null)."""

    __slots__ = ("check",)

    def __init__(self, check: "Check") -> None:
        self.check = check


def check(parameters: object, shape: "Mapping[str, Check | Optional]") -> "Mapping[str, object]":
    """`parameters` if they are of the shape, nulls left out. Raises BadShape."""
    if not isinstance(parameters, dict):
        raise BadShape("parameters", "not an object")
    for name in parameters:
        if name not in shape:
            raise BadShape(str(name)[:64], "no such parameter")
    found = {}
    for name, rule in shape.items():
        value = parameters.get(name)
        if value is None:
            if isinstance(rule, Optional):
                continue
            raise BadShape(name, "missing")
        wrong = rule.check(value) if isinstance(rule, Optional) else rule(value)
        if wrong:
            raise BadShape(name, wrong)
        found[name] = value
    return found


def integer(low: int, high: int) -> "Check":
    """A whole number from `low` to `high`."""

    def verify(value: object) -> str:
        if not isinstance(value, int) or isinstance(value, bool):
            return "not a whole number"
        return "" if low <= value <= high else f"{_shown(value)} is not from {low} to {high}"

    return verify


def _shown(number: int) -> str:
    return str(number) if number.bit_length() <= 128 else f"a number of {number.bit_length()} bits"


def boolean(value: object) -> str:
    """true or false."""
    return "" if isinstance(value, bool) else "not true or false"


def text(limit: int) -> "Check":
    """A string of at most `limit` characters without NUL."""

    def verify(value: object) -> str:
        if not isinstance(value, str):
            return "not a string"
        if "\0" in value:
            return "holds a NUL byte"
        if not value.isascii() and not _is_bytes(value):
            return "holds a character that is no byte and no Unicode"
        return "" if len(value) <= limit else f"longer than {limit} characters"

    return verify


def _is_bytes(value: str) -> bool:
    """False for surrogates other than those that stand for odd bytes: no file name and no environment can hold them."""
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def array(element: "Check", *, most: int) -> "Check":
    """A list of at most `most` such elements."""

    def verify(value: object) -> str:
        if not isinstance(value, list):
            return "not a list"
        if len(value) > most:
            return f"more than {most} elements"
        for index, item in enumerate(value):
            wrong = element(item)
            if wrong:
                return f"element {index} is {wrong}" if wrong.startswith("not") else f"element {index}: {wrong}"
        return ""

    return verify


def mapping(element: "Check", *, most: int) -> "Check":
    """An object with at most `most` such values; names are non-empty and hold neither NUL nor '='."""

    def verify(value: object) -> str:
        if not isinstance(value, dict):
            return "not an object"
        if len(value) > most:
            return f"more than {most} entries"
        for name, item in value.items():
            if not name or "=" in name or "\0" in name or not (name.isascii() or _is_bytes(name)):
                return f"{name[:64]!r} is no name"
            wrong = element(item)
            if wrong:
                return f"{name[:64]}: {wrong}"
        return ""

    return verify
