"""The memory policy of a task: what is set is what the kernel has."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from nodectl.kernel import _kernel, operations

DEFAULT, PREFERRED, BIND = 0, 1, 2


def set_policy(mode: int, nodes: list[int]) -> None:
    _kernel.perform([operations.memory_policy(mode, nodes, "N")], None)


@pytest.mark.parametrize("mode", [PREFERRED, BIND])
def test_policy_is_set(mode: int) -> None:
    try:
        set_policy(mode, [0])
        shown = Path("/proc/self/numa_maps").read_text(encoding="ascii")
        assert (" bind:0" if mode == BIND else " prefer:0") in shown
    finally:
        set_policy(DEFAULT, [])
    assert " default " in Path("/proc/self/numa_maps").read_text(encoding="ascii")


def test_node_that_there_is_not_is_refused() -> None:
    with pytest.raises(OSError, match="bind memory to NUMA nodes N: Invalid argument") as caught:
        set_policy(BIND, [1023])
    assert caught.value.errno == errno.EINVAL
