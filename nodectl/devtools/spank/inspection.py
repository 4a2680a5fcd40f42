"""A SPANK plugin looked at, not run: what it is, what it wants from its host, and what is wrong with it.

`inspect` reads a Python plugin's syntax tree or a compiled one's ELF file. What a plugin does when it runs stays
unknown, so that one without findings can still fail, but one with an error will.
"""

import errno
import os
import stat

from nodectl.devtools.spank import inspect_compiled, inspect_python
from nodectl.devtools.spank.findings import Inspection
from nodectl.kernel import trust
from nodectl.spank import SPANK_OPTION_MAXLEN


def inspect(path: str) -> Inspection:
    """Looks at the plugin at `path`. Raises OSError when it cannot be read."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "no regular file", path)
    with open(path, "rb") as file:
        file.read(1)
    found = inspect_python.read(path) if path.endswith(".py") else inspect_compiled.read(path)
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
    """Why root would not load this file: who else could change it. "" when only root can."""
    try:
        trust.resolve(path, trust.ROOT)
    except trust.Untrusted as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or path}: {error.strerror}"
    return ""
