"""The name of a step as people write it: `42.0`, or `42` for the first step of job 42. Pure."""

import argparse

_LAST = 2**32 - 1
_MOST_DIGITS = 10


def step_of(text: str) -> tuple[int, int]:
    """The job and the step that are meant: `42.3` is (42, 3), `42` is (42, 0). ValueError with what is wrong."""
    job, dot, step = text.partition(".")
    numbers = (job, step) if dot else (job, "0")
    # isdecimal alone lets other scripts' digits through.
    if not all(word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS for word in numbers):
        raise ValueError(f"{text!r} is no step; one is written like 42.0, or 42 for the first step of job 42")
    found = int(numbers[0]), int(numbers[1])
    if not 1 <= found[0] <= _LAST or found[1] > _LAST:
        raise ValueError(f"{text!r}: jobs are numbered from 1 to {_LAST}, steps from 0")
    return found


def step_argument(text: str) -> tuple[int, int]:
    """As `step_of`, for argparse, which prints what is wrong and ends the command with status 2."""
    try:
        return step_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
