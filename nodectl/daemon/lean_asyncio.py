"""Imports asyncio into the daemon without what nobody uses there: three megabytes of every idle service.

TLS, which nobody speaks there, is left out. `inspect` is imported where asyncio wants more of it than is here, which is
where something is wrong; `subprocess` where somebody executes a program by asyncio. `main.py` imports this first. Other
processes whose modules lie in this package have asyncio as it is, where they want it at all.
"""

import sys
import types

_CO_COROUTINE = 0x80
_MOST_WRAPPERS = 10


class _Later(types.ModuleType):
    """In the place of a module: it is imported when something of it is wanted that is not here."""

    def __getattr__(self, word: str) -> object:
        if word.startswith("__"):
            raise AttributeError(word)  # the import system asks
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        __import__(self.__name__)
        return getattr(sys.modules[self.__name__], word)


class _Subprocess(_Later):
    """What asyncio asks to define its functions."""

    PIPE, STDOUT, DEVNULL = -1, -2, -3


class _Inspect(_Later):
    """What asyncio asks for each handler of a signal, or has written when somebody prints a task."""

    @staticmethod
    def iscoroutinefunction(function: object) -> bool:
        """True for `async def`."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        return isinstance(code, types.CodeType) and bool(code.co_flags & _CO_COROUTINE)

    @staticmethod
    def isfunction(one: object) -> bool:
        """True for what `def` makes."""
        return isinstance(one, types.FunctionType)

    @staticmethod
    def unwrap(function: object) -> object:
        """What decorators have wrapped."""
        for _ in range(_MOST_WRAPPERS):
            function = getattr(function, "__wrapped__", function)
        return function


def _is_there(name: str) -> bool:
    return name in sys.modules or "asyncio" in sys.modules


_tls = None if _is_there("ssl") else "ssl"
_later = [kind for kind in (_Inspect("inspect"), _Subprocess("subprocess")) if not _is_there(kind.__name__)]
if _tls:
    sys.modules[_tls] = None  # type: ignore[assignment]  # what cannot be imported asyncio does without
for _module in _later:
    sys.modules[_module.__name__] = _module
import asyncio  # noqa: E402, F401

if _tls:
    del sys.modules[_tls]  # plugins may want it
for _module in _later:
    if sys.modules[_module.__name__] is _module:
        del sys.modules[_module.__name__]  # others import it themselves
