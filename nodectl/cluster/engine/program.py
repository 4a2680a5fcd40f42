"""Command lines of programs on nodes, by which they have the same installation that we are: an agent's first of all."""

from __future__ import annotations

import os
import shlex
import sys

import nodectl

_BOOT = "import sys; sys.path[:0] = {path!r}; from {module} import main; sys.exit(main())"
# What has no interpreter, or one without nodectl, says so in a line that the holder understands.
_LOOK = """\
if [ -x "$0" ] && [ -d {packages} ]; then exec "$0" "$@"; fi
echo failed "${{SLURMD_NODENAME:--}}" {why}
exit 127
"""


def agent() -> list[str]:
    """Begins with a shell, which is everywhere."""
    packages = os.path.dirname(nodectl.__path__[0])
    why = shlex.quote(f"there is no nodectl in {packages} for {sys.executable}")
    look = _LOOK.format(packages=shlex.quote(f"{packages}/nodectl"), why=why)
    return ["/bin/sh", "-c", look, *module("nodectl.cluster.agent.main")]


def module(name: str) -> list[str]:
    """Calls `main` of a module; what it is given follows. Where agents are, there is the same installation."""
    boot = _BOOT.format(path=[entry for entry in sys.path if entry], module=name)
    return [sys.executable, "-I", "-S", "-c", boot]
