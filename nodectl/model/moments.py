"""Parsing of points in time in Slurm's words: now+1hour, 16:00, tomorrow, 2026-12-24T18:00. Pure, lean.

Commands about what will be, such as sbatch, and about what has been, such as sacct, share the words. They differ in
which day a clock time means.
"""

import time

from nodectl.model.number import whole

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_DAYS = {"today": 0, "tomorrow": 1}
_PAST_DAYS = {"yesterday": -1, **_DAYS}
_HOURS = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}
_MOST = 10**9
_LAST = 4_102_444_800  # the year 2100
_FIRST_YEAR = 1000  # of four digits


def moment(text: str, now: float | None = None, *, past: bool = False) -> int:
    """Return seconds since the epoch. Raises ValueError.

    A clock time without a date is the next one; with `past`, it is today's. With `past` there are also now-2days,
    yesterday, a month (2026-10), and any time before 1970 is 0.
    """
    at = time.time() if now is None else now
    word = text.strip().lower()
    if word.startswith("now"):
        seconds = _offset(word[3:].strip(), text)
        if not past and not 0 <= seconds <= _MOST:
            raise _wrong(text)
        return max(0, int(at) + seconds)
    day: tuple[int, int, int] | None = None
    clock: tuple[int, int, int] | None = None
    for part in _parts(word.replace("-to", " to")):  # noon-tomorrow
        if part in (_PAST_DAYS if past else _DAYS) or any(letter in part for letter in "-/."):
            if day is not None:
                raise _wrong(text)
            day = _day(part, at, text, past=past)
        else:
            if clock is not None:
                raise _wrong(text)
            clock = _clock(part, text)
    found = _epoch(day or _date(at), clock or (0, 0, 0), text)
    if past:
        return max(0, found)
    if day is None and found <= at:
        found = _epoch(_date(at, 1), clock or (0, 0, 0), text)
    if not 0 <= found <= _LAST:
        raise _wrong(text)
    return found


def _wrong(text: str) -> ValueError:
    return ValueError(f"Invalid time specification {text[:40]!r}")


def _parts(word: str) -> list[str]:
    """Split the date from the clock time: at a blank, at the T behind a date's last digit, or at the "-" of
    MM/DD-HH:MM and MM.DD-HH:MM. AM and PM stay with the time before.
    """
    date, _, clock = word.partition("t")
    if date[-1:].isdigit() and not set(date).isdisjoint("-/."):
        word = f"{date} {clock}"
    date, _, clock = word.partition("-")
    if date[-1:].isdigit() and not set(date).isdisjoint("/."):
        word = f"{date} {clock}"
    parts: list[str] = []
    for part in word.split():
        if part in ("am", "pm") and parts:
            parts[-1] += part
        else:
            parts.append(part)
    return parts or [word]


def _offset(rest: str, text: str) -> int:
    """Return the seconds of "+1hour", "-90", or nothing."""
    if not rest:
        return 0
    count = rest[1:].strip()
    digits = count.rstrip("abcdefghijklmnopqrstuvwxyz").rstrip()
    unit = count[len(digits) :].strip()
    number = whole(digits, _MOST)
    found = [seconds for name, seconds in _UNITS.items() if unit and (name + "s").startswith(unit)]
    if rest[0] not in "+-" or number is None or (unit and len(found) != 1):
        raise _wrong(text)
    seconds = number * (found[0] if found else 1)
    return seconds if rest[0] == "+" else -seconds


def _date(now: float, later: int = 0) -> tuple[int, int, int]:
    here = time.localtime(now)
    return here.tm_year, here.tm_mon, here.tm_mday + later


def _day(part: str, now: float, text: str, *, past: bool) -> tuple[int, int, int]:
    """Return year, month and day of YYYY-MM-DD, MM/DD[/YY], MM.DD[.YY], or a word."""
    if part in _PAST_DAYS:
        return _date(now, _PAST_DAYS[part])
    year, month = _date(now)[:2]
    if "-" in part:
        numbers = [whole(word, 9999) for word in part.split("-")]
        a_month = past and len(numbers) == 2 and (numbers[0] or 0) >= _FIRST_YEAR
        order = numbers if len(numbers) == 3 else [*numbers, 1] if a_month else [year, *numbers]
    else:
        numbers = [whole(word, 9999) for word in part.replace("/", ".").split(".")]
        order = [*numbers[2:], *numbers[:2]] if len(numbers) == 3 else [year, *numbers]
    if len(order) != 3 or any(number is None for number in order):
        raise _wrong(text)
    year, month, day = (number or 0 for number in order)
    if year < 100 and not part[:4].isdecimal():
        year += 2000
    if not (1 <= month <= 12 and 1 <= day <= 31) or _date(_epoch((year, month, day), (12, 0, 0), text))[2] != day:
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
        return int(time.mktime((*day, *clock, 0, 0, -1)))
    except (OverflowError, ValueError):
        raise _wrong(text) from None
