"""Imports asyncio into the daemon without what nobody uses there: three megabytes of every idle service.

TLS, which nobody speaks there, is left out. `inspect`, `logging`, `traceback` and `linecache` are imported where
asyncio wants more of them than is here, which is where something is wrong; `subprocess` where somebody executes a
program by asyncio. `main.py` imports this first. Other processes whose modules lie in this package have asyncio as it
is, where they want it at all.
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


class _Logger:
    """A logger that is made when it has something to say."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, word: str) -> object:
        import logging  # something is wrong

        return getattr(logging.getLogger(self._name), word)

    def debug(self, *words: object, **how: object) -> None:
        """What each event loop says at its start; nobody hears it unless somebody has set up logging."""
        if "logging" in sys.modules:
            self.__getattr__("debug")(*words, **how)  # type: ignore[operator]  # a method

    def addHandler(self, handler: object) -> None:  # noqa: N802  # logging's name
        """concurrent.futures wants stderr, where lines go without any handler, too."""


class _Logging(_Later):
    """What asyncio and concurrent.futures ask to have their loggers."""

    DEBUG = 10
    getLogger = _Logger  # noqa: N815  # logging's name

    @staticmethod
    def StreamHandler() -> None:  # noqa: N802  # logging's name
        """For `addHandler`."""


class _Traceback(_Later):
    """What asyncio takes at once, to use it where it is debugged."""

    @staticmethod
    def extract_stack() -> object:
        """Where a task was made."""
        import traceback

        return traceback.extract_stack(sys._getframe(1))  # as it does itself


def _is_there(name: str) -> bool:
    return name in sys.modules or "asyncio" in sys.modules


_tls = None if _is_there("ssl") else "ssl"
_kinds = (
    _Inspect("inspect"),
    _Later("linecache"),
    _Logging("logging"),
    _Subprocess("subprocess"),
    _Traceback("traceback"),
    _Later("asyncio.sslproto"),
)
_later = [kind for kind in _kinds if not _is_there(kind.__name__)]
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
