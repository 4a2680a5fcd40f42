"""A job's part of a GPU's memory as a limit of the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.launch.cgroup import device_memory
from nodectl.placement.binding.devices import Device

REGIONS = ("drm/0000:03:00.0/vram0 17163091968\n", "drm/0000:03:00.0/gtt 1\n", "drm/0000:83:00.0/vram0 17163091968\n")


def test_a_part_of_a_devices_memory_limits_its_region_and_no_other(tmp_path: Path) -> None:
    number = os.stat("/dev/null").st_rdev
    card = tmp_path / "sys/devices/pci0000:00/0000:03:00.0"
    card.mkdir(parents=True)
    link = tmp_path / f"sys/dev/char/{os.major(number)}:{os.minor(number)}"
    link.mkdir(parents=True)
    (link / "device").symlink_to(card)
    devices = [Device("gpu", 0, file="/dev/null"), Device("gpu", 1, file="/dev/no-such-file"), Device("gpu", 2)]

    def limits(*held: str) -> str:
        return device_memory.limits(devices, held, REGIONS, str(tmp_path))

    assert limits("gpu:0/mem:16M") == limits("gpu:0/shard:2/mem:16M") == "drm/0000:03:00.0/vram0 16777216"
    for unlimited in ("gpu:0", "gpu:0/shard:2", "gpu:1/mem:16M", "gpu:2/mem:16M", "gpu:7/mem:16M"):
        assert limits(unlimited) == ""


def test_nvidias_driver_tells_which_region_is_a_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for address, minor in (("0000:3B:00.0", 1), ("0000:af:00.0", 0)):
        place = tmp_path / "proc/driver/nvidia/gpus" / address
        place.mkdir(parents=True)
        (place / "information").write_text(f"Model: x\nDevice Minor: \t {minor}\n")
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: real("/dev/null" if path == "/dev/nvidia1" else path, **how))
    regions = [f"nvidia/{address}/vidmem 1\n" for address in ("0000:3b:00.0", "0000:af:00.0")]
    held = ["gpu:1/mem:1M"]
    made = device_memory.limits([Device("gpu", 1, file="/dev/nvidia1")], held, regions, str(tmp_path))
    assert made == "nvidia/0000:3b:00.0/vidmem 1048576"
