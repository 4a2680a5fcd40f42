"""The command line of an agent, by which a node has the same installation that we are."""

from __future__ import annotations

import os
import shlex
import sys

import nodectl

_BOOT = "import sys; sys.path[:0] = {path!r}; from nodectl.cluster.agent.main import main; sys.exit(main())"
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
    boot = _BOOT.format(path=[entry for entry in sys.path if entry])
    look = _LOOK.format(packages=shlex.quote(f"{packages}/nodectl"), why=why)
    return ["/bin/sh", "-c", look, sys.executable, "-I", "-S", "-c", boot]
