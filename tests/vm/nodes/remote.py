"""Programs on the other machines, as root: a server on each of them, whom the first one asks over their wire.

usage: remote.py ADDRESS
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from xmlrpc.client import ServerProxy
from xmlrpc.server import SimpleXMLRPCServer

_PORT = 8000


def run(node: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program on one of the machines, to its end."""
    with ServerProxy(f"http://{node}:{_PORT}") as there:
        answer: Any = there.run(words)
    return subprocess.CompletedProcess(words, *answer)


def answers(node: str) -> bool:
    """Whether that machine is there already."""
    try:
        return run(node, "true").returncode == 0
    except OSError:
        return False


def _run(words: Any) -> tuple[int, str, str]:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


if __name__ == "__main__":
    with SimpleXMLRPCServer((sys.argv[1], _PORT), logRequests=False) as server:
        server.register_function(_run, "run")
        server.serve_forever()
