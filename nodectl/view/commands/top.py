"""`nodectl top`: show the machine, the steps and jobs, live in a terminal."""

from __future__ import annotations

import argparse
import os
import sys

from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.extras import needed
from nodectl.view.live.connection import Connections, connect

_THEMES = ("terminal", "dark", "light")
_SHORTEST, _LONGEST = 0.2, 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl top` to the parser."""
    parser.add_argument(
        "-d", "--interval", type=_interval, default=1.0, metavar="SECONDS", help="look so often (1); fractions are fine"
    )
    parser.add_argument(
        "--theme", choices=_THEMES, default="terminal", help="colours: the terminal's own (the default), dark, light"
    )
    parser.epilog = (
        "Users see their own steps, and of others what `nodectl queue` shows. A long queue is asked for less often. "
        "For files and pipes there are `nodectl ps`, `nodectl queue` and `nodectl topo`. NO_COLOR is honoured."
    )


def main(arguments: argparse.Namespace) -> int:
    """Run until the user leaves. Return 0."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        raise Failed("top needs a terminal; `nodectl ps` and `nodectl queue` print what it shows")
    try:
        from nodectl.view.top.app import Top  # an extra
    except ImportError as missing:
        raise needed("top", "textual", missing) from None
    from nodectl.placement.machine.topology import read
    from nodectl.view.live.watcher import Watcher

    settings: GlobalOptions = arguments.settings
    connect(settings).close()  # fail without a service before the screen changes
    connections = Connections(settings)
    watcher = Watcher(connections.connect)
    Top(
        watcher,
        connections,
        read("/", every_cache=True),
        interval=arguments.interval,
        theme=arguments.theme,
    ).run()
    watcher.close()
    return 0


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST <= seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number of seconds from {_SHORTEST} to {_LONGEST:.0f}")
    return seconds
