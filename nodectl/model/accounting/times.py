"""Past times as typed for `nodectl acct -S`. Pure."""

from __future__ import annotations

import datetime
import re

_WORDS = {"midnight": (0, 0), "elevenses": (11, 0), "noon": (12, 0), "fika": (15, 0), "teatime": (16, 0)}
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_NOW = re.compile(r"now(?:\s*([+-])\s*(\d{1,9})\s*([a-z]*))?")
_DATE = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d?)(?:-(?P<day>\d\d?))?|(?P<month2>\d\d?)[/.](?P<day2>\d\d?)(?:[/.](?P<year2>\d\d))?"
)
_CLOCK = re.compile(r"(\d\d?):(\d\d)(?::(\d\d))?\s*(am|pm)?")


def moment(text: str, now: float) -> float:
    """Parse a time into seconds since the epoch. Times before 1970 become 0. Raises ValueError.

    Accepted: YYYY-MM[-DD][THH:MM[:SS]], MM/DD[/YY][-HH:MM], HH:MM[:SS][am|pm] of today, a word such as today,
    yesterday, noon; now-2days.
    """
    word = text.strip().lower()
    if found := _NOW.fullmatch(word):
        return max(0.0, now + _offset(found, text))
    here = datetime.datetime.fromtimestamp(now)
    day, clock = here.date(), (0, 0, 0)
    rest = word
    if found := _DATE.match(word):
        day = _day(found, here, text)
        rest = word[found.end() :].lstrip("t- ")
    elif word in ("today", "yesterday", "tomorrow"):
        day += datetime.timedelta(days=("yesterday", "today", "tomorrow").index(word) - 1)
        rest = ""
    if rest:
        clock = _clock(rest, text)
    if not word:
        raise _wrong(text)
    try:
        return max(0.0, datetime.datetime.combine(day, datetime.time(*clock)).timestamp())
    except (ValueError, OverflowError, OSError):
        raise _wrong(text) from None


def _offset(found: re.Match[str], text: str) -> float:
    sign, count, unit = found.groups()
    if not sign:
        return 0.0
    units = [seconds for name, seconds in _UNITS.items() if unit and f"{name}s".startswith(unit)]
    if unit and len(units) != 1:
        raise _wrong(text)
    return (1 if sign == "+" else -1) * int(count) * (units[0] if units else 1)


def _day(found: re.Match[str], here: datetime.datetime, text: str) -> datetime.date:
    year = int(found["year"] or 0) or 2000 + int(found["year2"] or here.year - 2000)
    try:
        return datetime.date(year, int(found["month"] or found["month2"]), int(found["day"] or found["day2"] or 1))
    except ValueError:
        raise _wrong(text) from None


def _clock(rest: str, text: str) -> tuple[int, int, int]:
    if rest in _WORDS:
        return (*_WORDS[rest], 0)
    found = _CLOCK.fullmatch(rest)
    if found is None:
        raise _wrong(text)
    hour, minute, second = (int(part or 0) for part in found.groups()[:3])
    if found[4]:
        if not 1 <= hour <= 12:
            raise _wrong(text)
        hour = hour % 12 + (12 if found[4] == "pm" else 0)
    return hour, minute, second


def _wrong(text: str) -> ValueError:
    return ValueError(f"{text[:40]!r} is no time: HH:MM, MM/DD, YYYY-MM-DD[THH:MM[:SS]], today, yesterday, now-2days")


def midnight(now: float) -> float:
    """Return the beginning of the day."""
    return moment("today", now)
