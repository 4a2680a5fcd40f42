"""Modules of a service's processes have no docstrings, and work as they do with them."""

from __future__ import annotations

import dis
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

SITES = sysconfig.get_paths()["purelib"]
PROCESSES = ("nodectl.service.daemon.main", "nodectl.service.listener.main", "nodectl.launch.forkserver.main")
MODULE = '''
"""Of the module."""

def function(of: int) -> int:
    """Of the function."""
    def inner():
        """Of a function in it."""
        return of
    return inner

class Whole:
    """Of the class."""

    @property
    def value(self) -> str:
        """Of a property."""
        return "value"

    @classmethod
    def make(cls) -> "Whole":
        """Of a class method."""
        return cls()

texts = {key: "kept" for key in "ab"}
'''
ABSENT = """
import lean
assert lean.__doc__ is None and lean.Whole.__doc__ is None
functions = lean.function, lean.function(3), lean.Whole.value.fget, lean.Whole.make.__func__
assert [function.__doc__ for function in functions] == [None] * 4
assert [function.__annotations__ for function in functions] == [{}] * 4
assert lean.function(3)() == 3 and lean.Whole.make().value == "value" and lean.texts == {"a": "kept", "b": "kept"}
"""


def _run(code: str, directory: Path) -> str:
    boot = f"import sys; sys.path[:0] = [{SITES!r}, {str(directory)!r}]\nfrom nodectl.model import lean_code\n"
    done = subprocess.run([sys.executable, "-ISB", "-c", boot + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_docstrings_and_annotations_are_left_out_and_values_are_kept(tmp_path: Path) -> None:
    (tmp_path / "lean.py").write_text(MODULE)
    _run(f"lean_code.begin()\n{ABSENT}", tmp_path)


def test_modules_that_a_plugin_imports_later_are_whole(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(MODULE)
    _run(
        'lean_code.begin(); lean_code.end(); import whole\nassert whole.function.__doc__ == "Of the function."',
        tmp_path,
    )


def test_companions_leave_out_the_same_as_the_daemon(tmp_path: Path) -> None:
    package = tmp_path / "companion"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text(MODULE)
    ours = "exec(lean_code.boot('companion')); print(main.__doc__, lean_code.boot('companion'))"
    assert "Of the module." in _run(ours, tmp_path)
    theirs = _run(f"lean_code.begin(); {ours}", tmp_path)
    assert theirs.startswith("None ")
    assert theirs.endswith("lean_code.end()\n")


def _functions(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _functions(one)


def test_no_function_uses_the_text_of_its_docstring_as_a_value() -> None:
    """The compiler gives equal constants one place: without the docstring the value would be None."""
    code = f"import sys; sys.path[:0] = [{SITES!r}]; import {', '.join(PROCESSES)}; "
    code += (
        "print(*(m.__file__ for m in sys.modules.values() if getattr(m, '__file__', '') and m.__file__.endswith('py')))"
    )
    files = subprocess.run(
        [sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(files) > 300
    loads = {dis.opmap[name] for name in ("LOAD_CONST", "RETURN_CONST") if name in dis.opmap}
    wrong = []
    for path in files:
        module = SourceFileLoader("module", path).get_code("module")
        assert module is not None
        for function in _functions(module):
            code_of = function.co_code
            has_docstring = (
                function.co_name[0] != "<" and function.co_flags & 1 and isinstance(function.co_consts[0], str)
            )
            if has_docstring and any(
                code_of[at] in loads and code_of[at + 1] == 0 and code_of[at - 2] != dis.EXTENDED_ARG
                for at in range(0, len(code_of), 2)
            ):
                wrong.append(f"{path}: {function.co_qualname}")
    assert not wrong
