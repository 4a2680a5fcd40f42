"""Whole numbers, times and amounts typed by people: ASCII digits, bounded before parsing.

int() accepts more (blanks, signs, underscores, the digits of other scripts), reads long texts slowly, and refuses 4,301
digits with a message of its own. Pure and lean; every process uses this module.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 10**18 - 1  # more is a mistake
_UNITS = {"W": 604_800, "D": 86_400, "H": 3600, "M": 60, "S": 1}
SHIFTS = {"K": 10, "M": 20, "G": 30, "T": 40}


def whole(text: str, most: int) -> "int | None":
    """Return the number, None for any other text or a number above `most`. Accept any count of leading zeros."""
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None


def scaled(text: str, most: int) -> "int | None":
    """Return a number, with K, M, G or T of 1024 behind it; None for any other text or a result above `most`."""
    shift = SHIFTS.get(text[-1:].upper(), 0)
    number = whole(text[:-1] if shift else text, most >> shift)
    return None if number is None else number << shift


def seconds(text: str) -> int:
    """Parse a time limit and return seconds; 0 means no limit (INFINITE, UNLIMITED, 0). Raises ValueError.

    The notations are srun's, M, M:S, H:M:S, D-H, D-H:M, D-H:M:S, and units from w to s in this order: 1h30m.
    """
    if text.upper() in ("INFINITE", "UNLIMITED", "-1", "0"):
        return 0
    if text[-1:].upper() in _UNITS:
        return _with_units(text)
    days, dash, clock = text.partition("-") if "-" in text else ("0", "", text)
    whole_days, *numbers = _numbers((days, *clock.split(":")), text)
    if dash and len(numbers) <= 3:  # hours, minutes, seconds
        hours, minutes, secs = (*numbers, 0, 0)[:3]
    elif len(numbers) == 1:
        hours, minutes, secs = 0, numbers[0], 0
    elif len(numbers) == 2:
        hours, minutes, secs = 0, *numbers
    elif len(numbers) == 3:
        hours, minutes, secs = numbers
    else:
        raise ValueError(f"Invalid time specification {text[:40]!r}")
    return ((whole_days * 24 + hours) * 60 + minutes) * 60 + secs


def _with_units(text: str) -> int:
    """Return the seconds of 1h30m: each unit at most once, the largest first."""
    rest, found = text.upper(), 0
    for unit, length in _UNITS.items():
        digits, letter, behind = rest.partition(unit)
        if letter:
            found += _numbers((digits,), text)[0] * length
            rest = behind
    if rest:
        raise ValueError(f"Invalid time specification {text[:40]!r}")
    return found


def _numbers(words: "Iterable[str]", text: str) -> list[int]:
    numbers = []
    for word in words:
        number = whole(word, _MOST)
        if number is None:
            raise ValueError(f"Invalid time specification {text[:40]!r}")
        numbers.append(number)
    return numbers


def mebibytes(text: str) -> int:
    """Parse an amount of memory and return MiB, the unit of a bare number. Raises ValueError.

    64M, 1G, 512K (rounded up), 2T.
    """
    word = text.upper().removesuffix("B").removesuffix("I")
    number = scaled(word if word[-1:] in SHIFTS else f"{word}M", _MOST << SHIFTS["T"])
    if number is None:
        raise ValueError(f'Invalid numeric value "{text[:20]}"')
    return -(-number >> SHIFTS["M"])
