"""The order of a launch is a table, and the code calls its rows by name: table and calls cannot disagree."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from lint.sources import ROOT, modules, where
from nodectl.launch.task.stages import SEQUENCE
from nodectl.model import launch_order
from nodectl.model.launch_order import BATCH_HOOKS, HOOKS, LOADING, LOCAL_HOOKS, SLURMD_HOOKS, SUSPENSION_HOOKS, Hook

TABLE = "nodectl/model/launch_order.py"
NAMES = {name: row for name, row in vars(launch_order).items() if isinstance(row, Hook)}
CALLED = {name: row for name, row in NAMES.items() if row is not LOADING}  # loading is no call
# The functions that call a row, note its begin, or make it an operation of a task; and `Moment`, whose rows a process
# of a job calls.
CALLERS = {
    "Moment", "_call", "_enter", "begin_row", "call", "call_task_plugins", "container_plugin", "enter", "row", "spank",
    "task_plugins",
}  # fmt: skip
# Where the processes of the table have their code.
PLACES: dict[str, str | tuple[str, ...]] = {
    "command": "nodectl/client/local_spank.py",
    "container": "nodectl/launch/forkserver/",
    "daemon": "nodectl/service/daemon/jobs/",
    "job script": "nodectl/service/daemon/jobs/prolog_epilog.py",
    "slurmd": "nodectl/spank/slurmd_context.py",
    "stepd": ("nodectl/launch/stepd/", "nodectl/bulk/runner/"),
    "task": "nodectl/launch/task/",
}
OPTION_PLACE = "nodectl/spank/stack.py"  # an option's callback, in the stepd and in the command
# Rows with more than one place in the code, and why; all other rows have one.
SEVERAL = {
    "GATE": 2,  # of all tasks, and before it the wait for a site's own process tracker
    "PROCTRACK_ADD": 3,  # of a task, of a command of a bulk step, of what takes a task over
    "PROCTRACK_SIGNAL": 4,  # at the end, to kill, to suspend and resume, to let an MPI server end
    "SPANK_TASK_POST_FORK": 2,  # as proctrack_p_add
}


@cache
def trees() -> dict[str, ast.Module]:
    """The source by path, without the table."""
    files = [path for path in modules("nodectl") if str(path.relative_to(ROOT)) != TABLE]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(), path) for path in files}


def rows_in(node: ast.AST) -> Iterator[str]:
    """The names of rows in the source, in its order."""
    found = [one for one in ast.walk(node) if isinstance(one, ast.Attribute) and one.attr in NAMES]
    for one in sorted(found, key=lambda one: (one.lineno, one.col_offset)):
        if isinstance(one.value, ast.Name) and one.value.id == "launch_order":
            yield one.attr


def calls_in(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The calls of rows: the row's name and the call, in the order of the source."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if function not in CALLERS:
            continue
        for argument in call.args:
            if isinstance(argument, ast.Attribute | ast.IfExp):
                for name in rows_in(argument):
                    # `row.call`, a name for a message or a look into a plugin, is no call.
                    if not isinstance(argument, ast.Attribute) or argument.attr == name:
                        yield name, call


def test_names_of_rows_follow_from_the_names_of_their_calls() -> None:
    for name, row in NAMES.items():
        plain = row.call.removeprefix("slurm_").replace("_p_", "_", 1).upper()
        assert name in (plain, f"LOCAL_{plain}", f"SLURMD_{plain}"), name


def test_every_row_is_in_the_table_of_its_occasion() -> None:
    tables = (*HOOKS, *BATCH_HOOKS, *SUSPENSION_HOOKS, *LOCAL_HOOKS, *SLURMD_HOOKS, launch_order.LOCAL_OPTION, LOADING)
    assert Counter(map(id, tables)) == Counter(map(id, NAMES.values()))


def test_every_row_is_called_where_its_process_has_its_code_and_nowhere_else() -> None:
    calls = [(name, path, call) for path, tree in trees().items() for name, call in calls_in(tree)]
    sites = [site for site in calls if site[0] in CALLED]
    for name, path, call in sites:
        row = NAMES[name]
        place = OPTION_PLACE if row.call == "option" else PLACES[row.process]
        assert path.startswith(place), f"{path}:{call.lineno}: {name} is a row of the {row.process}"
    assert Counter(name for name, _, _ in sites) == {name: SEVERAL.get(name, 1) for name in CALLED}


def functions(path: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(trees()[path]) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("nodectl/launch/stepd/main.py", ["run_step", "open_gate"]),
        ("nodectl/launch/stepd/main.py", ["finish"]),
        ("nodectl/launch/stepd/start.py", ["start", "_start_all"]),
        ("nodectl/launch/stepd/reaper.py", ["_is_over"]),
    ],
)
def test_a_function_calls_its_rows_in_the_order_of_the_table(path: str, names: list[str]) -> None:
    found = functions(path)
    called = [name for function in names for name, _ in calls_in(found[function])]
    assert called == sorted(called, key=lambda name: HOOKS.index(NAMES[name]))
    assert called


def test_stages_of_a_task_stand_in_the_order_of_the_rows_that_they_call() -> None:
    found = functions("nodectl/launch/task/stages.py")
    called = [
        name
        for stage in SEQUENCE
        for function in (stage.__name__, f"_{stage.__name__.removesuffix('s')}")
        if function in found
        for name, _ in calls_in(found[function])
    ]
    assert [NAMES[name] for name in called] == [row for row in HOOKS if row.process == "task"]


def test_no_call_of_a_launch_names_its_row_by_a_text() -> None:
    plugins = {row.call for row in NAMES.values() if row.kind != "step" and row.call != "option"}
    everything = {row.call for row in NAMES.values()}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant):
                assert node.value not in plugins, f"{path}:{node.lineno}: name the row of {TABLE}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLERS:
                texts = {one.value for one in node.args[:2] if isinstance(one, ast.Constant)}
                assert not texts & everything, f"{path}:{node.lineno}: name the row of {TABLE}"


def test_no_comment_counts_the_rows() -> None:
    for path in modules("nodectl", "plugins"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not re.search(r"\brows? \d", line, re.IGNORECASE), where(path, number)
