"""Values are what `dataclasses` would have made of them, and their making costs little."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
import sysconfig
from collections.abc import Mapping

import pytest

from nodectl.model import value_class
from nodectl.model.value_class import dataclass, field, names, replace, values


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value."""

    first: int
    second: str = "two"
    third: Mapping[str, int] = field(default_factory=dict)

    def method(self) -> int:
        """As any class has."""
        return self.first + 1


@dataclass(slots=True)
class Loose:
    """What changes."""

    first: int
    many: list[int] = field(default_factory=list)
    word: str = field(default="x")


@dataclass(slots=True, eq=False)
class Unequal:
    """Equal to itself alone."""

    first: int


@dataclass(frozen=True, slots=True)
class Empty:
    """No name at all."""


@dataclass(frozen=True, slots=True)
class Compared:  # noqa: PLW1641  # the decorator makes its hash
    """Equal by its own rule."""

    first: int
    ignored: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compared) and self.first == other.first


def test_names_have_their_values_defaults_and_factories() -> None:
    assert (Fixed(1).first, Fixed(1).second, Fixed(1).third) == (1, "two", {})
    assert Fixed(1, third={"a": 1}, second="b").third == {"a": 1}
    assert Fixed(1).third is not Fixed(1).third
    assert Fixed(1).method() == 2
    assert Loose(1).word == "x"
    assert names(Loose) == Loose.__match_args__ == ("first", "many", "word")
    assert values(Loose(1)) == {"first": 1, "many": [], "word": "x"}
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        Fixed()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'fourth'"):
        Fixed(1, fourth=4)  # type: ignore[call-arg]


def test_a_frozen_value_stays_as_it_is_and_nothing_gets_further_names() -> None:
    value, loose = Fixed(1), Loose(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.first = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del value.second
    loose.first = 2
    assert loose.first == 2
    with pytest.raises(AttributeError):
        loose.other = 1  # type: ignore[attr-defined]


def test_equality_hash_and_text_are_those_of_dataclasses() -> None:
    assert Fixed(1) == Fixed(1) != Fixed(2)
    assert Fixed(1) != Loose(1)  # type: ignore[comparison-overlap]
    assert Loose(1) == Loose(1)
    assert Unequal(1) != Unequal(1)
    assert len({Unequal(1), Unequal(1)}) == 2
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())
    one = Fixed(1, third=())  # type: ignore[arg-type]
    assert hash(one) == hash(replace(one))
    assert Compared(1, 2) == Compared(1, 3)
    assert isinstance(hash(Compared(1, 2)), int)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Loose(1))
    assert repr(Fixed(1)) == "Fixed(first=1, second='two', third={})"
    loose = Loose(1)
    loose.many.append(loose)  # type: ignore[arg-type]
    assert repr(loose) == "Loose(first=1, many=[...], word='x')"


def test_values_can_be_copied_and_sent() -> None:
    for value in (Fixed(1, "b", {"c": 3}), Loose(1, [2]), Empty()):
        assert copy.copy(value) == copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301  # our own
    assert replace(Fixed(1, "b"), first=2) == Fixed(2, "b")
    with pytest.raises(TypeError, match="fourth"):
        replace(Fixed(1), fourth=4)  # type: ignore[call-arg]


def test_a_plugin_that_uses_dataclasses_functions_on_them_finds_what_it_expects() -> None:
    assert dataclasses.is_dataclass(Fixed)
    assert [one.name for one in dataclasses.fields(Loose)] == ["first", "many", "word"]
    assert dataclasses.asdict(Loose(1, [2])) == {"first": 1, "many": [2], "word": "x"}
    assert dataclasses.replace(Fixed(1), second="b") == Fixed(1, "b")


def test_checkers_and_readers_see_dataclasses_and_no_process_pays_for_them() -> None:
    code = f"import sys; sys.path[:0] = [{sysconfig.get_paths()['purelib']!r}]; import {value_class.__name__}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert {"dataclasses", "inspect", "re"}.isdisjoint(done.stdout.split())
