"""Strict decoding of socket messages: checks the shape before any meaning.

A shape is a mapping from parameter name to a check; an unknown parameter, a missing one and a wrong type are each an
error with the parameter's name. Optional parameters are wrapped in `Optional`. Used by the daemon and the stepd; pure.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check = Callable[[object], str]  # "" for a value of the shape, else the fault
    Shape = Mapping[str, "Check | Optional"]


class BadShape(ValueError):
    """Raised when a method does not accept `parameter`; str() is a line."""

    def __init__(self, parameter: str, reason: str) -> None:
        super().__init__(f"{parameter}: {reason}")
        self.parameter = parameter


class Optional:
    """A parameter which may be absent (or null)."""

    __slots__ = ("check",)

    def __init__(self, check: "Check") -> None:
        self.check = check


def check(parameters: object, shape: "Mapping[str, Check | Optional]") -> "Mapping[str, object]":
    """Return `parameters` without nulls if the shape fits. Raises BadShape."""
    if not isinstance(parameters, dict):
        raise BadShape("parameters", "not an object")
    for name in parameters:
        if name not in shape:
            raise BadShape(str(name)[:64], "no such parameter")
    found = {}
    # A launch has few of its many parameters.
    for name in [name for name, rule in shape.items() if name in parameters or not isinstance(rule, Optional)]:
        value, rule = parameters.get(name), shape[name]
        if value is None:
            if isinstance(rule, Optional):
                continue
            raise BadShape(name, "missing")
        wrong = rule.check(value) if isinstance(rule, Optional) else rule(value)
        if wrong:
            raise BadShape(name, wrong)
        found[name] = value
    return found


def an_object(value: object) -> str:
    """Accept any object: the shape of a value with a separate, later check."""
    return "" if isinstance(value, dict) else "not an object"


def integer(low: int, high: int) -> "Check":
    """Return a check for a whole number from `low` to `high`."""

    def verify(value: object) -> str:
        if not isinstance(value, int) or isinstance(value, bool):
            return "not a whole number"
        return "" if low <= value <= high else f"{_shown(value)} is not from {low} to {high}"

    return verify


def _shown(number: int) -> str:
    return str(number) if number.bit_length() <= 128 else f"a number of {number.bit_length()} bits"


def boolean(value: object) -> str:
    """Check for true or false."""
    return "" if isinstance(value, bool) else "not true or false"


def text(limit: int) -> "Check":
    """Return a check for a string of at most `limit` characters without NUL."""

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
    """Return False for surrogates which stand for no byte, and so fit in no file name and no environment."""
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def array(element: "Check", *, most: int) -> "Check":
    """Return a check for a list of at most `most` elements, each checked by `element`."""

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
    """Return a check for an object of at most `most` values, each checked by `element`.

    Names are non-empty and hold neither NUL nor '='.
    """

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
