"""What a start says of the nodes that it misses."""

from __future__ import annotations

import json
import os
import time

import pytest

from nodectl.cluster.engine.engine import Nodes
from nodectl.cluster.engine.hosts import Hosts
from nodectl.cluster.start.starter import _Waiting

NAMES = ("n1", "n2", "n3", "n4")


@pytest.mark.parametrize(
    ("failed", "told"),
    [
        (["n3"], {"n3": "no way to n3 -> walk"}),
        (["n3", "n1"], {"n3": "no way to n3; 1 other failed, too -> walk"}),
        (["here", "n3", "n4", "n1"], {"n3": "no way to n3; 2 others failed, too -> walk"}),
    ],
)
def test_one_of_those_that_fail_at_the_same_moment_is_named(failed: list[str], told: dict[str, str]) -> None:
    waiting = _Waiting(Nodes(7, NAMES, ("here",)))
    reader, writer = os.pipe()
    said = [{"failed": name, "why": f"no way to {name} -> walk"} for name in failed]
    os.write(writer, "".join(f"{json.dumps(one)}\n" for one in said).encode())
    waiting.read(reader, time.monotonic() + 10)
    os.close(reader)
    os.close(writer)
    assert waiting.reasons(Hosts(",".join(NAMES), "ssh", {}), 1) == told
