"""The door through which features add to nodectl.

A feature is a folder of nodectl without which the rest works. The core imports no feature: a feature declares in its
file `feature.py`, which imports this module alone, what it adds, and names its modules as text. Runs in the command
and the forkserver. Lean; `nodectl run` imports it only in an allocation of Slurm's that has no cluster yet.

To add a command to a feature: a row in its `feature.py`, a module with `add_arguments` and `main`, the name in
`FEATURES`, the texts of the page in its `manual.py`, a row in docs/commands.md. A new feature is a folder besides, with
a line in tests/lint/test_layers.py.
"""

from _frozen_importlib_external import SourceFileLoader  # importlib's own, without importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

_FOLDER = __file__.rpartition("/model/")[0]
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

    `manual`: the module with DESCRIPTIONS, EXAMPLES and SEE for the manual pages of the commands. `several_nodes`: the
    module that runs commands over several nodes (`nodectl/cli/several_nodes.py`). `step`: the module by which a stepd
    runs a kind of step (`nodectl/launch/stepd/main.py`).
    """

    __slots__ = ("commands", "manual", "several_nodes", "step")

    def __init__(self, commands: "Sequence[Command]", *, manual: str, several_nodes: str = "", step: str = "") -> None:
        self.commands = commands
        self.manual = manual
        self.several_nodes = several_nodes
        self.step = step


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


def is_installed(name: str) -> bool:
    """Return True if the feature, which has commands, is installed."""
    return _declared(name) is not None


def kind_of_step(name: str) -> "ModuleType | None":
    """Import and return a feature's module for the stepd, None if the feature is not installed. For the forkserver."""
    feature = _declared(name)
    return module(feature.step) if feature else None


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
