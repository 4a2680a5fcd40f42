"""Names of steps: `42.0`, `42.batch`, or `42` for the first step of job 42. Pure."""

from nodectl.model.number import whole
from nodectl.model.step_number import FIRST, step_number

_LAST = 2**32 - 1
_MOST = 10**10 - 1


def step_of(text: str) -> tuple[int, int]:
    """Return the job and the step of a name. Raises ValueError.

    `42.3` is (42, 3), `42.batch` (42, BATCH), `42` (42, FIRST).
    """
    job, dot, step = text.partition(".")
    number, of_job = whole(job, _MOST), step_number(step) if dot else FIRST
    if number is None or of_job is None:
        raise ValueError(f"{text[:40]!r} is no step; one is written like 42.0, or 42 for the first step of job 42")
    if not 1 <= number <= _LAST or of_job > _LAST:
        raise ValueError(f"{text[:40]!r}: jobs are numbered from 1 to {_LAST}, steps from 0")
    return number, of_job
