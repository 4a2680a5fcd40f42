"""A SPANK plugin looked at, not run: what it is, what it wants from its host, and what is wrong with it.

`inspect` reads a Python plugin's syntax tree or a compiled one's ELF file. What a plugin does when it runs stays
unknown, so that one without findings can still fail, but one with an error will.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nodectl import trust
from nodectl.hooks import functions
from nodectl.plugin import edit_distance, nearest
from nodectl.spank import SPANK_OPTION_MAXLEN
from nodectl.workbench.releases import is_documented

ERROR, WARNING = "error", "warning"
PREFIX = "slurm_spank_"
PRINTS = "standard output is the program's, or nobody's; slurm_info tells the user"
_NEAR = 2
_LONG_ENOUGH = 10  # below it two edits lead from one ordinary word to another


@dataclass(frozen=True, slots=True)
class Finding:
    """`level` is error (it will fail, or a part of it is never called) or warning; `text` names file and line."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Offered:
    """An option. `static`: it stands in the table spank_options, which the allocator context does not read."""

    name: str
    arginfo: str = ""
    usage: str = ""
    has_arg: int | None = None
    static: bool = True


@dataclass(slots=True)
class Inspection:
    """One plugin. `kind` is "python" or "native"; `version` is empty where it could not be read.

    `needs`: functions of its host, by name, each with the providers ("nodectl", a library's name, "" for nobody).
    `libraries`: what it is linked with, by name, each with the file or "". `bound`: "lazily", "now" or "" (Python).
    """

    path: str
    kind: str
    name: str = ""
    type: str = ""
    version: tuple[int, ...] = ()
    about: str = ""
    hooks: list[str] = field(default_factory=list)
    options: list[Offered] = field(default_factory=list)
    needs: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    bound: str = ""
    findings: list[Finding] = field(default_factory=list)

    def error(self, text: str, line: int = 0) -> None:
        """Notes an error."""
        self.findings.append(Finding(ERROR, f"{self.path}:{line}: {text}" if line else f"{self.path}: {text}"))

    def warn(self, text: str, line: int = 0) -> None:
        """Notes a warning."""
        self.findings.append(Finding(WARNING, f"{self.path}:{line}: {text}" if line else f"{self.path}: {text}"))

    @property
    def errors(self) -> list[str]:
        """The texts of the errors."""
        return [finding.text for finding in self.findings if finding.level == ERROR]


def inspect(path: str) -> Inspection:
    """Looks at the plugin at `path`. Raises OSError when it cannot be read."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "no regular file", path)
    with open(path, "rb") as file:
        file.read(1)
    if path.endswith(".py"):
        from nodectl.workbench import python_source

        found = python_source.read(path)
    else:
        from nodectl.workbench import native  # brings the reader of ELF files

        found = native.read(path)
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


def misspelt(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Of the names of functions those that look as if they were meant to be hooks, each with what is to be said."""
    known = functions("spank")
    for name in names:
        if name in known or is_documented(name):
            continue
        if not name.startswith(PREFIX) and (name.startswith("_") or len(name) < _LONG_ENOUGH):
            continue
        near = nearest(name, known)
        if name.startswith(PREFIX):
            yield name, f"{name} is no hook and is never called; nearest is {near}"
        elif edit_distance(name, near, _NEAR) <= _NEAR:
            yield name, f"{name} looks like a misspelt {near}"
