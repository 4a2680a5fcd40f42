"""What a plugin imports from beside itself: in its body, trusted as it is, and of no other directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.plugin_host import loader
from unit.plugin_host.test_plugin_loader import HEAD, HOOKS, load, refusal, write


def test_plugin_has_what_lies_beside_it_from_its_body_on(tmp_path: Path) -> None:
    write(tmp_path, "from .more import two\ncalls = []\ndef one(): return two - 1\n", "helper.py")
    write(tmp_path, "two = 2\n", "more.py")
    hook = "def task_p_pre_launch(step):\n    from . import helper as again\n    return again.one()\n"
    loaded = load(tmp_path, HEAD + "from . import helper\nfrom .helper import one\n" + hook)
    assert loaded.hooks["task_p_pre_launch"](0) == 1
    assert loaded.module.helper.__file__ == str(tmp_path / "helper.py")
    other = load(tmp_path, HEAD.replace("task/nice", "task/other") + "from . import helper\n", name="other.py")
    assert other.module.helper is loaded.module.helper


def test_helpers_of_one_name_in_two_directories_are_two(tmp_path: Path) -> None:
    found = []
    for number in (1, 2):
        place = tmp_path / str(number)
        place.mkdir()
        write(place, f"number = {number}\n", "helper.py")
        found.append(load(place, HEAD + "from .helper import number\n").module.number)
    assert found == [1, 2]


def test_nothing_is_read_once_the_plugin_is_loaded(tmp_path: Path) -> None:
    write(tmp_path, "raise AssertionError\n", "late.py")
    loaded = load(tmp_path, HEAD + "def task_p_pre_launch(step):\n    from . import late\n")
    with pytest.raises(ImportError, match="cannot import name 'late'"):
        loaded.hooks["task_p_pre_launch"](0)


def test_helper_that_others_can_write_is_refused_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = loader.compile_plugin(write(tmp_path, HEAD + "from . import helper\n"))
    os.chmod(write(tmp_path, "", "helper.py"), 0o666)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(loader.PluginRefused, match=r"helper\.py: not trusted: "):
        loader.load(source, HOOKS["task"], loader.Plugin)


def test_how_to_import_what_lies_beside_a_plugin_is_told(tmp_path: Path) -> None:
    write(tmp_path, "", "helper.py")
    message = refusal(tmp_path, HEAD + "import helper\n")
    assert message.endswith("No module named 'helper'; what lies beside a plugin is had by `from . import helper`")
    assert refusal(tmp_path, HEAD + "from . import absent\n").startswith("nice.py:4: its body raised ImportError: ")
