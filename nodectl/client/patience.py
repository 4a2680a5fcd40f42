"""Who waits is told what for, once that has taken two seconds. On a terminal only: programs know that they wait."""

import select
import sys

SECONDS = 2.0
_MEANT_TO_LAST = ("Await", "Enter", "Launch", "Wait")  # calls that are answered when something else has ended


def for_answer(fd: int, method: str, path: str) -> None:
    """Waits for the answer to a call, and tells where it is late."""
    if method not in _MEANT_TO_LAST:
        tell(fd, f"the service at {path} to answer {method}")


def tell(fd: int, what: str) -> None:
    """Waits for something to read there, and tells what for where nothing comes in time."""
    if not sys.stderr.isatty():
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(SECONDS * 1000):
        print(f"nodectl: waiting for {what}", file=sys.stderr)
