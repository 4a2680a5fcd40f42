"""The module of system calls: what it says of a call that fails."""

from __future__ import annotations

import os

import pytest

from nodectl.kernel import _kernel


def test_a_system_call_that_fails_is_told_with_the_reason_and_its_name() -> None:
    """Users read it: a step that could not be started said "clone3" and no more."""
    reader, writer = os.pipe()  # no cgroup
    with pytest.raises(OSError, match=r"\(clone3\)") as caught:
        _kernel.fork_into(reader)
    os.close(reader)
    os.close(writer)
    assert caught.value.strerror == f"{os.strerror(caught.value.errno or 0)} (clone3)"
