"""Our own plugins are taken as they were compiled when nodectl was installed, and only while that is what they say."""

from __future__ import annotations

import os
import py_compile
from pathlib import Path

import pytest

from nodectl.plugin_host import BUILTIN_DIR, loader

TEXT = 'said = "as installed"\n'


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of ours, compiled; what it was compiled of says something else."""
    monkeypatch.setattr(loader, "BUILTIN_DIR", str(tmp_path))
    path = tmp_path / "task" / "ours.py"
    path.parent.mkdir()
    path.write_text(TEXT, encoding="utf-8")
    os.utime(path, (1000, 1000))
    py_compile.compile(str(path), doraise=True)
    path.write_text(TEXT.replace("installed", "replaced_"), encoding="utf-8")
    os.utime(path, (1000, 1000))
    return path


def said(path: Path) -> object:
    names: dict[str, object] = {}
    exec(loader.compile_plugin(str(path)).code, names)  # noqa: S102  # our own text
    return names["said"]


def compiled(path: Path) -> Path:
    (found,) = (path.parent / "__pycache__").iterdir()
    return found


def test_a_plugin_of_ours_is_not_compiled_again(plugin: Path) -> None:
    assert said(plugin) == "as installed"
    assert loader.compile_plugin(str(plugin)).text == plugin.read_bytes()


def test_a_changed_file_is_compiled(plugin: Path) -> None:
    os.utime(plugin, (2000, 2000))
    assert said(plugin) == "as replaced_"
    os.utime(plugin, (1000, 1000))
    assert said(plugin) == "as installed"
    plugin.write_text('said = "longer than before"\n', encoding="utf-8")
    os.utime(plugin, (1000, 1000))
    assert said(plugin) == "longer than before"


@pytest.mark.parametrize("size", [0, 10, 16, 40])
def test_half_a_file_is_not_taken(plugin: Path, size: int) -> None:
    os.truncate(compiled(plugin), size)
    assert said(plugin) == "as replaced_"


@pytest.mark.skipif(os.geteuid() != 0, reason="root believes only what root alone can write")
def test_what_others_could_have_written_is_not_taken(plugin: Path) -> None:
    compiled(plugin).chmod(0o666)
    assert said(plugin) == "as replaced_"


def test_a_sites_plugin_is_read_each_time(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "BUILTIN_DIR", "/elsewhere")
    assert said(plugin) == "as replaced_"


def test_this_installation_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(loader, "compile_text")
    assert loader.compile_plugin(f"{BUILTIN_DIR}/task/affinity.py").code.co_filename.endswith("task/affinity.py")
