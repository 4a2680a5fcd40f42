"""Imports asyncio into the daemon without what nobody uses there: three megabytes of every idle service.

TLS, which nobody speaks there, is left out. `inspect`, which asyncio wants only where something is wrong, is imported
then. `main.py` imports this first. Other processes whose modules lie in this package have asyncio as it is, where they
want it at all.
"""

import sys
import types


class _Later(types.ModuleType):
    """Stands for a module until somebody looks into it."""

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
    sys.modules["inspect"] = _Later("inspect")
import asyncio  # noqa: E402, F401

if not _had_tls:
    del sys.modules["ssl"]  # plugins may want it
if not _had_inspect and isinstance(sys.modules["inspect"], _Later):
    del sys.modules["inspect"]  # others import it themselves
