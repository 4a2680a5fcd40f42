"""The notice shown on a terminal after two seconds of waiting. Programs need no notice."""

import select
import sys

SECONDS = 2.0
_MEANT_TO_LAST = ("Await", "Enter", "Launch", "Wait")  # calls that are answered when something else has ended


def for_answer(fd: int, method: str, path: str) -> None:
    """Wait for the answer to a call, and print a notice if late."""
    if method not in _MEANT_TO_LAST:
        tell(fd, f"the service at {path} to answer {method}")


def tell(fd: int, what: str) -> None:
    """Wait for data on a descriptor, and print a notice with the reason if no data come in time."""
    if not sys.stderr.isatty():
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(SECONDS * 1000):
        print(f"nodectl: waiting for {what}", file=sys.stderr)
