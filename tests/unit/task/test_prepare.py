"""What of a task that is a fork is composed before the fork."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import pytest

from nodectl.kernel import identity, operations
from nodectl.launch.task import main


def test_stages_are_composed_up_to_the_first_call_of_a_plugin_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    composed: list[str] = []

    def as_root(_: object) -> Iterator[Any]:
        composed.append("as root")
        yield operations.umask(0o22)

    def drops(_: object) -> Iterator[Any]:
        yield identity.enter  # calls no plugin

    def plugin() -> None:
        """Could change what later stages look at."""

    def calls(_: object) -> Iterator[Any]:
        yield operations.umask(0o77)
        yield plugin

    def behind(_: object) -> Iterator[Any]:
        composed.append("behind")
        yield operations.end_row()

    monkeypatch.setattr(main, "SEQUENCE", (as_root, drops, calls, behind))
    child: Any = types.SimpleNamespace(ahead=[], is_fork=False)
    main.prepare(child)
    assert child.is_fork
    assert child.ahead == [operations.umask(0o22), identity.enter, operations.umask(0o77), plugin]
    assert composed == ["as root"]
    assert list(child.rest) == [operations.end_row()]


def test_nothing_is_composed_where_the_stepd_does_not_know_how_its_children_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main, "SEQUENCE", (lambda _: iter((operations.end_row(),)),))
    monkeypatch.setattr(main, "children_are_elsewhere", lambda: None)  # a plugin has given it another root
    child: Any = types.SimpleNamespace(ahead=[], is_fork=False)
    main.prepare(child)
    assert child.ahead == []
    assert list(child.rest) == [operations.end_row()]
