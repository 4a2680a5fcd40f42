"""The part of `dataclasses` needed for our values, at a fifth of the price.

A daemon makes some fifty value classes when it starts, a forkserver fourteen. Importing `dataclasses` gives the daemon
1.0 MiB of memory (15.0 instead of 14.0), which is 4 % of the bench row "idle service, PSS", and the forkserver, which
each step forks, 2.4 MiB (8.2 instead of 5.9). The standard library also compiles six functions for each class; here
only `__init__` is compiled, when the first object is made, and the other functions are made of existing parts. Checkers
see `dataclasses` itself. Its `fields`, `asdict` and `replace` accept these values too, as a site's plugin may want.
"""

from operator import attrgetter
from reprlib import recursive_repr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass, field, replace
    from typing import Any, NoReturn

    __all__ = ["dataclass", "field", "names", "replace", "values"]
else:

    def dataclass(*, slots: bool, frozen: bool = False, eq: bool = True):
        """Make a class of annotated names, always with slots."""
        assert slots  # noqa: S101  # for the reader's and the checkers' sake
        return lambda cls: _made(cls, frozen=frozen, eq=eq)

    def field(**default):
        """Return a default for a name: `default`, or default_factory, called for each object."""
        return _Default(**default)

    def replace(one, /, **changes):
        """Return a copy of the object with changed values."""
        return type(one)(**{name: getattr(one, name) for name in one.__match_args__} | changes)


class _Default:
    __slots__ = ("default", "default_factory")

    def __init__(self, default: object = None, default_factory: "Callable[[], object] | None" = None) -> None:
        self.default = default
        self.default_factory = default_factory


class _Fields:
    """The attribute `__dataclass_fields__`, made by `dataclasses` from the same names at the first use."""

    __slots__ = ("_annotations", "_defaults")

    def __init__(self, annotations: "dict[str, Any]", defaults: dict[str, _Default]) -> None:
        self._annotations = annotations
        self._defaults = defaults

    def __get__(self, one: object, cls: "Any") -> object:
        import dataclasses  # imported seldom, at the first use of the fields

        spec: list[Any] = []
        for name, kind in self._annotations.items():
            given = self._defaults.get(name)
            if given is None:
                spec.append((name, kind))
            elif given.default_factory is None:
                spec.append((name, kind, dataclasses.field(default=given.default)))
            else:
                spec.append((name, kind, dataclasses.field(default_factory=given.default_factory)))
        made: Any = dataclasses.make_dataclass(cls.__name__, spec)
        cls.__dataclass_fields__ = made.__dataclass_fields__  # in place of this
        return cls.__dataclass_fields__


def _made(cls: type, *, frozen: bool, eq: bool) -> type:
    annotations = cls.__annotations__
    names = tuple(annotations)
    defaults = {}
    body = {key: value for key, value in cls.__dict__.items() if key not in ("__dict__", "__weakref__")}
    for name in names:
        if name in body:
            given = body.pop(name)
            defaults[name] = given if isinstance(given, _Default) else _Default(given)
    body |= {"__slots__": names, "__match_args__": names, "__dataclass_fields__": _Fields(annotations, defaults)}
    body.setdefault("__repr__", _repr)
    if eq:
        _add_comparison(body, names, frozen=frozen)
    if frozen:
        body |= {"__setattr__": _refuse, "__delattr__": _refuse, "__reduce__": _reduce}
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__

    def __init__(self: object, *given: object, **named: object) -> None:  # noqa: N807  # the first object's
        made.__init__ = _init(made, names, defaults, frozen=frozen)  # type: ignore[misc]  # in place of this
        made.__init__(self, *given, **named)  # type: ignore[misc]  # an object's

    made.__init__ = __init__  # type: ignore[misc]  # it has none before
    return made


def _init(cls: type, names: tuple[str, ...], defaults: dict[str, _Default], *, frozen: bool) -> "Callable[..., None]":
    """Return the compiled `__init__` of a class, with the names as parameters."""
    known: dict[str, object] = {"_absent": _Default}
    parameters, lines = ["self"], []
    for name in names:
        given = defaults.get(name)
        value = parameter = name
        if given is not None and given.default_factory is not None:
            known[f"_new_{name}"] = given.default_factory
            parameter = f"{name}=_absent"
            value = f"_new_{name}() if {name} is _absent else {name}"
        elif given is not None:
            known[f"_default_{name}"] = given.default
            parameter = f"{name}=_default_{name}"
        parameters.append(parameter)
        if frozen:  # the slot itself, past `__setattr__`
            known[f"_set_{name}"] = cls.__dict__[name].__set__
            lines.append(f" _set_{name}(self, {value})")
        else:
            lines.append(f" self.{name} = {value}")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"]), known)  # noqa: S102  # our names
    init: Callable[..., None] = known["__init__"]  # type: ignore[assignment]  # just compiled
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _add_comparison(body: "dict[str, Any]", names: tuple[str, ...], *, frozen: bool) -> None:
    """Add `__eq__` and `__hash__`: two objects are equal if class and all values are equal."""
    all_values: Callable[[object], object] = attrgetter(*names) if names else lambda _: ()

    def equal(self: object, other: object) -> object:
        if other.__class__ is self.__class__:
            return all_values(self) == all_values(other)
        return NotImplemented

    def hashed(self: object) -> int:
        return hash(all_values(self))

    if "__eq__" not in body:
        body["__eq__"] = equal
        body.setdefault("__hash__", hashed if frozen else None)
    elif frozen and body.get("__hash__") is None:
        body["__hash__"] = hashed


@recursive_repr()
def _repr(self: "Any") -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({values})"


def _refuse(self: object, name: str, *_: object) -> "NoReturn":
    from dataclasses import FrozenInstanceError  # an error in our code, or in a plugin's

    raise FrozenInstanceError(f"cannot assign to field {name!r} of {type(self).__name__}")


def _reduce(self: "Any") -> "tuple[type, tuple[object, ...]]":
    """Return class and values for copy and pickle, which would assign otherwise."""
    return type(self), tuple(getattr(self, name) for name in self.__match_args__)


def names(cls: type) -> tuple[str, ...]:
    """Return the names of a value class."""
    return cls.__match_args__  # type: ignore[attr-defined, no-any-return]  # each of them


def values(one: object) -> dict[str, object]:
    """Return the object's values by name."""
    return {name: getattr(one, name) for name in names(type(one))}
