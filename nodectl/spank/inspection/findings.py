"""The findings about a SPANK plugin examined without execution: for the readers of Python and compiled plugins."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.spelling import edit_distance, nearest
from nodectl.spank.inspection.slurm_releases import is_documented

ERROR, WARNING = "error", "warning"
PREFIX = "slurm_spank_"
PRINTS = "standard output is the program's, or is not read; slurm_info tells the user"
_NEAR = 2
_LONG_ENOUGH = 10  # below it two edits lead from one ordinary word to another


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. `level`: error (a part of the plugin fails or is never called), warning; `text` has file and line."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Offered:
    """An option of a plugin.

    `static`: the option is in the table spank_options, which the allocator context ignores.
    """

    name: str
    arginfo: str = ""
    usage: str = ""
    has_arg: int | None = None
    static: bool = True


@dataclass(slots=True)
class Inspection:
    """The inspection of a plugin. `kind` is "python" or "native"; `version` is empty if unreadable.

    `needs`: functions of its host, by name, each with the provider ("nodectl", a library's name, "" if nothing provides
    the function). `libraries`: the libraries that the plugin is linked with, by name, each with the file or "".
    `bound`: "lazily", "now" or "" (Python).
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
        """Note an error."""
        self.findings.append(Finding(ERROR, f"{self.path}:{line}: {text}" if line else f"{self.path}: {text}"))

    def warn(self, text: str, line: int = 0) -> None:
        """Note a warning."""
        self.findings.append(Finding(WARNING, f"{self.path}:{line}: {text}" if line else f"{self.path}: {text}"))

    @property
    def errors(self) -> list[str]:
        """The texts of the errors."""
        return [finding.text for finding in self.findings if finding.level == ERROR]


def misspelt(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the names of functions which look like misspelt hooks, each with the words of the finding."""
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
    """Yield the words of the finding for each function with the hooks' prefix and no similar hook."""
    names = list(names)
    near = {name for name, _ in misspelt(names)}
    for name in names:
        if (
            name.startswith(PREFIX)
            and name not in near
            and name not in KINDS["spank"].functions
            and not is_documented(name)
        ):
            yield f"{name} is no hook: only the plugin itself calls it"
