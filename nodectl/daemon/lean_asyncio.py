"""Imports asyncio into the daemon without what nobody uses there: three megabytes of every idle service.

TLS, which nobody speaks there, is left out. `inspect` is imported where asyncio wants more of it than is here, which is
where something is wrong. `main.py` imports this first. Other processes whose modules lie in this package have asyncio
as it is, where they want it at all.
"""

import sys
import types

_CO_COROUTINE = 0x80
_MOST_WRAPPERS = 10


class _Inspect(types.ModuleType):
    """What asyncio asks for each handler of a signal, or has written when somebody prints a task; the rest is the
    module's.
    """

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

    def __getattr__(self, word: str) -> object:
        if word.startswith("__"):
            raise AttributeError(word)  # the import system asks
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        __import__(self.__name__)
        return getattr(sys.modules[self.__name__], word)


_had_tls = "ssl" in sys.modules or "asyncio" in sys.modules
_had_inspect = "inspect" in sys.modules or "asyncio" in sys.modules
if not _had_tls:
    sys.modules["ssl"] = None  # type: ignore[assignment]  # what cannot be imported asyncio does without
if not _had_inspect:
    sys.modules["inspect"] = _Inspect("inspect")
import asyncio  # noqa: E402, F401

if not _had_tls:
    del sys.modules["ssl"]  # plugins may want it
if not _had_inspect and isinstance(sys.modules["inspect"], _Inspect):
    del sys.modules["inspect"]  # others import it themselves
