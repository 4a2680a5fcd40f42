"""The system calls of memory policy: what is set is what the kernel tells."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from nodectl.kernel import _kernel

DEFAULT, PREFERRED, BIND = 0, 1, 2


@pytest.mark.parametrize("mode", [PREFERRED, BIND])
def test_policy_is_set_and_read_back(mode: int) -> None:
    try:
        _kernel.set_mempolicy(mode, [0])
        assert _kernel.get_mempolicy() == (mode, [0])
        shown = Path("/proc/self/numa_maps").read_text(encoding="ascii")
        assert (" bind:0" if mode == BIND else " prefer:0") in shown
    finally:
        _kernel.set_mempolicy(DEFAULT, [])
    assert _kernel.get_mempolicy() == (DEFAULT, [])


def test_node_that_there_is_not_is_refused() -> None:
    with pytest.raises(OSError, match="set_mempolicy") as caught:
        _kernel.set_mempolicy(BIND, [1023])
    assert caught.value.errno == errno.EINVAL
    for number in (-1, 1024):
        with pytest.raises(ValueError, match="no NUMA node"):
            _kernel.set_mempolicy(BIND, [number])
