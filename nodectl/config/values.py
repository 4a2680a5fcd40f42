"""What keys of the configuration may hold: TOML's values into ours, and words for what is wrong.

Pure functions of values; imported where `nodectl.config` is.
"""

from __future__ import annotations

import os

from nodectl.model.confinement_level import LEVELS
from nodectl.model.cpu_list import format_cpulist, parse_cpulist
from nodectl.plugin_host.loader import BUILTIN_DIR
from nodectl.spank import versions

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable

# sun_path of unix(7) has 108 bytes with the NUL that ends it; ".new" is its name until it listens.
_MAX_SOCKET_PATH = 103
_MOST_PERCENT = 1_000_000
RLIMITS = frozenset({"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS"})
_SHIFTS = {"K": 10, "M": 20, "G": 30, "T": 40}
_MOST_DIGITS = 19
_INFINITE = 1 << 63


class Parser:
    """What a key may hold.

    `allowed` says it in words. `read` turns TOML's value into ours, or raises `ValueError` with
    what is wrong, in words that stand after the key's name.
    """

    __slots__ = ("allowed", "read")

    def __init__(self, allowed: str, read: Callable[[object], object]) -> None:
        self.allowed = allowed
        self.read = read


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"is {_kind(value)}")
    if "\0" in value:
        raise ValueError("holds a NUL character")
    return value


def _absolute(value: object) -> str:
    path = _string(value)
    if not path.startswith("/"):
        raise ValueError(f"is {path!r}, a relative path")
    return path if path == "/" else path.rstrip("/")


def _optional(value: object) -> str | None:
    return None if value == "" else _absolute(value)


def _socket(value: object) -> str:
    path = _absolute(value)
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise ValueError(f"has {len(os.fsencode(path))} bytes")
    return path


