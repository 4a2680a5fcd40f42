"""On how many nodes of a job `nodectl bulk` is, which has lost some."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.bulk.command import Bulk
from nodectl.bulk.options import BulkParser
from nodectl.cli import run
from nodectl.client.command import Failed

_JOB = {"SLURM_NNODES": "3", "SLURM_JOB_CPUS_PER_NODE": "2(x3)", "SLURM_NTASKS": "6"}


class Session:
    """Of a cluster which tells each time how many nodes it has lost."""

    def __init__(self, *lost: int) -> None:
        self.lost = [*lost]

    def call(self, method: str) -> Any:
        assert method == "Hello"
        return {"cluster": cluster(self.lost.pop(0))}


def cluster(lost: int) -> dict[str, int]:
    return {"job": 7, "nodes": 3, **({"lost": lost} if lost else {})}


def asked(monkeypatch: pytest.MonkeyPatch, words: list[str], lost: list[int], refusals: int = 0) -> list[Any]:
    """What is asked for, nodes and tasks, where the first launches are refused. `lost`: what is known each time."""
    found: list[Any] = []

    def start(_session: object, _local: object, parsed: Any, **_: object) -> str:
        found.append((parsed.values.get("nodes"), "nodes" in parsed.layout, parsed.values["ntasks"]))
        if len(found) <= refusals:
            raise Failed("Requested node configuration is not available")
        return "step"

    for name, value in _JOB.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(run, "start", start)
    parsed = BulkParser().parse([*words, "true", ":::", "1"])
    parsed.of_cluster = True
    first, *others = lost
    bulk = Bulk(Session(*others), None, parsed, cluster(first))  # type: ignore[arg-type]
    bulk._start(bulk._nodes_left())
    return found


@pytest.mark.parametrize(
    ("words", "lost", "expected"),
    [
        ([], 0, (None, False, 6)),
        ([], 1, ("2", True, 4)),
        ([], 2, ("1", True, 2)),
        (["-n3"], 1, ("2", True, 3)),
        (["-c2"], 1, ("2", True, 2)),
        (["--nodes=3"], 1, ("3", True, 6)),
        (["-w", "n1"], 1, (None, False, 6)),
    ],
)
def test_it_is_on_those_that_are_left_unless_it_says_where(
    monkeypatch: pytest.MonkeyPatch, words: list[str], lost: int, expected: object
) -> None:
    assert asked(monkeypatch, words, [lost]) == [expected]


def test_one_that_is_lost_while_it_waits_for_its_turn_makes_it_ask_for_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, [], [0, 1], refusals=1) == [(None, False, 6), ("2", True, 4)]


def test_what_is_refused_for_another_reason_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failed, match="not available"):
        asked(monkeypatch, [], [1, 1], refusals=1)
