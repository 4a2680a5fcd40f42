"""A kind of plugins is one line in a table and one folder with its plugins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.model import launch_order
from nodectl.model.launch_order import Hook
from nodectl.plugin_host import BUILTIN_DIR, kinds, loader, plugin_facts
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.kinds import KINDS, Kind
from nodectl.plugin_host.node_plugins import Host, NodePlugins, load_node_plugins
from nodectl.plugin_host.tracing.recorder import Recorder

ROW = Hook("clock_p_read", "clock", "stepd", "root", "step", 1, "the step fails")
HEAD = 'plugin_type = "clock/wall"\nplugin_name = "clock on the wall"\nplugin_version = (22, 5, 8)\n'
WALL = f"""{HEAD}
def clock_p_read(where):
    return 0 if where == "here" else 7

def clock_p_wind():
    return 0
"""


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a kind that nobody has heard of: one row of a launch, one line of the table."""
    monkeypatch.setattr(launch_order, "ROWS", {**launch_order.ROWS, ROW.call: ROW})
    monkeypatch.setattr(kinds, "ROWS", launch_order.ROWS)
    line = Kind("clock", "clock_p_", "clocks", required="read", uncalled={"wind": 0})
    monkeypatch.setitem(KINDS, "clock", line)
    tmp_path.chmod(0o755)
    folder = tmp_path / "clock"
    folder.mkdir(mode=0o755)
    return folder


def write(folder: Path, text: str) -> Path:
    path = folder / "wall.py"
    path.write_text(text)
    path.chmod(0o644)
    return path


def loaded(folder: Path) -> NodePlugins:
    host = Host(0, print, forks=False)
    return load_node_plugins({"clock": ["clock/wall"]}, [str(folder.parent)], host)


def test_plugin_of_a_new_kind_is_loaded_and_called(clock: Path) -> None:
    write(clock, WALL)
    plugins = loaded(clock)
    caller = PluginCaller(Recorder(-1, "stepd"), None, 0, 0, single_threaded=False)
    assert plugins.has(ROW)
    assert plugins.call(caller, ROW, ("here",))
    outcome = plugins.call(caller, ROW, ("there",))
    assert (outcome.rc, outcome.why) == (7, "plugin clock/wall (clock on the wall): clock_p_read: returned 7")
    assert plugins.name("clock", 0) == "clock/wall (clock on the wall)"
    assert plugins.name("clock", 1) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEAD, "clock plugin without clock_p_read"),
        (WALL.replace("def clock_p_read(where)", "def clock_p_read()"), "clock_p_read takes 0 parameter(s)"),
        (WALL + "def task_p_pre_launch(step): pass\n", "task_p_pre_launch belongs in a task plugin"),
        (WALL.replace("(22, 5, 8)", "(22, 5, 9)"), "written for version 22.5.9"),
    ],
)
def test_what_is_wrong_with_a_plugin_of_a_new_kind_is_found(clock: Path, text: str, why: str) -> None:
    path = write(clock, text)
    with pytest.raises(loader.PluginRefused) as refused:
        loaded(clock)
    assert why in str(refused.value)
    assert any(why in problem for problem in plugin_facts.read(str(path), "clock").problems)


def test_functions_of_a_new_kind_belong_nowhere_else(clock: Path) -> None:
    del clock
    facts = plugin_facts.of_text("nice.py", b"def clock_p_read(where): pass\n", "task")
    assert any("clock_p_read belongs in a clock plugin" in problem for problem in facts.problems)


def test_every_kind_whose_functions_a_launch_calls_has_a_line() -> None:
    called = {row.kind for row in launch_order.ROWS.values()} - {"step"}
    assert called <= KINDS.keys()
    for row in launch_order.ROWS.values():
        if row.kind in KINDS and row.call != "option":
            assert KINDS[row.kind].functions[row.call] == row.arity


def test_every_kind_that_the_configuration_names_has_a_folder_with_plugins() -> None:
    for kind in KINDS.values():
        if kind.key:
            assert os.path.isfile(f"{BUILTIN_DIR}/{kind.name}/__init__.py"), kind.name


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("task niceness", "task/nice (task niceness)"),
        ("nice", "task/nice"),
        ("task/nice", "task/nice"),
        ("n" * 101, f"task/nice ({'n' * 97}...)"),
    ],
)
def test_people_are_told_type_and_name_where_the_name_says_more(name: str, title: str) -> None:
    assert loader.titled("task/nice", name) == title
