"""Values in words for people: texts, times, users, CPUs.

Names of steps, commands and plugins come from users. Unprintable characters become escapes, so that a step's name
cannot move another user's cursor.
"""

import pwd
import time
from collections.abc import Mapping
from typing import Any

from nodectl.model.cpu_list import cpus_of, format_cpulist


def printable(text: str) -> str:
    """Return the text on a single line, with escapes for control characters and for bytes outside UTF-8."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def count_words(number: int, one: str, many: str = "") -> str:
    """Return a number with a noun: 1 CPU, 2 CPUs."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Return a time as [DAYS-]HH:MM:SS, whole seconds, never negative."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def short_duration(seconds: float) -> str:
    """Return a time as squeue does, without leading zeros: 0:05, 1:02:03, 2-00:00:00."""
    text = duration(seconds)
    return text if "-" in text else text.removeprefix("00:").removeprefix("0")


def cpu_time(seconds: float) -> str:
    """Return CPU time as sacct does: MM:SS.mmm below an hour, else [DAYS-]HH:MM:SS."""
    whole, thousandths = divmod(max(0, round(seconds * 1000)), 1000)
    return duration(whole) if whole >= 3600 else f"{duration(whole)[3:]}.{thousandths:03}"


def moment(at: float | None, none: str = "N/A", pattern: str = "") -> str:
    """Return a point in time, local, in Slurm's form or by a strftime(3) pattern; `none` for no time."""
    return time.strftime(pattern or "%Y-%m-%dT%H:%M:%S", time.localtime(at)) if at else none


def byte_words(count: float) -> str:
    """Return an amount of memory or disk in a suitable unit: 512 B, 12 KiB, 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit in ("B", "KiB") else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def spent_words(microseconds: int) -> str:
    """Return a duration in a suitable unit."""
    if microseconds < 1000:
        return f"{microseconds} us"
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.2f} ms"
    return f"{microseconds / 1e6:.2f} s"


def commands_words(counts: Mapping[str, int]) -> str:
    """Return how far the commands of a bulk are: "120 of 1000 done, 3 failed"."""
    of = f" of {counts['total']}" if "total" in counts else ""
    return f"{counts['done']}{of} done" + (f", {counts['failed']} failed" if counts["failed"] else "")


def elapsed(step: Mapping[str, Any], now: float) -> float:
    """Return the seconds from the step's beginning to the end, or to now; 0 for a refused step."""
    began = step.get("started") or (step["submitted"] if step.get("ended") is None else step["ended"])
    return float((step.get("ended") or now) - began - step.get("clock_set", 0.0))


def cpu_list(mask: str) -> str:
    """Return a mask in hex digits as a CPU list; "-" for none."""
    return format_cpulist(cpus_of(int(mask or "0", 16))) or "-"


def user_name(uid: int) -> str:
    """Return the name of a user, `uid N` for an unknown user."""
    if uid == 0:
        return "root"
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"
