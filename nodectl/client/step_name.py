"""The name of a step as people write it: `42.0`, or `42` for the first step of job 42. Pure."""

import argparse

from nodectl.model.number import whole

_LAST = 2**32 - 1
_MOST = 10**10 - 1


def step_of(text: str) -> tuple[int, int]:
    """The job and the step that are meant: `42.3` is (42, 3), `42` is (42, 0). ValueError with what is wrong."""
    job, dot, step = text.partition(".")
    numbers = (job, step) if dot else (job, "0")
    found = whole(numbers[0], _MOST), whole(numbers[1], _MOST)
    if found[0] is None or found[1] is None:
        raise ValueError(f"{text[:40]!r} is no step; one is written like 42.0, or 42 for the first step of job 42")
    if not 1 <= found[0] <= _LAST or found[1] > _LAST:
        raise ValueError(f"{text[:40]!r}: jobs are numbered from 1 to {_LAST}, steps from 0")
    return found[0], found[1]


def step_argument(text: str) -> tuple[int, int]:
    """As `step_of`, for argparse, which prints what is wrong and ends the command with status 2."""
    try:
        return step_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
