"""What is found in a SPANK plugin that is looked at, not run: for the readers of Python and of compiled ones alike."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nodectl.devtools.spank.slurm_releases import is_documented
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.spelling import edit_distance, nearest

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


def misspelt(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Of the names of functions those that look as if they were meant to be hooks, each with what is to be said."""
    known = KINDS["spank"].functions
    for name in names:
        if name in known or is_documented(name):
            continue
        if not name.startswith(PREFIX) and (name.startswith("_") or len(name) < _LONG_ENOUGH):
            continue
        near = nearest(name, known)
        if edit_distance(name, near, _NEAR) > _NEAR:
            continue
        if name.startswith(PREFIX):
            yield name, f"{name} is no hook and is never called; nearest is {near}"
        else:
            yield name, f"{name} looks like a misspelt {near}"


def unknown(names: Iterable[str]) -> Iterator[str]:
    """What is to be said of functions that are called like hooks, and are near to none."""
    names = list(names)
    near = {name for name, _ in misspelt(names)}
    for name in names:
        if (
            name.startswith(PREFIX)
            and name not in near
            and name not in KINDS["spank"].functions
            and not is_documented(name)
        ):
            yield f"{name} is no hook: nobody but the plugin itself calls it"
