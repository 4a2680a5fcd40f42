"""The sources as data: linters, and the rules of the architecture that no linter knows."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import nodectl
from lint.sources import ROOT, imports, modules, tracked_files, where
from needs import need
from nodectl.model.features import FEATURES
from nodectl.model.states import STATES

pytestmark = pytest.mark.lint

FUNCTION_LINES = 60
PATIENCE = 1800  # seconds for a tool; mypy takes minutes on a busy machine
# Directories of one developer's machine; written in halves, as this file is examined too.
FOREIGN_PATHS = re.compile(r"(?<![\w.*-])/" + r"(?:work|Users|home/runner|bash_jobs)/")
CONFINED_MODULES: dict[str, tuple[str, ...]] = {
    # No other process imports these; `nodectl/client/api` is imported by users' programs alone, and warm.py is one.
    "ctypes": (
        *("nodectl/launch/confine/seccomp_compiler.py", "nodectl/launch/task/warm.py"),
        *("nodectl/mpi/openpmix.py", "nodectl/mpi/pmix_host.py"),
    ),
    "pickle": ("nodectl/client/api/executor.py", "nodectl/client/api/worker.py"),
    "threading": ("nodectl/client/api/client.py", "nodectl/client/api/executor.py", "nodectl/mpi/entrance.py"),
    "_thread": ("nodectl/bulk/beside.py",),
    "asyncio": (
        *(
            "nodectl/client/api/a*.py",
            "nodectl/service/daemon/*.py",
            "nodectl/service/daemon/**/*.py",
            "nodectl/cli/daemon*.py",
        ),
        *("nodectl/cluster/*.py", "nodectl/cluster/**/*.py"),
    ),
}
HEADINGS = {("job_fields.py", "DEADLINE"), ("show.py", "FAILED")}  # of columns, in the words of a state
# In the public API, and in Slurm's interface of select plugins.
NAMED_TWICE = {"JobInfo", "JobOptions", "Step"}
TO_ITSELF = {"nodectl/kernel/c/operation.c"}  # a task that ends as by a signal
SENDERS_OWNERS = {"os", "signal", "_signal", "posix", "_kernel"}
SHELL_SCRIPTS = ("dev", ".ci/run", "systemd/build-deb", "systemd/build-rpm", "systemd/build-wheels",
                 "systemd/package-tree", "systemd/install", "systemd/uninstall", "tests/bare/inside",
                 "vagrant/provision.sh", "vagrant/round", "vagrant/run-tests")  # fmt: skip

# Nothing of `./dev test` needs these programs, so it installs neither.
without_vagrant = pytest.mark.skipif(shutil.which("vagrant") is None, reason="no vagrant here, but for ./dev vagrant")


def finds_nothing(*argv: str) -> None:
    """Run a checker over a file of the tree, where there is one, and fail with what it printed."""
    need(argv[0])
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.fail(f"{' '.join(argv)}:\n{result.stdout}{result.stderr}", pytrace=False)


def tool(*argv: str) -> None:
    """Run a Python tool over the tree, and fail with what it printed."""
    result = subprocess.run(
        [sys.executable, "-P", "-m", *argv],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    if result.returncode != 0:
        pytest.fail(f"{' '.join(argv)}:\n{result.stdout}{result.stderr}", pytrace=False)


def test_ruff_finds_nothing() -> None:
    tool("ruff", "check", "--no-cache", "--output-format=concise", ".")


def test_sources_are_formatted() -> None:
    tool("ruff", "format", "--no-cache", "--check", ".")


def test_mypy_finds_nothing() -> None:
    tool("mypy")


def test_tests_see_the_installed_package() -> None:
    assert nodectl.__file__ is not None
    assert not Path(nodectl.__file__).is_relative_to(ROOT / "nodectl"), (
        "run ./dev test, or python -P -m pytest: the tree would hide what a wheel lacks"
    )


@pytest.mark.parametrize("module", CONFINED_MODULES)
def test_module_is_imported_only_where_the_architecture_allows_it(module: str) -> None:
    allowed = CONFINED_MODULES[module]
    found = [
        where(path, line)
        for path in modules("nodectl", "plugins")
        if not any(path.relative_to(ROOT).match(pattern) for pattern in allowed)
        for line, name in imports(path)
        if name == module
    ]
    assert not found


def test_every_dependency_is_imported() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    wanted = {re.split(r"[^\w-]", name)[0] for name in project["dependencies"]}
    imported = {name for path in modules("nodectl", "plugins") for _, name in imports(path)}
    owners = metadata.packages_distributions()
    assert wanted <= {owner for name in imported for owner in owners.get(name, ())}


def test_signals_are_sent_in_one_place() -> None:
    """By descriptors, not by bare numbers, which are given anew (`nodectl/kernel/signals.py`)."""
    senders = {"kill", "killpg", "pidfd_send_signal", "tgkill"}
    found = [
        where(path, node.lineno)
        for path in modules("nodectl", "plugins")
        if path.relative_to(ROOT).as_posix() != "nodectl/kernel/signals.py"
        for node in ast.walk(ast.parse(path.read_text(), path))
        if (isinstance(node, ast.Attribute) and node.attr in senders and ast.unparse(node.value) in SENDERS_OWNERS)
        or (isinstance(node, ast.ImportFrom) and any(alias.name in senders for alias in node.names))
    ]
    calls = re.compile(
        r"\b(?:kill|killpg|tkill|tgkill|pidfd_send_signal|sigqueue|SYS_\w*kill|SYS_\w*send_signal)\b *\(?"
    )
    found += [
        where(path, number)
        for path in tracked_files()
        if path.suffix == ".c" and not path.is_relative_to(ROOT / "tests")
        if path.relative_to(ROOT).as_posix() not in TO_ITSELF
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (call := calls.search(line)) and (call[0].endswith("(") or call[0].startswith("SYS_"))
    ]
    assert not found


def test_only_system_calls_the_host_of_compiled_plugins_and_the_quick_way_are_written_in_c() -> None:
    found = {str(path.relative_to(ROOT)) for path in tracked_files() if path.suffix == ".c"}
    in_package = {name for name in found if not name.startswith("tests/")}
    host = (
        "host", "load", "container", "walk", "link", "libslurm", "job", "message", "option", "environment", "item",
        "python", "hook", "guard", "handle", "kernel", "memory",
    )  # fmt: skip
    parts = ("bind", "open", "confine", "report")
    operations = ("lane", "lanes", "launch", "operation", *(f"operation_{part}" for part in parts))
    system_calls = ("kernel", "move", *operations, "trace", "clock", "shared", "socket", "confine", "devices")
    command = ("main", "step", "python", "request", "program", "cluster", "job", "words", "wire", "json", "buffer")
    assert in_package == {
        *(f"nodectl/client/c/{name}.c" for name in command),
        "nodectl/launch/c/hand_over.c",
        *(f"nodectl/kernel/c/{name}.c" for name in (*system_calls, "namespace", "system")),
        *(f"nodectl/spank/c/{name}.c" for name in host),
    }


def test_states_of_jobs_and_steps_are_written_in_their_table_alone() -> None:
    table = ROOT / "nodectl/model/states.py"
    found = [
        f"{where(path, node.lineno)}: {node.value}"
        for path in modules("nodectl", "plugins")
        if path != table
        for node in ast.walk(ast.parse(path.read_text(), path))
        if isinstance(node, ast.Constant) and node.value in STATES and (path.name, node.value) not in HEADINGS
    ]
    assert not found, f"nodectl.model.states has the constants: {found}"


def test_no_two_classes_of_the_core_share_a_name() -> None:
    found: dict[str, set[str]] = {}
    for path in modules("nodectl"):
        room = path.relative_to(ROOT).parts[1]
        for node in ast.parse(path.read_text(), path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and room not in FEATURES:
                found.setdefault(node.name, set()).add(where(path, node.lineno))
    twice = {name: places for name, places in found.items() if len(places) > 1 + (name in NAMED_TWICE)}
    assert not twice


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{where(path, node.lineno)} {node.name}: {length} lines"
        for path in modules("nodectl", "plugins", "tests")
        for node in ast.walk(ast.parse(path.read_text(), path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert not long


def test_every_directory_of_modules_is_a_package() -> None:
    directories = {path.parent for path in modules("nodectl", "plugins")}
    assert not [str(path) for path in directories if not (path / "__init__.py").exists()]


def test_every_module_is_installed() -> None:
    assert nodectl.__file__ is not None
    installed = Path(nodectl.__file__).parent
    names = [path.relative_to(ROOT).as_posix() for path in modules("nodectl", "plugins")]
    missing = [name for name in names if not (installed / name.removeprefix("nodectl/")).exists()]
    assert not missing


def test_no_file_names_a_directory_of_its_author() -> None:
    found = [
        where(path, number)
        for path in tracked_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if FOREIGN_PATHS.search(line)
    ]
    assert not found


def twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON; ValueError names the first key that it has twice, of which a reader keeps the last."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name} twice")
        found[name] = value
    return found


def test_no_object_of_json_has_a_key_twice() -> None:
    """A schema that had `nodes` twice said of a step over several nodes what is true of a job."""
    files = [path for path in tracked_files() if path.suffix == ".json"]
    assert files
    for path in files:
        try:
            json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=twice)
        except ValueError as error:
            pytest.fail(f"{path.relative_to(ROOT)}: {error}")


def test_plugins_are_a_link_in_the_package() -> None:
    link = ROOT / "nodectl/plugins"
    assert link.is_symlink()
    assert os.readlink(link) == "../plugins"


@pytest.mark.parametrize("script", [*SHELL_SCRIPTS, "nodectl/bin/nodectl-python"])
def test_scripts_are_executable_plain_shell(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/bin/sh\n")


@pytest.mark.parametrize("checker", [("sh", "-n"), ("shellcheck", "-x", "-P", "SCRIPTDIR")])
@pytest.mark.parametrize("script", [*SHELL_SCRIPTS, "systemd/distribution"])
def test_shell_scripts_are_sound(checker: tuple[str, ...], script: str) -> None:
    finds_nothing(*checker, script)


@without_vagrant
def test_vagrantfile_is_ruby() -> None:
    finds_nothing("ruby", "-wc", "vagrant/Vagrantfile")


@without_vagrant
@pytest.mark.parametrize(("topology", "said"), [("1s6c1t1n", "validated"), ("2s4c2t3n", "16 CPUs"), ("4", "topology")])
def test_vagrant_takes_its_file_with_topologies_that_can_be(topology: str, said: str, tmp_path: Path) -> None:
    places = {"VAGRANT_HOME": str(tmp_path / "home"), "VAGRANT_DOTFILE_PATH": str(tmp_path / "machine")}
    env = {**os.environ, **places, "VAGRANT_CHECKPOINT_DISABLE": "1", "NODECTL_TOPOLOGY": topology}
    command = ["vagrant", "validate", "--ignore-provider"]
    done = subprocess.run(command, cwd=ROOT / "vagrant", env=env, capture_output=True, text=True, check=False)
    assert said in done.stdout + done.stderr
    assert (done.returncode == 0) is (said == "validated")
