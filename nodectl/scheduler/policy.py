"""The rules of the queue as values, made of the keys of the configuration. In the daemon and in planning commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nodectl.model.config import Config
from nodectl.model.config.values import amount
from nodectl.model.value_class import dataclass, field, names
from nodectl.scheduler.decisions import CANCEL, REQUEUE, SUSPEND

NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The most of each resource for a user at a time; 0 for no limit. Memory in MiB."""

    jobs: int = 0
    submitted: int = 0
    cpus: int = 0
    memory: int = 0
    devices: int = 0


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service, from a line of the key `qos`.

    `preempt`: the qualities of service whose jobs make room for its jobs. `preempt_mode`: how its own jobs make room,
    "" for what the key `preempt_mode` says. `users`: the users who may have it, none for everybody. Limits that are 0
    are those of the keys.
    """

    name: str
    priority: int = 0
    preempt: tuple[str, ...] = ()
    preempt_mode: str = ""
    users: tuple[str, ...] = ()
    max_time: int = 0
    limits: UserLimits = UserLimits()


@dataclass(frozen=True, slots=True)
class WeekHours:
    """The most CPU-hours and GPU-hours in a week, from a line of the key `week_hours`; 0 for no limit.

    `users`: the users who have them together; none for each user alone whom no other line names.
    """

    hours: tuple[int, int] = (0, 0)
    users: tuple[str, ...] = ()


def week_lines(lines: tuple[str, ...]) -> tuple[WeekHours, ...]:
    """Parse the lines of the key `week_hours`. Raises ValueError as `qos_of` does."""
    found = []
    for line in lines:
        words = _line_words(line)
        users = _names(words.pop("users", ""))
        hours = tuple(_number(word, words.pop(word, "0")) for word in ("cpuhours", "gpuhours"))
        if words:
            raise ValueError(f"has {next(iter(words))!r} in {line!r}")
        found.append(WeekHours((hours[0], hours[1]), users))
    return tuple(found)


_WORDS = {
    "maxjobsperuser": "jobs",
    "maxsubmitjobsperuser": "submitted",
    "maxcpusperuser": "cpus",
    "maxmemoryperuser": "memory",
    "maxdevicesperuser": "devices",
}
_UNITS = {"maxtime": "seconds", "maxmemoryperuser": "MiB"}
_KEYS = {
    "jobs": "max_jobs_per_user",
    "submitted": "max_submit_jobs_per_user",
    "cpus": "max_cpus_per_user",
    "memory": "max_memory_per_user",
    "devices": "max_devices_per_user",
}
_MODES = (SUSPEND, REQUEUE, CANCEL)


def qos_of(line: str) -> Qos:
    """Parse a line of the key. Raises ValueError; the text continues a sentence begun with the key's name."""
    words = _line_words(line)
    name = words.pop("name", "")
    if not name:
        raise ValueError(f"has {line!r}, without a Name=")
    mode = words.pop("preemptmode", "").lower()
    if mode and mode not in _MODES:
        raise ValueError(f"has PreemptMode={mode}, not one of {', '.join(_MODES)}")
    preempt = _names(words.pop("preempt", ""))
    users = _names(words.pop("users", ""))
    numbers = {word: _number(word, words.pop(word)) for word in ("priority", "maxtime", *_WORDS) if word in words}
    if words:
        raise ValueError(f"has {next(iter(words))!r} in {line!r}")
    limits = UserLimits(**{_WORDS[word]: number for word, number in numbers.items() if word in _WORDS})
    return Qos(name, numbers.get("priority", 0), preempt, mode, users, numbers.get("maxtime", 0), limits)


def qos_lines(lines: tuple[str, ...]) -> dict[str, Qos]:
    """Parse all lines, and add a quality of service "normal" where none is defined. Raises ValueError."""
    found: dict[str, Qos] = {}
    for line in lines:
        one = qos_of(line)
        if one.name in found:
            raise ValueError(f"has {one.name} twice")
        found[one.name] = one
    found.setdefault(NORMAL, Qos(NORMAL))
    for one in found.values():
        for name in one.preempt:
            if name not in found or name == one.name:
                raise ValueError(f"has Preempt={name} in {one.name}, which is no other's name")
    return found


def _line_words(line: str) -> dict[str, str]:
    words: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals or key.lower() in words:
            raise ValueError(f"has {word!r} in {line!r}")
        words[key.lower()] = value
    return words


def _names(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _number(word: str, text: str) -> int:
    found = amount(text, _UNITS[word]) if word in _UNITS else text
    if isinstance(found, int):
        return found
    if not (text.isascii() and text.isdecimal()) or len(text) > 12:
        raise ValueError(f"has {word}={text}, not a number")
    return int(text)


@dataclass(frozen=True, slots=True)
class Policy:
    """The keys of the queue; `keys.py` describes each field. `limits` are the keys max_*_per_user."""

    priority_weight_age: int = 1000
    priority_weight_fairshare: int = 10_000
    priority_weight_job_size: int = 0
    priority_weight_qos: int = 10_000
    priority_max_age: int = 7 * 86_400
    priority_decay_half_life: int = 7 * 86_400
    priority_favor_small: bool = False
    max_wait: int = 86_400
    bf_window: int = 86_400
    bf_max_job_test: int = 100
    bf_interval: int = 30
    default_time: int = 0
    max_time: int = 0
    max_array_size: int = 1_000_001
    preempt_mode: str = "off"
    qos: Mapping[str, Qos] = field(default_factory=lambda: MappingProxyType({NORMAL: Qos(NORMAL)}))
    limits: UserLimits = UserLimits()
    week_hours: tuple[WeekHours, ...] = ()

    @classmethod
    def of(cls, config: Config) -> Policy:
        """Make the policy from the configuration."""
        keys = dict(config)
        limits = UserLimits(**{name: keys[key] for name, key in _KEYS.items()})  # type: ignore[arg-type]  # their parsers saw
        plain = {name: keys[name] for name in names(cls) if name not in ("qos", "limits", "week_hours")}
        qos, week = MappingProxyType(qos_lines(config.qos)), week_lines(config.week_hours)
        return cls(**plain, qos=qos, limits=limits, week_hours=week)  # type: ignore[arg-type]
