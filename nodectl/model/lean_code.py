"""Imports modules without the parts that only readers need: docstrings, and the annotations of functions.

These parts are 1.0 MiB of an idle daemon's 15.5, and 0.4 MiB of a forkserver's 6.2. Without them an import takes a
fifth more time, so a service leaves them out and a private node does not. The leaving out ends before any plugin is
loaded: modules of plugins, and the modules that these import, keep everything. `python -OO` would also leave out
assertions, in plugins too, and no installer compiles modules for it.
"""

import sys
from _frozen_importlib_external import (
    BYTECODE_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from _imp import extension_suffixes
from _operator import is_not

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.abc import PathEntryFinder
    from types import CodeType, ModuleType

_FUNCTION = 0x1  # CO_OPTIMIZED: not a module's code, nor a class body's
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
_Code, _Function = type(sys._getframe().f_code), type(lambda: None)

_hooks: "list[Callable[[str], PathEntryFinder]]" = []  # ours, once this process has begun


class _Loader(SourceFileLoader):
    """The loader of Python files, without those parts."""

    def get_code(self, fullname: str) -> "CodeType":
        """Return the module's code."""
        code: CodeType = super().get_code(fullname)  # type: ignore[assignment]  # a file has code
        return _without_docstrings(code)

    def exec_module(self, module: "ModuleType") -> None:
        """Execute the module's code."""
        super().exec_module(module)
        module.__doc__ = None
        for value in module.__dict__.values():
            if isinstance(value, type) and value.__module__ == module.__name__ and not value.__flags__ & _IMMUTABLE:
                value.__doc__ = None
                for member in value.__dict__.values():
                    _strip(member)
            else:
                _strip(value)


def begin() -> None:
    """Leave out those parts from now on."""
    if sys.version_info < (3, 14):  # later code says elsewhere whether it has a docstring
        loaders = (ExtensionFileLoader, extension_suffixes()), (_Loader, SOURCE_SUFFIXES)
        _hooks.append(FileFinder.path_hook(*loaders, (SourcelessFileLoader, BYTECODE_SUFFIXES)))
        sys.path_hooks[:0] = _hooks
        sys.path_importer_cache.clear()


def end() -> None:
    """Import whole modules again."""
    sys.path_hooks[:] = [hook for hook in sys.path_hooks if hook not in _hooks]
    sys.path_importer_cache.clear()


def boot(package: str) -> str:
    """Return the statements by which another interpreter imports a package's `main` as this process does its own."""
    words = f"from {package} import main"
    return f"from nodectl.model import lean_code; lean_code.begin(); {words}; lean_code.end()" if _hooks else words


def _without_docstrings(code: "CodeType") -> "CodeType":
    """Return the code with None for the docstrings of its functions, at any depth.

    The first constant of a function is its docstring or None; that of a comprehension may be any string. No
    function uses the text of its docstring as a value, too: `tests/unit/model/test_lean_code.py`.
    """
    constants = code.co_consts
    lean = list(constants)
    for place, one in enumerate(constants):
        if type(one) is _Code:
            lean[place] = _without_docstrings(one)
        elif place == 0 and type(one) is str and code.co_flags & _FUNCTION and code.co_name[0] != "<":
            lean[0] = None
    return code.replace(co_consts=tuple(lean)) if any(map(is_not, lean, constants)) else code


def _strip(value: object) -> None:
    """Remove the annotations of a function, or of the function in a property, class method or static method."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if isinstance(value, _Function):
        del value.__annotations__
