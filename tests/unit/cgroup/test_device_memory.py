"""A job's part of a GPU's memory as a limit of the kernel's."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl import messages
from nodectl.cli.checks import machine
from nodectl.launch.cgroup import device_memory
from nodectl.launch.cgroup.constraints import CannotConstrain, Constraints, is_memory_shared
from nodectl.launch.cgroup.delegation import Base
from nodectl.launch.cgroup.tree import find_mount
from nodectl.model.wire.dispatch import Refused
from nodectl.placement.machine import detected_devices
from nodectl.placement.machine.declared_devices import Device
from nodectl.service.config_file.reader import build
from nodectl.service.daemon import main
from nodectl.service.daemon.admission.slices import Slices
from nodectl.service.daemon.controller import starts
from nodectl.service.daemon.controller.starts import CannotBegin, Starts
from nodectl.service.daemon.methods.start import StepStart

REGIONS = ("drm/0000:03:00.0/vram0 17163091968\n", "drm/0000:03:00.0/gtt 1\n", "drm/0000:83:00.0/vram0 17163091968\n")


def test_a_part_of_a_devices_memory_limits_its_region_and_no_other(tmp_path: Path) -> None:
    number = os.stat("/dev/null").st_rdev
    card = tmp_path / "sys/devices/pci0000:00/0000:03:00.0"
    card.mkdir(parents=True)
    link = tmp_path / f"sys/dev/char/{os.major(number)}:{os.minor(number)}"
    link.mkdir(parents=True)
    (link / "device").symlink_to(card)
    devices = [Device("gpu", 0, file="/dev/null"), Device("gpu", 1, file="/dev/no-such-file"), Device("gpu", 2)]

    def limits(*held: str) -> dict[str, list[str]]:
        return device_memory.limits(devices, held, REGIONS, str(tmp_path))

    line = {"gpu:0": ["drm/0000:03:00.0/vram0 16777216"]}
    assert limits("gpu:0/mem:16M") == limits("gpu:0/shard:2/mem:16M") == line
    for without_memory in ("gpu:0", "gpu:0/shard:2"):
        assert limits(without_memory) == {}
    for number in (1, 2, 7):
        assert limits(f"gpu:{number}/mem:16M") == {f"gpu:{number}": []}, "nothing limits it"


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
    assert made == {"gpu:1": ["nvidia/0000:3b:00.0/vidmem 1048576"]}


@pytest.mark.parametrize("wish", ["auto", "yes"])
def test_a_part_of_memory_that_nothing_limits_is_refused_with_yes_and_told_with_auto(tmp_path: Path, wish: str) -> None:
    config = build({"constrain_gpu_memory": wish})
    constraints = Constraints(config, Base(str(tmp_path), "", ("dmem",), {}))
    devices = [Device("gpu", 0, file="/dev/no-such-file", memory=1024)]
    step: Any = SimpleNamespace(binder=SimpleNamespace(node_devices=devices), devices=["gpu:0/mem:16M"])
    for regions in (None, "", "".join(REGIONS)):
        if regions is not None:
            (tmp_path / "dmem.capacity").write_text(regions)
        if wish == "yes":
            with pytest.raises(CannotConstrain, match="constrain_gpu_memory = yes: gpu:0: its driver has no region"):
                constraints.check_gpu_memory(step)
        else:
            assert constraints.check_gpu_memory(step).startswith(
                "constrain_gpu_memory: not enforced: gpu:0: its driver"
            )
    step.devices = ["gpu:0"]
    assert constraints.check_gpu_memory(step) == "", "a whole GPU has no limit"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the log is told of constraints that are not enforced."""
    lines: list[str] = []
    monkeypatch.setattr(messages, "tell", lambda _kind, line, **_about: lines.append(line))
    return lines


def test_a_step_is_refused_or_the_log_is_told_once(told: list[str]) -> None:
    start: Any = StepStart.__new__(StepStart)
    start._told_of_gpus = False
    start._constraints = SimpleNamespace(check_gpu_memory=lambda _step: "not enforced")
    step: Any = "7.0"
    for _ in range(3):
        start._check_gpu_memory(step)
    assert told == ["not enforced"]

    def refuse(_step: object) -> str:
        raise CannotConstrain("constrain_gpu_memory = yes: gpu:0")

    start._constraints = SimpleNamespace(check_gpu_memory=refuse)
    with pytest.raises(Refused, match=r"step 7\.0: constrain_gpu_memory = yes: gpu:0"):
        start._check_gpu_memory(step)


def test_a_batch_job_whose_part_nothing_limits_does_not_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def made(*_: object) -> object:
        return SimpleNamespace(argv=["script"], cgroup="")

    def refuse(_step: object) -> str:
        raise CannotConstrain("constrain_gpu_memory = yes: gpu:0")

    start: Any = StepStart.__new__(StepStart)
    start._constraints = SimpleNamespace(check_gpu_memory=refuse)
    begin: Any = Starts.__new__(Starts)
    begin._store = SimpleNamespace(batch=lambda _: b"")
    begin._slices, begin._maker, begin._base = Slices(), SimpleNamespace(binder=None), ""
    begin._registry, begin._spool = SimpleNamespace(first=lambda _: None), SimpleNamespace(remove=lambda _: None)
    begin._cgroup_removals = SimpleNamespace(job_gone=made)
    begin.is_over = lambda _: False
    begin._begin = start._check_gpu_memory
    monkeypatch.setattr(Starts, "_made", made)
    monkeypatch.setattr(Starts, "_write_script", lambda *_: "/script")
    monkeypatch.setattr(starts, "unpacking", lambda _: iter(()))
    for name in ("text_of", "share_of", "make_first"):
        monkeypatch.setattr(starts, name, lambda *_: None)
    selection: Any = SimpleNamespace(job_ready=lambda _: True, nodes=())
    with pytest.raises(CannotBegin, match="constrain_gpu_memory = yes: gpu:0") as failed:
        asyncio.run(begin.begin(selection, SimpleNamespace(job_id=7, job_resrcs=())))
    assert failed.value.for_good


@pytest.mark.parametrize(("memory", "lines"), [(1024, ["counted"]), (0, [])])
def test_a_service_with_gpus_that_share_memory_tells_that_it_is_counted(
    tmp_path: Path, told: list[str], memory: int, lines: list[str]
) -> None:
    node: Any = SimpleNamespace(devices=[Device("gpu", 0, memory=memory)])
    constraints: Any = SimpleNamespace(gpu_memory_complaint="counted")
    main._look_at_machine(build({"runtime_dir": str(tmp_path)}), node, constraints)
    assert told == lines


def test_memory_that_is_found_and_not_declared_counts_as_shared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Constraints(build({}), Base("", "", (), {})).gpu_memory_complaint.startswith(
        "constrain_gpu_memory: not enforced: dmem:"
    )
    found = (Device("gpu", 0, memory=1024),)
    monkeypatch.setattr(detected_devices, "_found", lambda _root: found)
    for sharing, shared in (("all", True), ("no", False)):
        config = build({"gres": ["AutoDetect=sysfs"], "gpu_sharing": sharing})
        assert is_memory_shared(detected_devices.of(config.gres, sharing=config.gpu_sharing)) == shared
        found_by_doctor = [one.detail for one in machine.cgroups(config) if one.what == "GPU memory"]
        controllers = Path(find_mount() or "/", "cgroup.controllers")
        has_dmem = controllers.exists() and "dmem" in controllers.read_text().split()
        assert bool(found_by_doctor) == (shared and not has_dmem and bool(find_mount()))
