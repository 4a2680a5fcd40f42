"""Packages needed by single commands, not installed with nodectl: extras of pyproject.toml."""

import os
import sys

import nodectl
from nodectl.client.command import Failed


def needed(what: str, packages: str, missing: ImportError) -> Failed:
    """Return the error for a missing package, with the install command.

    Raise `missing` where a part of nodectl is missing.
    """
    if (missing.name or "nodectl").partition(".")[0] == "nodectl":
        raise missing
    return Failed(f"{what} needs {packages}, not installed with nodectl: {_install()} {packages}")


def _install() -> str:
    """Return the install command for this nodectl: into the environment, or beside nodectl."""
    where = os.path.dirname(os.path.dirname(os.path.realpath(nodectl.__file__)))
    programs = os.path.dirname(sys.executable)
    if where.startswith(f"{os.path.dirname(programs)}/lib") and os.path.exists(
        f"{os.path.dirname(programs)}/pyvenv.cfg"
    ):
        return f"{programs}/pip install"
    return f"{sys.executable} -m pip install --target {where}"
