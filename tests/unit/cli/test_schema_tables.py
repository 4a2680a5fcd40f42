"""The schemas of what --json prints say what the code's own tables say: states, levels, kinds, what is always there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from nodectl.cli.checks.check import FAIL, OK, WARN, Check
from nodectl.cli.plugin_list import Listed
from nodectl.cli.plugins import hooks_as_json
from nodectl.model.launch_order import HOOKS
from nodectl.model.schemas import files as schemas
from nodectl.model.states import COMPLETING, ENDED, PENDING, RUNNING, STATES, SUSPENDED
from nodectl.placement.machine.figures import Disk
from nodectl.plugin_host.kinds import KINDS


def at(path: str) -> Mapping[str, Any]:
    """A part of a schema: its name, then names of fields; [] are the items of a list."""
    name, *words = path.split()
    part: Mapping[str, Any] = schemas.load(name)
    for word in words:
        part = part["items"] if word == "[]" else part["properties"][word]
    return part


def of_hooks(field: str) -> set[str]:
    return {getattr(hook, field) for hook in HOOKS}


ENUMERATIONS = {
    "ps steps [] state": set(STATES),
    "show state": set(STATES),
    "queue jobs [] state": set(STATES),
    "explain state": set(STATES),
    "acct jobs [] state": set(STATES),
    "acct jobs [] steps [] state": set(STATES),
    "doctor checks [] level": {OK, WARN, FAIL},
    "plugins plugins [] kind": set(KINDS),
    **{f"plugins-hooks hooks [] {name}": of_hooks(name) for name in ("kind", "process", "identity", "per")},
}
ALWAYS = {
    "doctor checks []": {field.name for field in fields(Check)},
    "plugins plugins []": {field.name for field in fields(Listed)},
    "plugins-hooks": set(hooks_as_json()),
    "plugins-hooks hooks []": set(hooks_as_json()["hooks"][0]),  # type: ignore[index]
    "node figures disks []": {field.name for field in fields(Disk)},
    "topo figures disks []": {field.name for field in fields(Disk)},
}


@pytest.mark.parametrize("path", ENUMERATIONS)
def test_words_are_those_of_the_table(path: str) -> None:
    assert set(at(path)["enum"]) == ENUMERATIONS[path]


@pytest.mark.parametrize("path", ALWAYS)
def test_what_is_always_there_is_required(path: str) -> None:
    part = at(path)
    assert set(part["required"]) == set(part["properties"]) == ALWAYS[path]


def test_states_that_the_queue_gives_a_job_are_among_those_that_are_told() -> None:
    assert {PENDING, RUNNING, SUSPENDED, COMPLETING, *ENDED} <= set(STATES)
