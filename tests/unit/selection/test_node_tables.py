"""Tables of nodes: where each node's cores are in the bitmaps, and what of them jobs may have."""

from __future__ import annotations

from nodectl.lab.simulation.described import nodes_of
from nodectl.placement.binding.job import specialised
from nodectl.placement.binding.request import Settings
from nodectl.placement.machine.spec import from_spec
from nodectl.selection.cores import kept_cores
from nodectl.selection.records import NodeRecord, NodeTable


def test_a_machine_keeps_cores_for_the_system() -> None:
    machine = from_spec("2s:2c:2t")
    table = NodeTable([NodeRecord("host", machine, reserved_cpus=specialised(machine, Settings(core_spec_count=1)))])
    assert table[0].cpus == 6
    assert kept_cores(table).to01() == "0001"
    assert table.cpu_mask(table[0], table.core_bitmap({0: 0xFF})) == 0x3F


def test_a_hundred_thousand_nodes_are_a_table() -> None:
    table = nodes_of("100000*1s:2c:2t,mem=1G")
    assert len(table) == 100_000
    assert table[99_999].core_offset == 199_998
    assert table[0].config is table[99_999].config
    assert not kept_cores(table).any()
