"""A SPANK plugin may ask which hooks there are, and speak at three levels, in Python and in C."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from nodectl.plugin_host.kinds import KINDS
from rootful.native import native
from rootful.node import NOBODY, Node, running

pytestmark = [pytest.mark.rootful, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

HOOKS = sorted(KINDS["spank"].functions)
PYTHON = f"""
from nodectl.spank import slurm_error, slurm_info, slurm_verbose, spank_symbol_supported
def slurm_spank_init(sp, ac, argv):
    for name in {[*HOOKS, "slurm_spank_of_the_future"]!r}:
        slurm_info(f"{{name}}={{spank_symbol_supported(name)}}")
    slurm_error("an error"); slurm_verbose("said to who listens")
    return 0
"""
C = "".join(
    f'slurm_info("{name}=%d", spank_symbol_supported("{name}"));' for name in [*HOOKS, "slurm_spank_of_the_future"]
)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as started:
        yield started


@pytest.mark.parametrize("language", ["python", "c"])
def test_plugin_asks_which_hooks_there_are_and_speaks(node: Node, language: str) -> None:
    if language == "c":
        native(node, "asks", init=C + 'slurm_error("an error"); slurm_verbose("said to who listens");')
        node.plugstack("required asks.so\n")
    else:
        node.plugin("asks", PYTHON)
        node.plugstack("required asks.py\n")
    done = node.run("-v", "-v", "true", user=NOBODY)
    assert done.returncode == 0, done.stderr
    lines = [line.rpartition(": ")[2] for line in done.stderr.splitlines()]
    for name in HOOKS:
        assert f"{name}=1" in lines
    assert "slurm_spank_of_the_future=0" in lines
    assert "an error" in lines
    assert "said to who listens" in lines
