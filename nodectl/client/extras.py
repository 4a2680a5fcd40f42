"""Packages that one command alone needs, and that are not installed with nodectl: extras of pyproject.toml."""

import os
import sys

import nodectl
from nodectl.client.command import Failed


def needed(what: str, packages: str, missing: ImportError) -> Failed:
    """Why the command cannot go on, and what to type. Raises what is missing where it is a part of nodectl."""
    if (missing.name or "nodectl").partition(".")[0] == "nodectl":
        raise missing
    return Failed(f"{what} needs {packages}, not installed with nodectl: {_install()} {packages}")


def _install() -> str:
    """The command that installs where this nodectl finds it: in its environment, or beside it."""
    where = os.path.dirname(os.path.dirname(os.path.realpath(nodectl.__file__)))
    programs = os.path.dirname(sys.executable)
    if where.startswith(f"{os.path.dirname(programs)}/lib") and os.path.exists(
        f"{os.path.dirname(programs)}/pyvenv.cfg"
    ):
        return f"{programs}/pip install"
    return f"{sys.executable} -m pip install --target {where}"
