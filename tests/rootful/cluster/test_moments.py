"""A signal at any moment of a client of a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rootful.cluster.agents import Agents, agents
from rootful.moments import Programs, Walk
from rootful.node import wait_until

pytestmark = pytest.mark.rootful


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    with agents() as started:
        yield started


@pytest.fixture(scope="module")
def programs(cluster: Agents) -> Programs:
    cluster.home.chmod(0o755)
    return Programs(cluster.home)


def steps(cluster: Agents) -> dict[str, str]:
    """Those that there were, and why they ended."""
    done = cluster.nodectl("ps", "--json", "--ended", "10000")
    return {f"{one['job']}.{one['step']}": str(one.get("reason")) for one in json.loads(done.stdout)["steps"]}


@pytest.mark.parametrize("options", ["", "-l", "-v"])
def test_a_signal_ends_the_command_or_is_all_tasks(cluster: Agents, programs: Programs, options: str) -> None:
    walk = Walk(programs, ["run", "-N3", "-n3", *options.split(), str(programs.awaits)], **cluster.how(0))
    total = walk.moments()
    before, begun = len(steps(cluster)), 0
    for outcome in walk.outcomes(total):
        assert "Traceback" not in outcome.err, outcome
        if outcome.died and not outcome.out and "task" not in outcome.err:
            continue
        begun += 1
        assert outcome.reached, outcome
    wait_until(lambda: "RUNNING" not in cluster.nodectl("ps").stdout, "no step is left")
    found = steps(cluster)
    assert len(found) - before == begun
    assert "went away" not in "".join(found.values())
