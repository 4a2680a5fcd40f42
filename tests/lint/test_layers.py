"""The order of the house: which package may import which, held from the imports of every module.

A module imports only what stands below it in `LAYERS`: at the top of its file, inside a function and under
TYPE_CHECKING alike. What two subjects need of each other goes down a layer, or comes in as an argument. Inside one
layer files may import each other, but not in a circle.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from lint.sources import ROOT, tracked_files
from nodectl.model.features import FEATURES

pytestmark = pytest.mark.lint

# From the bottom up. A folder, or a file that stands loose beside the folders; and what it is.
LAYERS = {
    "kernel": "system calls and the kernel's files",
    "kernel.log": "the service's lines in systemd's journal",
    "plugin_api": "what plugin files import",
    "messages": "lines for the user",
    "model": "values that every package uses",
    "model.config": "keys and values of the configuration",
    "model.wire": "Varlink over a local socket",
    "model.schemas": "what --json prints, as JSON Schemas",
    "model.accounting": "what jobs and steps used, as values",
    "plugin_host.tracing": "what a launch records of itself",
    "plugin_host": "plugins of every kind: found, checked, called",
    "spank": "the SPANK interface",
    "spank.inspection": "plugin files, read without execution",
    "placement": "the machine, and what runs where on it",
    "placement.machine": "the hardware as values",
    "placement.binding": "which tasks go to which CPUs",
    "selection": "the select interface: which nodes and cores a job gets",
    "scheduler": "the queue: which job starts when",
    "launch": "from the fork of a step runner to the record",
    "launch.cgroup": "control groups and what is written into them",
    "launch.confine": "what a step may not do",
    "launch.streams": "the standard streams of a step",
    "launch.task": "a task, from its fork to its program",
    "launch.container": "job containers",
    "launch.stepd": "the process that runs a step",
    "launch.forkserver": "the process that forks stepds",
    "plugins": "the plugins that come with nodectl",
    "service": "the processes of the service",
    "service.listener": "the process that reads what users send",
    "service.request": "what a client may ask for, looked at without a node",
    "service.config_file": "the configuration file as a whole",
    "service.daemon.processes": "processes that the daemon executes",
    "service.daemon.connections": "the daemon's side of users' connections",
    "service.daemon.steps": "steps that run",
    "service.daemon.history": "steps that have ended",
    "service.daemon.jobs": "what is around the steps of a job",
    "service.daemon.recovery": "what an earlier daemon left",
    "service.daemon.admission": "from a request to a step",
    "service.daemon.notices": "people are told of their jobs",
    "service.daemon.controller": "jobs: the queue, and what starts and ends them",
    "service.daemon.methods": "the methods of org.nodectl",
    "service.daemon.loop_errors": "exceptions in the event loop, for the log",
    "service.daemon.node": "puts these together",
    "service.daemon.lean_typing": "typing, as far as imports need it",
    "service.daemon.lean_asyncio": "asyncio without TLS",
    "service.daemon.main": "the daemon's start and end",
    "client": "speaking to the service, and tables for people",
    "cli.checks": "what is wrong with this machine or its configuration",
    "cli": "one file for each command",
    "cli.manual": "pages of the manual",
    # Features. The core stands above.
    "bulk": "many commands in one step",
    "bulk.runner": "the half of the stepd",
    "cluster": "several nodes as one",
    "lab": "tools for authors of plugins",
    "lab.simulation": "workloads played against a select plugin",
    "lab.selection": "select plugins, examined and tried",
    "lab.spank": "SPANK plugins, examined and tried",
    "lab.commands": "the commands of these tools",
    "mpi": "what the tasks of an MPI program find each other by",
    "plugins.mpi": "the plugins which start these servers",
    "slurm": "Slurm's commands by name",
    "view": "pictures of what runs and waits",
    "view.live": "what runs and waits, looked at again and again",
    "view.timelines": "launches for other tools, as pictures, compared",
    "view.top": "the live view in a terminal",
    "view.web": "the live view in a browser",
    "view.commands": "the commands of these views",
}
ROOMS = 18  # at most: folders of nodectl with source, and the plugins
# A new file belongs in a folder. These stand beside the folders for a reason.
LOOSE = {
    "messages": "plugin files import it by this name",
    "plugin_api": "plugin files import it by this name",
    "service.daemon.node": "puts the daemon's folders together",
    "service.daemon.main": "puts the daemon's folders together",
    "service.daemon.lean_typing": "the daemon alone imports it, before all of these folders",
    "service.daemon.lean_asyncio": "the daemon alone imports it, before all of these folders",
    "service.daemon.loop_errors": "the daemon's start alone uses it; it knows none of these folders",
}
# Plugins of a feature, which an installation without the feature lacks, too.
PLUGINS_OF_FEATURES = {"plugins.mpi.pmi2": "mpi", "plugins.mpi.pmix": "mpi"}
# A package's docstring names the process that runs it.
PROCESSES = re.compile(
    r"\b(?:daemon|listener|forkserver|stepd|agent|leader|tasks?|commands?|every process|any process)\b"
)


def name_of(path: str) -> str:
    """nodectl/service/daemon/jobs/__init__.py is service.daemon.jobs; plugins/task/none.py is plugins.task.none."""
    return path.rpartition(".")[0].removeprefix("nodectl/").removesuffix("/__init__").replace("/", ".")


@cache
def sources() -> dict[str, str]:
    """The text of every module, and of the stub of each one in C, by its name without `nodectl`."""
    paths = {path.relative_to(ROOT).as_posix(): path for path in tracked_files() if path.suffix in (".py", ".pyi")}
    del paths["nodectl/__init__.py"]
    return {name_of(at): path.read_text() for at, path in paths.items() if at.startswith(("nodectl/", "plugins/"))}


@cache
def imports(name: str) -> set[str]:
    """The modules of nodectl that a module imports anywhere in its file."""
    found = set()
    for node in ast.walk(ast.parse(sources()[name])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports by a relative name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    inside = (f".{one}".split(".nodectl.")[-1] for one in found if one.startswith("nodectl."))
    # `from nodectl.model.step import Step` imports model.step.
    return {one if one in sources() else one.rpartition(".")[0] for one in inside} & sources().keys() - {name}


def layer(name: str) -> str:
    """The longest entry of LAYERS in which the module stands; its own name where there is none."""
    return max((one for one in LAYERS if f"{name}.".startswith(f"{one}.")), key=len, default=name)


def test_a_module_imports_only_what_stands_below_it() -> None:
    height = {name: number for number, name in enumerate(LAYERS)}
    upward = [
        f"{name} imports {other}"
        for name in sources()
        for other in imports(name)
        if height.get(layer(other), 0) > height.get(layer(name), -1)
    ]
    assert not upward


def room(name: str) -> str:
    """The folder of nodectl in which a module stands; the feature of a plugin of a feature."""
    return PLUGINS_OF_FEATURES.get(name) or name.partition(".")[0]


def test_the_core_imports_no_feature_and_no_feature_another() -> None:
    across = [
        f"{name} imports {other}"
        for name in sources()
        for other in imports(name)
        if room(other) in FEATURES and room(other) != room(name)
    ]
    assert not across, "what a feature adds is declared in its feature.py: nodectl/model/features.py"


def test_the_core_names_no_module_of_a_feature_as_text() -> None:
    """Nor does the core in C."""
    named = re.compile(rf"\bnodectl\.({'|'.join(FEATURES)})\.\w")
    core = {name: text for name, text in sources().items() if room(name) not in FEATURES}
    core |= {path.name: path.read_text() for path in tracked_files() if path.suffix in (".c", ".h")}
    assert not [f"{name}: {found[0]}" for name, text in core.items() if (found := named.search(text))]


def test_a_declaration_of_a_feature_imports_the_door_alone() -> None:
    declarations = {f"{name}.feature" for name, commands in FEATURES.items() if commands}
    assert {name for name in sources() if name.endswith(".feature")} == declarations
    assert all(imports(name) == {"model.features"} for name in declarations)


def test_there_are_few_rooms() -> None:
    assert len({name.partition(".")[0] for name in sources()} - LOOSE.keys()) <= ROOMS


def test_only_the_command_that_starts_the_daemon_imports_it() -> None:
    """Others speak to it; what both need goes down a layer."""
    above = list(LAYERS)[list(LAYERS).index("service.daemon.main") + 1 :]
    found = {
        name
        for name in sources()
        if layer(name) in above and any(other.startswith("service.daemon.") for other in imports(name))
    }
    assert found == {"cli.daemon"}


def test_files_import_each_other_in_no_circle() -> None:
    try:
        TopologicalSorter({name: imports(name) for name in sources()}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_every_folder_has_a_place_in_the_order() -> None:
    assert {layer(name) for name in sources()} == LAYERS.keys(), "a new folder needs a line in LAYERS"


def test_no_file_stands_loose_beside_the_folders_without_a_reason() -> None:
    folders = {name.rpartition(".")[0] for name in sources()}
    assert {one for one in LAYERS if one not in folders} == LOOSE.keys()


def test_every_package_says_what_it_is_and_which_process_runs_it() -> None:
    silent = set()
    for name in {name.rpartition(".")[0] for name in sources()} - {""}:
        said = ast.get_docstring(ast.parse(sources()[name])) or ""
        if len(re.findall(r"\.(?=\s|$)", said)) < 2 or not PROCESSES.search(said):
            silent.add(name)
    assert not silent, "a package's docstring has two sentences, and names the process"
