"""The shapes of a client's description of a job: the fields of `JobOptions` of org.nodectl, and names of jobs."""

from typing import TYPE_CHECKING

from nodectl.model.wire.shape import Optional, array, boolean, integer, text

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

LATEST = 1 << 40  # seconds since the epoch
PRIORITY = integer(0, 2**32 - 1)
NICE = integer(-(2**31), 2**31 - 1)
MOMENT = integer(0, LATEST)
WORD = text(1024)
WORDS = array(WORD, most=10_000)
ONE_JOB: "Shape" = {"job": WORD}
LONGEST_LIST = 65_536  # characters of a dependency, or of an array's indices

JOB_OPTIONS: "Shape" = {
    "nice": Optional(NICE),
    "priority": Optional(PRIORITY),
    "hold": Optional(boolean),
    "dependency": Optional(text(LONGEST_LIST)),
    "array": Optional(text(LONGEST_LIST)),
    "begin": Optional(MOMENT),
    "deadline": Optional(MOMENT),
    "qos": Optional(WORD),
    "reservation": Optional(WORD),
    "requeue": Optional(boolean),
    "comment": Optional(WORD),
    "open_mode": Optional(text(16)),
    "exclusive": Optional(boolean),
    "oversubscribe": Optional(boolean),
    "contiguous": Optional(boolean),
    "min_cpus": Optional(integer(1, 2**31)),
    "constraint": Optional(WORD),
    "signal": Optional(text(64)),
    "kill_on_invalid_dep": Optional(boolean),
}


def an_object(value: object) -> str:
    """Accept any object: the shape of a value with a separate, later check."""
    return "" if isinstance(value, dict) else "not an object"
