"""The signal for a job some time before the job's time limit: sbatch's --signal, read and written. Pure."""

import signal
from typing import NamedTuple

from nodectl.model.number import whole

_SECONDS = 60  # where none are named, as Slurm's
_MOST_SECONDS = 65_535
_MOST_SIGNAL = 64


class TimeWarning(NamedTuple):
    """A signal before the time limit. `number` is the signal's number.

    `batch`: the signal is for the script alone, else for all steps but the script.
    """

    number: int
    seconds: int
    batch: bool

    def __str__(self) -> str:
        return f"{'B:' if self.batch else ''}{self.number}@{self.seconds}"


def warning_of(text: str) -> TimeWarning:
    """Read USR1, 10@120 or B:USR1@300. Raises ValueError.

    R: concerns ending reservations; no reservation ends a job here.
    """
    letters, colon, rest = text.rpartition(":")
    word, at, time = rest.partition("@")
    seconds = whole(time, _MOST_SECONDS) if at else _SECONDS
    number = _number(word)
    if seconds is None or not number or (colon and not letters) or set(letters.upper()) - {"B", "R"}:
        raise ValueError(f"Invalid signal {text[:40]!r}, it is written [B:]SIGNAL[@SECONDS]")
    return TimeWarning(number, seconds, "B" in letters.upper())


def _number(word: str) -> int:
    number = whole(word, _MOST_SIGNAL)
    if number is not None:
        return number
    try:
        return signal.Signals[f"SIG{word.upper().removeprefix('SIG')}"]
    except KeyError:
        return 0
