"""Parsing of points in time in sbatch's words: now+1hour, 16:00, tomorrow, 2026-12-24T18:00. Pure, lean."""

import time

from nodectl.model.number import whole

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_DAYS = {"today": 0, "tomorrow": 1}
_HOURS = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}
_MOST = 10**9
_LAST = 4_102_444_800  # the year 2100


def moment(text: str, now: float | None = None) -> int:
    """Return seconds since the epoch. A clock time already past today means tomorrow's. Raises ValueError."""
    at = time.time() if now is None else now
    word = text.strip().lower()
    if word.startswith("now"):
        return int(at) + _later(word[3:].strip(), text)
    day: tuple[int, int, int] | None = None
    clock: tuple[int, int, int] | None = None
    for part in _parts(word.replace("-to", " to")):  # noon-tomorrow
        if part in _DAYS or any(letter in part for letter in "-/."):
            if day is not None:
                raise _wrong(text)
            day = _day(part, at, text)
        else:
            if clock is not None:
                raise _wrong(text)
            clock = _clock(part, text)
    found = _epoch(day or _date(at), clock or (0, 0, 0), text)
    if day is None and found <= at:
        found = _epoch(_date(at, 1), clock or (0, 0, 0), text)
    return found


def _wrong(text: str) -> ValueError:
    return ValueError(f"Invalid time specification {text[:40]!r}")


def _parts(word: str) -> list[str]:
    """Split the date from the clock time at a T or a blank; AM and PM stay with the time before."""
    if word[:1].isdigit():
        word = word.replace("t", " ", 1) if "-" in word.partition("t")[0] else word
    parts: list[str] = []
    for part in word.split():
        if part in ("am", "pm") and parts:
            parts[-1] += part
        else:
            parts.append(part)
    return parts or [word]


def _later(rest: str, text: str) -> int:
    """Return the seconds of "+1hour", "+90", or nothing."""
    if not rest:
        return 0
    count = rest.removeprefix("+").strip()
    digits = count.rstrip("abcdefghijklmnopqrstuvwxyz").rstrip()
    unit = count[len(digits) :].strip()
    number = whole(digits, _MOST)
    found = [seconds for name, seconds in _UNITS.items() if unit and (name + "s").startswith(unit)]
    if not rest.startswith("+") or number is None or (unit and len(found) != 1):
        raise _wrong(text)
    seconds = number * (found[0] if found else 1)
    if seconds > _MOST:
        raise _wrong(text)
    return seconds


def _date(now: float, later: int = 0) -> tuple[int, int, int]:
    here = time.localtime(now)
    return here.tm_year, here.tm_mon, here.tm_mday + later


def _day(part: str, now: float, text: str) -> tuple[int, int, int]:
    """Return year, month and day of YYYY-MM-DD, MM/DD[/YY], MM.DD[.YY], or a word."""
    if part in _DAYS:
        return _date(now, _DAYS[part])
    year, month = _date(now)[:2]
    if "-" in part:
        numbers = [whole(word, 9999) for word in part.split("-")]
        order = numbers if len(numbers) == 3 else [year, *numbers]
    else:
        numbers = [whole(word, 9999) for word in part.replace("/", ".").split(".")]
        order = [*numbers[2:], *numbers[:2]] if len(numbers) == 3 else [year, *numbers]
    if len(order) != 3 or any(number is None for number in order):
        raise _wrong(text)
    year, month, day = (number or 0 for number in order)
    if year < 100:
        year += 2000
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise _wrong(text)
    return year, month, day


def _clock(part: str, text: str) -> tuple[int, int, int]:
    """Return hour, minute and second of HH:MM[:SS][AM|PM], or a word."""
    if part in _HOURS:
        return _HOURS[part], 0, 0
    half = part[-2:] if part.endswith(("am", "pm")) else ""
    numbers = [whole(word, 99) for word in part.removesuffix(half).strip().split(":")]
    if not 2 <= len(numbers) <= 3 and not (half and len(numbers) == 1):
        raise _wrong(text)
    hour, minute, second = (*numbers, 0, 0)[:3]
    if hour is None or minute is None or second is None or minute > 59 or second > 60:
        raise _wrong(text)
    if half:
        if not 1 <= hour <= 12:
            raise _wrong(text)
        hour = hour % 12 + (12 if half == "pm" else 0)
    elif hour > 23:
        raise _wrong(text)
    return hour, minute, second


def _epoch(day: tuple[int, int, int], clock: tuple[int, int, int], text: str) -> int:
    try:
        found = int(time.mktime((*day, *clock, 0, 0, -1)))
    except (OverflowError, ValueError):
        raise _wrong(text) from None
    if not 0 <= found <= _LAST:
        raise _wrong(text)
    return found
