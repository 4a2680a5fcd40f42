"""`nodectl web`: serve a read-only page about the machine, steps and jobs, for the user of the command."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys

from nodectl.client.command import GlobalOptions
from nodectl.client.extras import needed
from nodectl.view.live.connection import connect


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl web` to the parser."""
    parser.add_argument(
        "--listen",
        default="127.0.0.1:0",
        metavar="unix:PATH|127.0.0.1:PORT",
        help="where: a port of this machine alone (0, the default, takes a free one), or a socket in the file system, "
        "for you alone",
    )
    parser.epilog = (
        "It prints the page's address, with a token behind the # that lets read what you may see: keep it to yourself. "
        "From elsewhere: `ssh -L 8080:127.0.0.1:PORT` or `ssh -L 8080:PATH`, and the same address with port 8080. "
        "Ctrl-C ends it."
    )


def main(arguments: argparse.Namespace) -> int:
    """Serve until a signal ends the process. Return 0, 130 for Ctrl-C."""
    try:
        from nodectl.view.web import server  # extras
        from nodectl.view.web.guard import new_token
    except ImportError as missing:
        raise needed("web", "starlette uvicorn", missing) from None
    from nodectl.placement.machine import pci
    from nodectl.placement.machine.topology import read
    from nodectl.view.live.watcher import Watcher
    from nodectl.view.web.pages import Pages

    settings: GlobalOptions = arguments.settings
    connect(settings).close()  # fail without a service at once
    watcher = Watcher(lambda: connect(settings))
    pages = Pages(watcher, lambda: connect(settings), read("/", every_cache=True), tuple(pci.read("/")))
    token = new_token()
    sock = server.listen(arguments.listen)
    path = arguments.listen.removeprefix("unix:") if arguments.listen.startswith("unix:") else ""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the server sends it to us again, when it has ended
    try:
        where = "localhost:8080" if path else f"127.0.0.1:{sock.getsockname()[1]}"
        if path:
            print(
                f"listening at {path}; forward a port to it: ssh -L 8080:{os.path.abspath(path)} HOST", file=sys.stderr
            )
        print(f"http://{where}/#{token}", flush=True)
        server.serve(pages, token, sock)
    finally:
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)
        watcher.close()
    return 0
