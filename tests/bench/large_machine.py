"""What a machine of 1,024 CPUs costs: to read it, and to lay out as many tasks; beside one of a quarter of its size, so
that what grows faster than the machine is seen.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.rows import Row, in_turns
from nodectl.placement.binding.request import LayoutRequest, Settings
from nodectl.placement.binding.step import place
from nodectl.placement.machine.topology import Topology, read
from nodectl.selection.planning import allocate
from unit.machines import Machine, build

LARGE = Machine("4s:128c:2t", "last", nodes_per_socket=4, l3_per_socket=16)
QUARTER = Machine("4s:32c:2t", "last", nodes_per_socket=4, l3_per_socket=4)
TIMES = 4
MILLISECONDS = 30.0


def large_machine(rounds: int) -> list[Row]:
    """The rows of the table."""
    with tempfile.TemporaryDirectory() as directory:
        large, quarter = (build(Path(directory, machine.shape), machine) for machine in (LARGE, QUARTER))
        taken = in_turns(
            rounds,
            read_large=lambda: read(str(large)),
            read_quarter=lambda: read(str(quarter)),
            lay_out_large=_layout(read(str(large))),
            lay_out_quarter=_layout(read(str(quarter))),
        )
    rows = []
    for name, words in (("read", "read 1,024 CPUs' topology"), ("lay_out", "lay out 1,024 tasks on as many CPUs")):
        whole, part = taken[f"{name}_large"], taken[f"{name}_quarter"]
        rows.append(Row(words, whole * 1000, 0, "ms", MILLISECONDS))
        rows.append(Row(f"{words} / {TIMES} times a quarter", whole, part * TIMES, "s", 1.5))
    return rows


def _layout(machine: Topology) -> Callable[[], object]:
    """A layout of a task for each CPU, from the choice of cores to the masks."""
    request = LayoutRequest(ntasks=len(machine.machine_of))
    settings = Settings()

    def do() -> object:
        job = replace(allocate([machine], request, (), settings), own=True)
        return place([machine], job, request, settings)

    return do
