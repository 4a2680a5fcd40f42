"""A copy of the installed nodectl without its features."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import nodectl
from nodectl.model.features import FEATURES

_PACKAGE = Path(str(nodectl.__file__)).parent
LEFT_OUT = {
    *(_PACKAGE / name for name in FEATURES),
    *(_PACKAGE / f"plugins/mpi/{name}.py" for name in ("pmi2", "pmix")),
}


def copied(directory: Path) -> list[str]:
    """Copy the core into a directory that is not there yet. Return the sys.path that finds it."""

    def others(at: str, names: list[str]) -> list[str]:
        return [name for name in names if name == "__pycache__" or Path(at, name) in LEFT_OUT]

    shutil.copytree(_PACKAGE, directory / "nodectl", ignore=others)
    return [str(directory), sysconfig.get_paths()["purelib"]]
