"""The changes `nodectl update` can make to a job: options, and scontrol's key=value for the same."""

from collections.abc import Callable, Iterable

from nodectl.client.job_options import count, nice, priority
from nodectl.model.moments import moment
from nodectl.model.number import mebibytes, seconds


def _when(text: str) -> int:
    return 0 if text in ("", "0") else moment(text)


def _yes(text: str) -> bool:
    if text.lower() not in ("0", "1", "yes", "no"):
        raise ValueError(f'Invalid value "{text[:20]}", only 0 and 1 are allowed')
    return text.lower() in ("1", "yes")


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("Invalid empty name")
    return text


# name in UpdateJob: scontrol's key, what reads it, argument and help.
CHANGES: dict[str, tuple[str, Callable[[str], object], str, str]] = {
    "time_limit": ("timelimit", seconds, "TIME", "time limit; of a running job its owner may only lower it"),
    "priority": ("priority", priority, "N", "this priority from now on; admins only"),
    "nice": ("nice", nice, "N", "priority lower by N"),
    "begin": ("starttime", _when, "TIME", "not before; 0 for at once"),
    "deadline": ("deadline", _when, "TIME", "given up if it cannot end by then; 0 for none"),
    "dependency": ("dependency", str, "LIST", "after other jobs; '' for none"),
    "qos": ("qos", str, "NAME", "quality of service"),
    "reservation": ("reservationname", str, "NAME", "in this reservation; '' for none"),
    "requeue": ("requeue", _yes, "0|1", "whether it may be started a second time"),
    "name": ("jobname", _name, "NAME", "name"),
    "comment": ("comment", str, "TEXT", "words for `nodectl queue` and `acct`"),
    "num_nodes": (
        "numnodes",
        str.upper,
        "0|ALL",
        "of a job that expands another one: 0 gives that one all that it "
        "holds, and ends it; then ALL of the other one returns when that can use it",
    ),
    "array_limit": ("arraytaskthrottle", count, "N", "at most N tasks of the array at a time; 0 for no limit"),
}
_KEYS = {key: name for name, (key, *_) in CHANGES.items()} | {"minmemorynode": "mem"}


def option_of(name: str) -> str:
    """Return the option for a name: --time for time_limit."""
    return "--time" if name == "time_limit" else f"--{name.replace('_', '-')}"


def assigned(words: Iterable[str]) -> dict[str, object]:
    """Parse words such as TimeLimit=10, by UpdateJob's names, and `mem`. Raises ValueError."""
    values: dict[str, object] = {}
    for word in words:
        key, equals, text = word.partition("=")
        plain = key.lower()
        name = _KEYS.get(plain, plain.replace("-", "_"))
        name = "time_limit" if name == "time" else name
        if not equals or (name not in CHANGES and name != "mem"):
            known = ", ".join((*CHANGES, "mem"))
            raise ValueError(f"{word[:40]!r} changes nothing: write KEY=VALUE with one of {known}")
        try:
            values[name] = mebibytes(text) if name == "mem" else CHANGES[name][1](text)
        except ValueError as error:
            raise ValueError(f"{error} for {key}.") from None
    return values
