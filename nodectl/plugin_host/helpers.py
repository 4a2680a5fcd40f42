"""Files beside a plugin, which its body may import: `from . import helper`.

A helper is trusted as plugins are, found in the plugin's own directory and nowhere else, and executed once for all
plugins there. When the plugin is loaded nothing is found any more: what a hook imports would be read after a fork.
"""

import _frozen_importlib
import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Compile = Callable[[str], types.CodeType]

_packages: dict[str, str] = {}  # the names that directories have here


class Neighbours:
    """`with Neighbours(path, compile_file) as package:` a module with that __package__ finds what lies beside it."""

    __slots__ = ("_compile", "_directory", "_package")

    def __init__(self, path: str, compile_file: "Compile") -> None:
        self._directory = os.path.dirname(os.path.abspath(path))
        self._compile = compile_file
        self._package = _packages.setdefault(self._directory, f"nodectl_beside_{len(_packages)}")

    def __enter__(self) -> str:
        if self._package not in sys.modules:
            package = types.ModuleType(self._package, f"What lies in {self._directory}.")
            package.__path__ = []  # nothing is found there but by us
            sys.modules[self._package] = package
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]  # as import asks of a finder
        return self._package

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """A finder's: what the import of this name loads, None for what is none of ours."""
        del path, target
        package, _, stem = name.rpartition(".")
        place = f"{self._directory}/{stem}.py"
        if package != self._package or not os.path.isfile(place):
            return None
        spec = _frozen_importlib.ModuleSpec(name, self, origin=place)  # type: ignore[arg-type]  # as import asks
        spec.has_location = True
        return spec

    def create_module(self, spec: object) -> None:
        """A loader's: an ordinary module will do."""

    def exec_module(self, module: types.ModuleType) -> None:
        """A loader's: executes the file. Raises what it raises, and what refuses it."""
        exec(self._compile(str(module.__file__)), module.__dict__)  # noqa: S102 - what importing is
