"""Tables of nodes: this machine, and those that a text describes."""

from __future__ import annotations

import pytest

from nodectl.binding.devices import Device
from nodectl.binding.request import Settings
from nodectl.machine.spec import from_spec
from nodectl.selection.cores import kept_cores
from nodectl.selection.nodes import described, this_node


def test_nodes_are_described_in_words() -> None:
    table = described("n[01-03]:2x8x2:64G:gpu=4:features=a+b big:4s:16c:2t:i:1T:weight=7:gpu/h100=1:nic=2")
    assert [node.name for node in table] == ["n01", "n02", "n03", "big"]
    first, big = table[0], table.by_name["big"]
    assert (first.cores, first.cpus, first.real_memory, first.features) == (16, 32, 65_536, ("a", "b"))
    assert [device.key for device in first.devices] == ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]
    assert [device.cores for device in first.devices][1:3] == [tuple(range(8)), tuple(range(8, 16))]
    assert (big.cpus, big.real_memory, big.weight) == (128, 1 << 20, 7)
    assert [device.key for device in big.devices] == ["gpu:0", "nic:0", "nic:1"]
    assert big.devices[0].type == "h100"
    assert table.core_count == 3 * 16 + 64
    assert first.config is table[1].config


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("", "none is described"),
        ("n1", "says no machine, as in n1:2x8x2"),
        ("n1:2x", "'2x' is no COUNT"),
        ("n1:2x4:lots", "'lots' is no COUNT"),
        ("n[1-4:2c", "brackets do not match"),
        ("n[5-1]:2c", "5-1 runs backwards or is too long"),
        ("n[1-999999]:2c", "too long"),
        ("n[1-150000]:2c m[1-150000]:2c", "more than 200000 nodes"),
        ("n[1-2]:2c n2:2c", "n2 is there twice"),
        ("n1:9x999x9", "more than 8192 CPUs"),
        ("n1:2c:gpu=99999", "'gpu=99999' is no COUNT"),
    ],
)
def test_what_is_wrong_with_a_description_is_said(spec: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"^nodes") as wrong:
        described(spec)
    assert why in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_this_machine_keeps_cores_for_the_system() -> None:
    machine = from_spec("2s:2c:2t")
    gpu = Device("gpu", 0)
    table = this_node("host", machine, Settings(core_spec_count=1), [gpu], 4096, 96)
    (node,) = table
    assert (node.name, node.cpus, node.devices) == ("host", 6, (gpu,))
    assert (node.real_memory, node.mem_spec_limit) == (4096, 96)
    assert kept_cores(table).to01() == "0001"
    assert table.cpu_mask(node, table.core_bitmap({0: 0xFF})) == 0x3F


def test_a_hundred_thousand_nodes_are_a_table() -> None:
    table = described("n[1-100000]:1x2x1:1G")
    assert len(table) == 100_000
    assert table[99_999].core_offset == 199_998
    assert not kept_cores(table).any()
