"""`nodectl signal`: send a signal to the tasks of steps.

Not called signal.py: a file of that name beside the other commands would hide the standard module from a script that is
run from this directory.
"""

import argparse
import signal

from nodectl.client.job_name import add_jobs, for_argparse
from nodectl.client.session import Session
from nodectl.client.several_steps import for_each
from nodectl.model.number import whole

_HIGHEST = 64
_MOST = 99


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl signal` to the parser."""
    parser.add_argument(
        "-s",
        "--signal",
        type=signal_argument,
        default=signal.SIGTERM.value,
        metavar="NAME|NUMBER",
        help="the signal, with or without SIG in front: TERM (the default), SIGUSR1, RTMIN+2, 9",
    )
    add_jobs(parser, "the steps; a job alone means its first step", steps=True)
    parser.epilog = "KILL reaches everything a step's tasks have started, other signals the tasks."


def main(arguments: argparse.Namespace) -> int:
    """Signal every step. Return 0, or 1 with a line on stderr for each failure."""

    def send(session: Session, job: int, step: int) -> None:
        session.call("Signal", job=job, step=step, signal=arguments.signal)

    return for_each(arguments, "signal", send)


def signal_of(text: str) -> int:
    """Return the number of a signal: `TERM`, `sigterm`, `15`, `RTMIN+2`. Raises ValueError with the reason."""
    if (given := whole(text, _MOST)) is not None:
        if not 1 <= given <= _HIGHEST:
            raise ValueError(f"signals are numbered from 1 to {_HIGHEST}")
        return given
    name = text.upper()
    if not name.startswith("SIG"):
        name = f"SIG{name}"
    for base, sign in (("SIGRTMIN+", 1), ("SIGRTMAX-", -1)):
        offset = whole(name.removeprefix(base), _MOST)
        if offset is not None and name.startswith(base):
            number = signal.Signals[base[:-1]].value + sign * offset
            if signal.SIGRTMIN <= number <= signal.SIGRTMAX:
                return number
    try:
        return signal.Signals[name].value
    except KeyError:
        raise ValueError(f"no signal is called {text[:20]!r}; `kill -l` lists them") from None


signal_argument = for_argparse(signal_of)
