"""JSON by the interpreter's own C scanner and encoder, without the `json` package around both.

`import json` brings `re` and `enum` along: 8 ms, more than a bare interpreter's whole start, paid by every `nodectl
run`, and 0.9 MiB of a forkserver's 5.9. The C parts underneath are the same. Text is ASCII on the wire: bytes that are
not UTF-8 (file names, environment values) travel as lone surrogates, as `os.fsdecode` makes them, and arrive unchanged.

Used by every process; no state.
"""

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class BadJson(ValueError):
    """Raised for text which is no JSON value; str() is the fault in a line."""


class _Settings:
    """The settings of the C scanner, normally a `json.JSONDecoder`."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float: object = float
    parse_int: object = int
    memo: "dict[str, str]" = {}  # noqa: RUF012  # the scanner clears it after each value

    @staticmethod
    def parse_constant(name: str) -> object:
        raise BadJson(f"{name} is not a JSON value")


_MOST_DIGITS = 40


class Fraction:
    """A number with a fraction or an exponent in a call. No parameter takes one, so that the check of its type refuses
    the call, with the parameter's name.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text[:_MOST_DIGITS]


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise BadJson(f"a number of {len(text)} digits")
    return int(text)


class _SettingsOfCalls(_Settings):
    """Of what a user sends. Numbers are read in a time that grows with the square of their digits, and fractions may
    take a hundred times as long as others. No call has such numbers, so that fractions are not read at all.
    """

    parse_float = Fraction
    parse_int = staticmethod(_whole)


_scan = make_scanner(_Settings())  # type: ignore[arg-type]  # duck-typed in C; typeshed says otherwise
_scan_call = make_scanner(_SettingsOfCalls())  # type: ignore[arg-type]
_BLANK = " \t\r\n"


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)


quoted = encode_basestring_ascii  # a str as JSON


def dumps(value: object) -> str:
    """Return `value` as a line of ASCII. Raises TypeError for an unsupported type, ValueError for NaN."""
    return "".join(_encode(value, 0))


def loads(text: str, scan: "Callable[[str, int], tuple[object, int]]" = _scan) -> object:
    """Return the value in `text`. Raises BadJson, also for values nested too deeply."""
    stripped = text.strip(_BLANK)
    try:
        value, end = scan(stripped, 0)
    except StopIteration:
        raise BadJson("no JSON value") from None
    except RecursionError:
        raise BadJson("nested too deeply") from None
    except BadJson:
        raise
    except (SystemError, ValueError):
        # The scanner builds its message with json.decoder, and fails with SystemError if that is not imported.
        raise BadJson("malformed JSON") from None
    if end != len(stripped):
        raise BadJson(f"something follows the JSON value at character {end}")
    return value


def load_call(data: bytes) -> "Mapping[str, object]":
    """Return the JSON object in a user's `data`, in time proportional to the length. Raises BadJson."""
    return load_object(data, _scan_call)


def load_object(data: bytes, scan: "Callable[[str, int], tuple[object, int]]" = _scan) -> "Mapping[str, object]":
    """Return the JSON object in `data`, which must be UTF-8. Raises BadJson."""
    try:
        value = loads(data.decode("utf-8"), scan)
    except UnicodeDecodeError as error:
        raise BadJson(f"not UTF-8 at byte {error.start}") from None
    if not isinstance(value, dict):
        raise BadJson("not a JSON object")
    return value
