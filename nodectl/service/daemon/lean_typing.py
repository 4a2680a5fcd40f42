"""Stands in for `typing` while the daemon imports its modules, which need it for annotations and to make named tuples.

`typing` takes 0.3 MiB of an idle service. It compiles each annotation of a named tuple, for which the interpreter makes
the 118 classes of `ast`: another 0.3 MiB. Importing the daemon's modules without both takes 8 ms less. `main.py` begins
with this and ends it after its imports: plugins, and what they import, have the real module.
"""

import sys
import types
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MODULE = "typing"


class _Word:
    """A name for annotations. As a base it adds nothing; called, it returns the last argument: `cast`, `final`."""

    def __call__(self, *given: object, **_: object) -> object:
        return given[-1]

    def __getitem__(self, _: object) -> "_Word":
        return self

    def __or__(self, _: object) -> "_Word":
        return self

    __ror__ = __or__

    def __mro_entries__(self, _: tuple[object, ...]) -> tuple[type, ...]:
        return ()


class _RowType(type):
    """The metaclass of `class X(NamedTuple)`, which makes X a named tuple with the methods of the class body."""

    def __new__(cls, name: str, _: tuple[type, ...], body: "dict[str, Any]") -> type:
        words = tuple(body["__annotations__"])
        defaults = [body[word] for word in words if word in body]
        row = namedtuple(name, words, defaults=defaults, module=body["__module__"])  # type: ignore[misc]  # of any names
        for key, value in body.items():
            if key not in (*words, "__annotations__", "__module__", "__orig_bases__"):
                setattr(row, key, value)
        return row


class _NamedTuple:
    def __mro_entries__(self, _: tuple[object, ...]) -> tuple[type, ...]:
        return (_ROW,)


_ROW = type.__new__(_RowType, "NamedTuple", (), {})


class _Typing(types.ModuleType):
    """The stand-in. Other functions, which have names in lower case, are those of the real module."""

    TYPE_CHECKING = False
    NamedTuple = _NamedTuple()
    cast = final = overload = _Word()

    def __getattr__(self, word: str) -> object:
        if word[0].isupper():
            return _Word()
        if word.startswith("__"):
            raise AttributeError(word)  # the import system asks
        end()
        return getattr(__import__(_MODULE), word)


def begin() -> None:
    """Stand in for `typing` unless it is imported already."""
    if _MODULE not in sys.modules and sys.version_info < (3, 14):  # later bodies of classes have no annotations yet
        sys.modules[_MODULE] = _Typing(_MODULE)


def end() -> None:
    """Leave `typing` to those who import it from now on."""
    if isinstance(sys.modules.get(_MODULE), _Typing):
        del sys.modules[_MODULE]


begin()