def _words(value: object, separator: str) -> list[str]:
    """The words of a list of strings, or of one string with a separator."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(separator) if word.strip()]
    if isinstance(value, list):
        return [_string(word) for word in value]
    raise ValueError(f"is {_kind(value)}")


def _plugin_dirs(value: object) -> tuple[str, ...]:
    """The site's directories and then the built-in one, so that a site's plugin replaces a
    built-in."""
    dirs = [_absolute(word) for word in _words(value, ":")]
    return (*(path for path in dict.fromkeys(dirs) if path != BUILTIN_DIR), BUILTIN_DIR)


def _plugin_type(word: str, major: str) -> str:
    start, _, minor = word.partition("/")
    if start != major or not _plain(minor, "_"):
        raise ValueError(f"has {word!r}")
    return word


def _task_plugins(value: object) -> tuple[str, ...]:
    words = tuple(_plugin_type(word, "task") for word in _words(value, ","))
    if len(set(words)) != len(words):
        raise ValueError("names a plugin twice")
    return words


def _proctrack(value: object) -> str:
    return _plugin_type(_string(value), "proctrack")


def _job_container(value: object) -> str:
    return _plugin_type(_string(value), "job_container")


def _private_dirs(value: object) -> tuple[str, ...]:
    from nodectl.container import settings  # who configures none does not pay for it

    lines = tuple(_words(value, " "))
    settings.read_dirs(lines)
    return lines


def _name(value: object) -> str:
    name = _string(value)
    if not _plain(name, "_-.") or name.startswith("."):
        raise ValueError(f"is {name!r}")
    return name


def _optional_name(value: object) -> str:
    return _name(value) if value != "" else ""


def _network(value: object) -> str:
    text = _string(value)
    if text:
        import ipaddress  # who configures none does not pay for it

        ipaddress.ip_network(text)  # its error is a ValueError that says what is wrong
    return text


def _address(value: object) -> str:
    text = _string(value)
    if text:
        import ipaddress

        ipaddress.ip_address(text)
    return text


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"is {_kind(value)}")
    return value


def _plain(word: str, others: str) -> bool:
    return bool(word) and all(c.isascii() and (c.isalnum() or c in others) for c in word)


def _kind(value: object) -> str:
    names = {bool: "a truth value", int: "a whole number", float: "a decimal number"}
    names |= {str: "a string", list: "a list", dict: "a section"}
    return names.get(type(value), "a date or time")


def number(least: int, most: int, unit: str) -> Parser:
    """A whole number between two bounds, both allowed."""

    def read(value: object) -> int:
        # TOML's true is a Python int too.
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"is {_kind(value)}")
        if not least <= value <= most:
            raise ValueError(f"is {value}")
        return value

    return Parser(f"a number of {unit} from {least} to {most}", read)


def words(*allowed: str) -> Parser:
    """Some of these words, each at most once; spelt in any case of letters, kept as spelt here."""
    known = {word.lower(): word for word in allowed}

    def read(value: object) -> tuple[str, ...]:
        given = [word.lower() for word in _words(value, ",")]
        for word in given:
            if word not in known:
                raise ValueError(f"has {word!r}")
        return tuple(dict.fromkeys(known[word] for word in given))

    return Parser(f"words of {', '.join(allowed)}, as a list or with ',' between them", read)


def one_of(*allowed: str) -> Parser:
    """One of these words."""

    def read(value: object) -> str:
        word = _string(value)
        if word not in allowed:
            raise ValueError(f"is {word!r}")
        return word

    return Parser(f"one of {', '.join(allowed)}", read)


def _percent(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"is {_kind(value)}")
    if not 0 <= value <= _MOST_PERCENT:  # and no nan
        raise ValueError(f"is {value}")
    return value


def _cpu_list(value: object) -> str:
    return format_cpulist(parse_cpulist(_string(value)))


def _devices(value: object) -> tuple[str, ...]:
    lines = value if isinstance(value, list) else [value]
    texts = tuple(text for text in map(_string, lines) if text.strip())
    if texts:
        from nodectl.binding import devices  # who has none does not pay for it

        devices.declared(texts)
    return texts


def _lines(value: object) -> tuple[str, ...]:
    lines = value if isinstance(value, list) else [value]
    return tuple(line.strip() for line in map(_string, lines) if line.strip())


def _releases(value: object) -> str:
    text = _string(value)
    versions.read(text)
    return text


def _device_names(value: object) -> tuple[str, ...]:
    words = _lines(value)
    for word in words:
        kind, _, name = word.partition("-")
        if not word.startswith("/dev/") and not (kind in ("char", "block") and name):
            raise ValueError(f"has {word!r}")
    return words


def _hard_limits(value: object) -> tuple[str, ...]:
    words = tuple(_words(value, ","))
    for word in words:
        hard_limit(word)
    return words


def hard_limit(word: str) -> tuple[str, int]:
    """The name and the number of one, -1 for infinity. Raises ValueError."""
    name, _, number = word.partition("=")
    if name not in RLIMITS:
        raise ValueError(f"has {word!r}")
    if number == "infinity":
        return name, -1
    digits, shift = (number[:-1], _SHIFTS[number[-1]]) if number[-1:] in _SHIFTS else (number, 0)
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
        raise ValueError(f"has {word!r}")
    if int(digits) << shift >= _INFINITE:
        raise ValueError(f"has {word!r}")
    return name, int(digits) << shift


PATH = Parser("an absolute path", _absolute)
CONSTRAINT = one_of("yes", "no", "auto")
LEVEL = one_of(*LEVELS)
HARD_LIMITS = Parser(
    f"NAME=NUMBER, of {', '.join(sorted(RLIMITS))}, with K, M, G or T behind NUMBER, or NAME=infinity, as a list",
    _hard_limits,
)
PERCENT = Parser(f"a number of percent from 0 to {_MOST_PERCENT}", _percent)
CPU_LIST = Parser('CPU numbers and ranges as "0-3,8", or "" for none', _cpu_list)
DEVICES = Parser("lines of words Name=, Type=, File=, Cores=, Count=, as a list", _devices)
LINES = Parser("lines, as a list", _lines)
RELEASES = Parser("one release of Slurm as \"24.11\", or the first and the last with '-' between them", _releases)
DEVICE_NAMES = Parser("paths and patterns below /dev, char-NAME and block-NAME, as a list", _device_names)
SCRIPT = Parser('the absolute path of a program, or "" for none', _optional)
SOCKET = Parser(f"an absolute path of at most {_MAX_SOCKET_PATH} bytes", _socket)
NAME = Parser("letters, digits, '-', '_' and '.', no '.' in front", _name)
INTERFACE = Parser('the name of a network interface, or "" for none', _optional_name)
NETWORK = Parser('a network of addresses as "10.1.0.0/24", or "" for none', _network)
ADDRESS = Parser('an address, or "" for none', _address)
SWITCH = Parser("true or false", _switch)
SECONDS = number(0, 1_000_000, "seconds")
PLUGIN_DIRS = Parser("absolute paths, as a list or with ':' between them", _plugin_dirs)
TASK_PLUGINS = Parser("types that begin with 'task/', each once, as a list or with ',' between them", _task_plugins)
PROCTRACK = Parser("one type that begins with 'proctrack/'", _proctrack)
JOB_CONTAINER = Parser("one type that begins with 'job_container/'", _job_container)
PRIVATE_DIRS = Parser(
    "absolute paths, each with its options behind ':' and ',' between them: tmpfs, size=, ro, nosuid, nodev, noexec",
    _private_dirs,
)
