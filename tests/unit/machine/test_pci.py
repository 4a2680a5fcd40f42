from __future__ import annotations

from pathlib import Path

from nodectl.placement.machine import pci


def device(root: Path, address: str, pci_class: str, node: str = "", cpus: str = "", name: str = "") -> None:
    place = root / "sys/bus/pci/devices" / address
    place.mkdir(parents=True)
    files = {"class": pci_class, "vendor": "0x10de", "device": "0x2330", "numa_node": node, "local_cpulist": cpus}
    for file, text in files.items():
        (place / file).write_text(text + "\n", encoding="ascii")
    if name:
        (place / name).mkdir(parents=True)


def test_devices_are_told_with_their_node_near_cpus_and_names(tmp_path: Path) -> None:
    device(tmp_path, "0000:3b:00.0", "0x030200", "1", "4-7", "drm/card0")
    device(tmp_path, "0000:17:00.0", "0x020700", "0", "0-3", "infiniband/mlx5_0")
    assert pci.read(str(tmp_path)) == (
        pci.PciDevice("0000:17:00.0", "network", "10de", "2330", ("mlx5_0",), 0, 0x0F),
        pci.PciDevice("0000:3b:00.0", "display", "10de", "2330", ("card0",), 1, 0xF0),
    )


def test_names_of_virtual_devices_are_found_a_level_deeper(tmp_path: Path) -> None:
    device(tmp_path, "0000:00:03.0", "0x020000", "-1", "0-1", "virtio1/net/eth0")
    assert pci.read(str(tmp_path))[0].names == ("eth0",)


def test_bridges_and_the_like_are_left_out(tmp_path: Path) -> None:
    for number, pci_class in enumerate(("0x060400", "0x0c0330", "0x0b3000", "nonsense", "")):
        device(tmp_path, f"0000:00:0{number}.0", pci_class)
    device(tmp_path, "0000:00:09.0", "0x120000")
    assert [found.kind for found in pci.read(str(tmp_path))] == ["accelerator"]


def test_device_whose_place_is_not_told_is_nowhere(tmp_path: Path) -> None:
    device(tmp_path, "0000:00:01.0", "0x010802", "-1")
    (found,) = pci.read(str(tmp_path))
    assert (found.node, found.mask, found.names) == (-1, 0, ())


def test_machine_without_pci_has_no_devices(tmp_path: Path) -> None:
    assert pci.read(str(tmp_path)) == ()


def test_devices_of_the_machine_under_the_test_can_be_read() -> None:
    assert all(found.address.count(":") >= 1 and found.kind for found in pci.read())
