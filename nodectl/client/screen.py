"""Lists on a terminal: coloured, page by page if long, repeatedly with --watch."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType, MappingProxyType
from typing import NamedTuple, NoReturn

from nodectl.client.command import Failed
from nodectl.client.render.table import cut
from nodectl.client.render.terminal import COLOURS, put, terminal_width, wants_colour
from nodectl.model import states

_RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN = range(31, 37)
_PLAIN = "\x1b[0m"
# Green runs, yellow waits, cyan is suspended, blue ends, red has failed, magenta was cancelled or preempted. States
# that are missing here, or have 0, have no colour.
_IN_QUEUE = {states.PENDING: _YELLOW, states.RUNNING: _GREEN, states.SUSPENDED: _CYAN, states.COMPLETING: _BLUE}
_COLOURS = {
    **_IN_QUEUE, **{states.SHORT[state]: colour for state, colour in _IN_QUEUE.items()}, states.REQUEUED: _YELLOW,
    **dict.fromkeys(states.ENDED, _RED), states.COMPLETED: 0, states.CANCELLED: _MAGENTA, states.PREEMPTED: _MAGENTA,
    # Of the machine.
    "IDLE": _GREEN, "MIXED": _GREEN, "ALLOCATED": _GREEN, "DRAIN": _RED, "DRAINED": _RED, "DRAINING": _RED,
    "DOWN": _RED, "FAIL": _RED, "RESERVED": _CYAN, "MAINT": _CYAN,
    # Of a reservation.
    "ACTIVE": _GREEN, "INACTIVE": 0,
}  # fmt: skip
_USUAL, _FEWEST, _MOST = 2.0, 0.1, 86_400.0  # seconds
_LESS = "FRX"  # as git: ends where all fits, shows colours, leaves the page on the screen
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # xterm's other screen, without a cursor
_TOP, _TO_END_OF_LINE, _TO_END = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen(NamedTuple):
    """The screen for which lines are made. `width` is None where lines are not cut."""

    width: int | None
    colour: bool

    def states(self, *columns: str) -> "Mapping[str, Callable[[str], str]]":
        """Return a painter for each of these columns of a table, which hold states."""
        return dict.fromkeys(columns, painted) if self.colour else MappingProxyType({})


def add_screen_options(parser: argparse.ArgumentParser, *, colour: bool = True, watch: bool = True) -> None:
    """Add --no-pager; --color for output with states, and --watch for output which changes."""
    if colour:
        parser.add_argument(
            "--color", choices=COLOURS, default=argparse.SUPPRESS, metavar="|".join(COLOURS),
            help="colours: on a terminal, unless NO_COLOR is set (the default); always; never",
        )  # fmt: skip
    parser.add_argument(
        "--no-pager", action="store_true", default=argparse.SUPPRESS,
        help="on a terminal, print what is longer than it without PAGER (less)",
    )  # fmt: skip
    if watch:
        parser.add_argument(
            "--watch", nargs="?", type=_seconds, const=_USUAL, default=argparse.SUPPRESS, metavar="SECONDS",
            help=f"show it again every so many seconds ({_USUAL:g}) until Ctrl-C",
        )  # fmt: skip


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not _FEWEST <= number <= _MOST:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number of seconds from {_FEWEST} to {_MOST:.0f}")
    return number


def show(arguments: argparse.Namespace, make: Callable[[Screen], list[str]]) -> int:
    """Show the lines of `make`, once or repeatedly with --watch; return the exit status. Raises Failed."""
    colour = wants_colour(getattr(arguments, "color", "auto"))
    every = getattr(arguments, "watch", None)
    if every is not None:
        return _watch(make, every, colour=colour)
    lines = make(Screen(terminal_width(), colour))
    rows = _rows()
    if rows is not None and len(lines) >= rows and not getattr(arguments, "no_pager", False):
        _page(lines)
    else:
        put(lines)
    return 0


def _rows() -> int | None:
    """Return the number of lines of the terminal at standard output, None where there is no terminal."""
    return os.get_terminal_size(sys.stdout.fileno()).lines if sys.stdout.isatty() else None


def _page(lines: list[str]) -> None:
    """Print through the user's pager, or directly where there is no pager."""
    wanted = os.environ.get("NODECTL_PAGER", os.environ.get("PAGER", "less"))
    program = wanted.split()[0] if wanted.split() else "cat"
    if program == "cat" or os.environ.get("TERM") == "dumb" or shutil.which(program) is None:
        put(lines)
        return
    environment = {"LESS": _LESS, **os.environ}
    if "SUDO_UID" in os.environ:
        environment["LESSSECURE"] = "1"  # sudo may allow only the list: the pager must not give a shell of root's
    text = "\n".join(lines) + "\n"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's
    try:
        with subprocess.Popen(["/bin/sh", "-c", wanted], stdin=subprocess.PIPE, env=environment) as pager:
            pager.communicate(text.encode("utf-8", "backslashreplace"))
    finally:
        signal.signal(signal.SIGINT, before)


def _watch(make: Callable[[Screen], list[str]], every: float, *, colour: bool) -> int:
    """Show the lines until Ctrl-C. Wait for a service which is away for a while."""
    lines = make(Screen(terminal_width(), colour))  # what cannot be at all fails before the screen is another
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    rows = _rows()
    if rows is not None:
        sys.stdout.write(_ENTER)
    try:
        while True:
            rows = _rows()
            if rows is None:
                put([*lines, ""])
            else:
                _draw([*_title(every), *lines], rows)
            sys.stdout.flush()
            time.sleep(every)
            try:
                lines = make(Screen(terminal_width(), colour))
            except Failed as failed:
                lines = [str(failed)]
    except KeyboardInterrupt:
        return 0
    finally:
        if rows is not None:
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()


def _end(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _title(every: float) -> list[str]:
    return [cut(f"{time.strftime('%H:%M:%S')}, every {every:g} s; Ctrl-C ends it", terminal_width()), ""]


def _draw(lines: list[str], rows: int) -> None:
    """Draw over the previous lines, without an empty screen in between."""
    shown = lines if len(lines) < rows else [*lines[: rows - 2], f"... {len(lines) - rows + 2} more"]
    put([_TOP + f"{_TO_END_OF_LINE}\n".join(shown) + _TO_END_OF_LINE + _TO_END])


def painted(cell: str) -> str:
    """Return a state in colour. Of several, as in IDLE+DRAIN, the last counts."""
    words = cell.strip().upper().split("+")[-1].split()
    colour = _COLOURS.get(words[0], 0) if words else 0
    return f"\x1b[{colour}m{cell}{_PLAIN}" if colour else cell
