"""Files beside a plugin, for the plugin's body to import: `from . import helper`.

A helper is trusted as plugins are, found in the plugin's own directory and nowhere else, and executed once for all
plugins there. After the plugin is loaded no helper is found any more: a hook's import would read files after a fork.
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
    """`with Neighbours(path, compile_file) as package:` lets a module of this package import neighbouring files."""

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
        """Return the spec of a neighbouring file, None for any other name. The finder's method."""
        package, _, stem = name.rpartition(".")
        place = f"{self._directory}/{stem}.py"
        if package != self._package or not os.path.isfile(place):
            return None
        spec = _frozen_importlib.ModuleSpec(name, self, origin=place)  # type: ignore[arg-type]  # as import asks
        spec.has_location = True
        return spec

    def create_module(self, spec: object) -> None:
        """Return None for an ordinary module. The loader's method."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Execute the file. The loader's method. Raises PluginRefused, and the exceptions of the file."""
        exec(self._compile(str(module.__file__)), module.__dict__)  # noqa: S102 - what importing is
