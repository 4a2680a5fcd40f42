"""Command lines of programs on nodes, for running the present installation there: first of all the agent's."""

from __future__ import annotations

import os
import shlex
import sys

import nodectl

_BOOT = "import sys; sys.path[:0] = {path!r}; {look}from {module} import main; sys.exit(main())"
# A node without the interpreter, without nodectl, with another version of it, or with a Python that was built without
# OpenSSL prints a line that the holder understands. The first check is on one line, for any login shell: csh has no
# quoted words over several lines.
_LOOK = (
    'if [ -x "$0" ] && [ -d {packages} ]; then exec "$0" "$@"; fi; '
    'echo failed "${{SLURMD_NODENAME:--}}" {why}; exit 127'
)
_LOOK_AT_VERSION = (
    "import os, nodectl; there = nodectl.__version__; there == {version!r} or sys.exit(print("
    "'failed', os.environ.get('SLURMD_NODENAME') or '-', "
    "'version', there, 'of nodectl is in', {packages!r}, 'there, and', {version!r}, 'here', flush=True) or 127); "
)
_LOOK_AT_TLS = (
    "import importlib.util; importlib.util.find_spec('_ssl') or sys.exit(print("
    "'failed', os.environ.get('SLURMD_NODENAME') or '-', 'nodes of a cluster speak TLS, and', sys.executable, "
    "'there has no module ssl -> install a Python that was built with OpenSSL', flush=True) or 127); "
)


def agent() -> list[str]:
    """Return the command line of an agent. It begins with a shell, which is everywhere."""
    packages = os.path.dirname(nodectl.__path__[0])
    why = shlex.quote(f"there is no nodectl in {packages} for {sys.executable}")
    look = _LOOK.format(packages=shlex.quote(f"{packages}/nodectl"), why=why)
    version = _LOOK_AT_VERSION.format(version=nodectl.__version__, packages=packages)
    return ["/bin/sh", "-c", look, *module("nodectl.cluster.agent.main", version + _LOOK_AT_TLS)]


def sweeper() -> list[str]:
    """Return the command line for removing the directory of a killed agent of the same place."""
    return module("nodectl.cluster.agent.sweeper")


def module(name: str, look: str = "") -> list[str]:
    """Return a command line for `main` of a module, after the statements in `look`; arguments follow.

    Nodes with agents have the same installation.
    """
    boot = _BOOT.format(path=[entry for entry in sys.path if entry], module=name, look=look)
    return [sys.executable, "-I", "-S", "-c", boot]
