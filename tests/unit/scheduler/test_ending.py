"""A job that ends holds what it has until its epilog is over: others start where the same is free."""

from __future__ import annotations

from typing import Any

import pytest

from unit.scheduler.bench import Bench

GPUS = "1s:8c:1t,mem=8G,gpu=4"
PAIR = "2*1s:8c:1t,mem=8G,gpu=1"


@pytest.mark.parametrize("plugin", ["select/cons_tres", "select/linear"])
@pytest.mark.parametrize(
    ("nodes", "wanted"), [(GPUS, {"gres": {"gpu": 1}}), (PAIR, {"gres": {"gpu": 1}}), (PAIR, {"pn_min_memory": 6000})]
)
def test_nobody_waits_for_who_ends_where_the_same_is_free(plugin: str, nodes: str, wanted: dict[str, Any]) -> None:
    bench = Bench(nodes=nodes, plugin=plugin, over_subscribe="force", share_count=3)
    ends, stays = bench.run(1, **wanted), bench.submit(1)
    bench.scheduler.ending(ends, bench.at)
    other = bench.submit(1, **wanted)
    assert bench.look() == [stays, other]
    assert not bench.selection.faults


def test_who_starts_at_once_does_not_wait_for_who_ends_either() -> None:
    bench = Bench(nodes=GPUS)
    bench.scheduler.ending(bench.run(1, gres={"gpu": 1}), bench.at)
    assert bench.scheduler.try_start(bench.job(1, gres={"gpu": 1}), bench.at) == ""


def test_cores_that_are_full_because_of_who_ends_are_not_the_only_ones() -> None:
    bench = Bench(nodes="4c", over_subscribe="force", share_count=2)
    ends, *_ = [bench.run(2) for _ in range(3)]  # two on the first two cores
    bench.scheduler.ending(ends, bench.at)
    other, late = bench.submit(2), bench.submit(2)
    assert bench.look() == [other]
    bench.end(ends)
    assert bench.look() == [late]
    assert not bench.selection.faults


def test_nobody_waits_for_the_device_of_who_ends_while_it_is_suspended() -> None:
    bench = Bench(nodes="2c,gpu=2")
    ends = bench.run(1, gres={"gpu": 1})
    bench.scheduler.suspend(ends, bench.at)
    bench.scheduler.ending(ends, bench.at)
    other = bench.submit(1, gres={"gpu": 1})
    assert bench.look() == [other]
