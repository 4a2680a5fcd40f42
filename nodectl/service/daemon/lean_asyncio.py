"""Imports asyncio into the daemon without the unused parts.

With them the daemon has 3.0 MiB more memory of its own (17.0 instead of 14.0), which is a tenth of the bench row "idle
service, PSS". The start takes as long either way.

TLS, which the daemon does not speak, is left out. `inspect`, `logging`, `traceback` and `linecache` are imported only
when asyncio wants more of them than is here, which means that something is wrong; `subprocess` when code executes a
program by asyncio. `main.py` imports this first. Other processes whose modules lie in this package use the normal
asyncio, if any.
"""

import sys
import types

_CO_COROUTINE = 0x80
_MOST_WRAPPERS = 10


class _Later(types.ModuleType):
    """A placeholder of a module, which imports the module when a name missing here is used."""

    def __getattr__(self, word: str) -> object:
        if word.startswith("__"):
            raise AttributeError(word)  # the import system asks
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        __import__(self.__name__)
        return getattr(sys.modules[self.__name__], word)


class _Subprocess(_Later):
    """The constants of `subprocess` which asyncio needs to define functions."""

    PIPE, STDOUT, DEVNULL = -1, -2, -3


class _Inspect(_Later):
    """The functions of `inspect` which asyncio calls for each signal handler, or to print a task."""

    @staticmethod
    def iscoroutinefunction(function: object) -> bool:
        """Return True for an `async def` function."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        return isinstance(code, types.CodeType) and bool(code.co_flags & _CO_COROUTINE)

    @staticmethod
    def isfunction(one: object) -> bool:
        """Return True for a function made by `def`."""
        return isinstance(one, types.FunctionType)

    @staticmethod
    def unwrap(function: object) -> object:
        """Return the function wrapped by decorators."""
        for _ in range(_MOST_WRAPPERS):
            function = getattr(function, "__wrapped__", function)
        return function


class _Logger:
    """A logger created on the first message."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, word: str) -> object:
        import logging  # something is wrong

        return getattr(logging.getLogger(self._name), word)

    def debug(self, *words: object, **how: object) -> None:
        """Log a debug message if logging is imported. Each event loop has a debug message at the start."""
        if "logging" in sys.modules:
            self.__getattr__("debug")(*words, **how)  # type: ignore[operator]  # a method

    def addHandler(self, handler: object) -> None:  # noqa: N802  # logging's name
        """Do nothing. concurrent.futures asks for stderr, where messages go without a handler, too."""


class _Logging(_Later):
    """The names of `logging` with which asyncio and concurrent.futures get loggers."""

    DEBUG = 10
    getLogger = _Logger  # noqa: N815  # logging's name

    @staticmethod
    def StreamHandler() -> None:  # noqa: N802  # logging's name
        """Return None, for `addHandler`."""


class _Traceback(_Later):
    """The function of `traceback` which asyncio imports by name, to use in debug mode."""

    @staticmethod
    def extract_stack() -> object:
        """Return the stack of a task's creation."""
        import traceback

        return traceback.extract_stack(sys._getframe(1))  # as asyncio's own function does


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
    sys.modules[_tls] = None  # type: ignore[assignment]  # asyncio works without a module that cannot be imported
for _module in _later:
    sys.modules[_module.__name__] = _module
import asyncio  # noqa: E402, F401

if _tls:
    del sys.modules[_tls]  # plugins may want it
for _module in _later:
    if sys.modules[_module.__name__] is _module:
        del sys.modules[_module.__name__]  # later code imports the real module
