"""The door through which features add to the command `nodectl`.

A feature is a folder of nodectl without which the rest works. The core imports no feature: a feature declares in its
file `feature.py`, which imports this module alone, what it adds, and names its modules as text. Runs in the command;
lean, and not imported by `nodectl run`, except in an allocation of Slurm's that has no cluster yet.
"""

from _frozen_importlib_external import SourceFileLoader  # importlib's own, without importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import Any, Protocol

    from nodectl.client.run_options import Parser
    from nodectl.client.session import Session

    class SeveralNodes(Protocol):
        """The module which runs commands over the nodes of an allocation. Each function raises Failed."""

        def begin(self, words: Sequence[str], parser: type[Parser], **how: Any) -> None:
            """Start what the command needs on the other nodes, if the words ask for several. Raises BadOption."""

        def send(self, session: Session, nodes: int, source: int, path: str, names: Mapping[str, Any]) -> int:
            """Write a file on all nodes. Return the exit status of the command."""

        def replace(self, gateway: str, nodes: int, path: str, target: str) -> None:
            """Write a file on all nodes over any existing file. `gateway`: a socket of the cluster."""


_FOLDER = __file__.rpartition("/cli/")[0]
# The features, and the commands of each, so that the error for a command of a missing feature can name the feature.
FEATURES = {
    "bulk": ("bulk",),
    "cluster": ("cluster",),
    "lab": ("spank", "select"),
    "mpi": (),  # its plugins are found in the directory of plugins
    "slurm": ("slurm-commands",),
    "view": ("trace", "top", "web"),
}


class Command:
    """A command of `nodectl`. `summary`: its line in `nodectl --help`. `module`: the module which runs the command.

    The module has `add_arguments(parser)` and `main(arguments)`. With `reads_words` it has `main(settings, words)`
    instead, because argparse cannot parse its options. `parser`, for such a command of a feature, is the module with
    its USAGE, ABOUT and `parser()`. `after`: the command behind which `--help` lists a feature's command.
    """

    __slots__ = ("after", "module", "name", "parser", "reads_words", "summary")

    def __init__(
        self, name: str, summary: str, module: str, *, after: str = "", parser: str = "", reads_words: bool = False
    ) -> None:
        self.name = name
        self.summary = summary
        self.module = module
        self.after = after
        self.parser = parser
        self.reads_words = reads_words or bool(parser)


class Feature:
    """What a feature adds.

    `manual`: the module with DESCRIPTIONS, EXAMPLES and SEE for the manual pages of the commands. `several_nodes`: a
    module as `SeveralNodes`.
    """

    __slots__ = ("commands", "manual", "several_nodes")

    def __init__(self, commands: "Sequence[Command]" = (), *, manual: str = "", several_nodes: str = "") -> None:
        self.commands = commands
        self.manual = manual
        self.several_nodes = several_nodes


def installed() -> "list[Feature]":
    """Return the installed features, in the order of `FEATURES`."""
    return [feature for name, commands in FEATURES.items() if commands and (feature := _declared(name))]


def command(name: str) -> Command | None:
    """Return the command of an installed feature, None without one. Imports no other feature's declaration."""
    feature = _declared(owner) if (owner := of_command(name)) else None
    return next((one for one in feature.commands if one.name == name), None) if feature else None


def of_command(name: str) -> str:
    """Return the name of the feature, installed or not, to which a command belongs; "" for other commands."""
    return next((feature for feature, commands in FEATURES.items() if name in commands), "")


def manuals() -> "list[ModuleType]":
    """Return the installed features' texts for the manual."""
    return [module(feature.manual) for feature in installed() if feature.manual]


def several_nodes() -> "SeveralNodes | None":
    """Return the module which runs commands over several nodes, None if no installed feature has one."""
    names = (feature.several_nodes for feature in installed() if feature.several_nodes)
    return next((module(name) for name in names), None)


def needed_for_several_nodes() -> "SeveralNodes":
    """Return the module which runs commands over several nodes. Raises Failed."""
    found = several_nodes()
    if found is None:
        from nodectl.client.command import Failed

        raise Failed(f"a command for several nodes: {is_missing('cluster')}")
    return found


def is_missing(name: str) -> str:
    """Return the error for a missing feature: what lacks, and what to do."""
    return f"nodectl's part {name!r} is not installed here -> install nodectl with it"


def module(name: str) -> "ModuleType":
    """Import and return a module by its full name."""
    found: ModuleType = __import__(name, fromlist=("",))
    return found


def _declared(name: str) -> Feature | None:
    """Return the declaration of a feature, None if there is no such feature here.

    Reads the file alone: importing the packages of the features takes a tenth of `nodectl --help`.
    """
    full_name = f"nodectl.{name}.feature"
    try:
        code: Any = SourceFileLoader(full_name, f"{_FOLDER}/{name}/feature.py").get_code(full_name)
    except FileNotFoundError:
        return None
    names: dict[str, Any] = {"__name__": full_name}
    exec(code, names)  # noqa: S102  # a file of this package
    feature: Feature = names["FEATURE"]
    return feature
