"""Inspection of a SPANK plugin without execution: facts, needs from the host, and faults.

`inspect` reads a Python plugin's syntax tree or a compiled plugin's ELF file. The behaviour at run time stays unknown:
a plugin without findings can still fail, but a plugin with an error will fail.
"""

import errno
import os
import stat

from nodectl.kernel import trust
from nodectl.spank import SPANK_OPTION_MAXLEN
from nodectl.spank.inspection import compiled, python
from nodectl.spank.inspection.findings import Inspection


def inspect(path: str) -> Inspection:
    """Inspect the plugin at `path`. Raises OSError for an unreadable file."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "no regular file", path)
    with open(path, "rb") as file:
        file.read(1)
    found = python.read(path) if path.endswith(".py") else compiled.read(path)
    if found.hooks or not found.errors:
        _check_options(found)
    return found


def _check_options(found: Inspection) -> None:
    names = [option.name for option in found.options]
    for option in found.options:
        if len(option.name) > SPANK_OPTION_MAXLEN:
            found.error(f"option --{option.name[:20]}...: longer than {SPANK_OPTION_MAXLEN} characters")
        if option.has_arg is not None and option.has_arg not in (0, 1, 2):
            found.error(f"option --{option.name}: has_arg is {option.has_arg}; 0, 1 or 2 is needed")
        if option.static and option.usage == "":
            found.warn(f"option --{option.name}: without a usage text")
    for name in {name for name in names if names.count(name) > 1}:
        found.warn(f"option --{name} is offered twice")


def root_refuses(path: str) -> str:
    """Return root's reason not to load this file: another user could change the file. Return "" if only root can."""
    try:
        trust.resolve(path, trust.ROOT)
    except trust.Untrusted as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or path}: {error.strerror}"
    return ""
