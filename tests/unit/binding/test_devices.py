"""Which GPUs a job and its tasks get, and which CPUs are near them: the rules as values."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.model.device_part import loads_of
from nodectl.placement.binding import devices
from nodectl.placement.binding.devices import Wanted, wanted
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.machine import detected_devices
from nodectl.placement.machine.declared_devices import Device, declared
from nodectl.placement.machine.spec import from_spec

MACHINE = from_spec("2s:4c:2t:2n")  # cores 0-3 are CPUs 0-7, cores 4-7 CPUs 8-15
FOUR = declared(["Name=gpu Type=a File=/dev/nvidia[0-1] Cores=0-3", "name=gpu type=b file=/dev/nvidia[2-3] cores=4-7"])[
    0
]


def numbers(given: list[list[Device]]) -> list[list[int]]:
    return [[device.number for device in task] for task in given]


def test_a_line_declares_a_device_for_each_of_its_files() -> None:
    assert [(d.number, d.type, d.file, d.cores) for d in FOUR] == [
        (0, "a", "/dev/nvidia0", (0, 1, 2, 3)),
        (1, "a", "/dev/nvidia1", (0, 1, 2, 3)),
        (2, "b", "/dev/nvidia2", (4, 5, 6, 7)),
        (3, "b", "/dev/nvidia3", (4, 5, 6, 7)),
    ]


def test_any_file_can_be_a_device_and_is_counted() -> None:
    made, detect = declared(["Name=gpu File=/dev/null,/dev/zero", "Name=gpu Count=2", "AutoDetect=sysfs"])
    assert [(d.number, d.file) for d in made] == [(0, "/dev/null"), (1, "/dev/zero"), (2, ""), (3, "")]
    assert detect


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("Name=gpu Colour=red", "'Colour=red' is none of"),
        ("File=/dev/null", "no Name="),
        ("Name=gpu File=null", "'null' is no absolute path"),
        ("Name=gpu Count=0", "Count=0 is not from 1"),
        ("Name=gpu Count=99999999999999999999", "is not from 1"),
        ("Name=gpu Cores=x", "'x' is not a number or a range"),
        ("AutoDetect=nvml", "AutoDetect=sysfs, cdi or off"),
        ("gpu", "'gpu' is none of"),
        ("Name=gpu Memory=much", "Memory=much is no amount"),
        ("Name=a/b", "'a/b' is no name of a device"),
        ("Name=shard", "give Name=shard with Count="),
        ("Name=shard Count=2 Memory=1G", "give Name=shard with Count="),
        ("Name=shard Count=2 File=/dev/null", "'/dev/null' is the file of no GPU"),
        ("Name=gpu File=/dev/null MultipleFiles=/dev/zero", "give one of both"),
        ("Name=gpu UUID=MIG-1 Count=2", "UUID= is the name of one device"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused(line: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"has|CPU list") as caught:
        declared([line])
    assert wrong in str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Wanted()),
        ({"gpus_per_task": "1"}, Wanted(4, 1)),
        ({"gpus": "a100:2"}, Wanted(2, 0, "a100")),
        ({"gpus_per_node": "3"}, Wanted(3)),
        ({"gres": "gpu"}, Wanted(1)),
        ({"gres": "gpu:a:2"}, Wanted(2, 0, "a")),
        ({"gres": "gpu:a"}, Wanted(1, 0, "a")),
        ({"gres": "gpu:1g.10gb"}, Wanted(1, 0, "1g.10gb")),
        ({"gres": "none"}, Wanted()),
        ({"gres": "craynetwork:0"}, Wanted()),  # none of what is not there
        ({"gres": "gpu:1,fpga:x:0"}, Wanted(1)),
        ({"gpus": "2", "gpu_bind": "verbose,closest"}, Wanted(2, bind="closest")),
        ({"gpus": "2", "gpu_bind": "map_gpu:0*2,1"}, Wanted(2, bind="map_gpu", entries=(0, 0, 1))),
        ({"gpus": "2", "gpu_bind": "mask_gpu:0x3,1"}, Wanted(2, bind="mask_gpu", entries=(3, 1))),
        ({"gpus": "2", "gres_flags": "enforce-binding"}, Wanted(2, enforce=True)),
        ({"gres": "shard"}, Wanted(1, shards=1)),
        ({"gres": "shard:a100:4"}, Wanted(1, type="a100", shards=4)),
        ({"gpu_mem": "20G"}, Wanted(1, memory=20_480)),
        ({"gres": "shard:2", "gpu_mem": "512"}, Wanted(1, shards=2, memory=512)),
        ({"gres": "shard:0"}, Wanted()),
    ],
)
def test_options_say_what_is_wanted(options: dict[str, str], expected: Wanted) -> None:
    assert wanted(options, ntasks=4) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"gpus": "x:y"},
        {"gpus": "99999999999999"},
        {"gpus_per_task": "-1"},
        {"gres": "fpga:1"},
        {"gpu_bind": "closest"},
        {"gpus": "1", "gpu_bind": "nearest"},
        {"gpus": "1", "gpu_bind": "closest:1"},
        {"gpus": "1", "gpu_bind": "map_gpu:"},
        {"gpus": "1", "gpu_bind": "map_gpu:0*0"},
        {"gpus": "1", "gpu_bind": "map_gpu:0*999999999999"},
        {"gpus": "1", "gpu_bind": "mask_gpu:-1"},
        {"gpus": "1", "gpu_bind": "per_task:0"},
        {"gpus": "1", "gpu_bind": "single:1,2"},
        {"gres": "gpu:1,shard:1"},
        {"gpus": "1", "gpu_mem": "1G"},
        {"gpu_mem": "0"},
        {"gpu_mem": "much"},
        {"gres": "gpu:-1"},
        {"gres": "shard:99999999999"},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(NoLayout):
        wanted(options, ntasks=1)


def test_a_job_holds_free_devices_of_its_type_near_its_cpus() -> None:
    def held(asked: Wanted, busy: tuple[Device, ...] = (), cpus: int = MACHINE.online) -> list[int]:
        loads = loads_of((device.key, 0) for device in busy)
        return [device.number for device in devices.hold(FOUR, asked, loads, cpus, MACHINE)]

    assert held(Wanted(2)) == [0, 1]
    assert held(Wanted(2, type="b")) == [2, 3]
    assert held(Wanted(2), busy=FOUR[:1]) == [1, 2]
    assert held(Wanted(1), cpus=0xFF00) == [2]
    with pytest.raises(NoLayout, match=r"4 GPUs asked for: this node has 4, of which 3 are free"):
        held(Wanted(4), busy=FOUR[:1])
    with pytest.raises(NoLayout, match=r"1 GPU of type c asked for: this node has those of type a, b"):
        held(Wanted(1, type="c"))


def test_a_step_is_placed_near_its_devices_where_there_is_room() -> None:
    def cpus(need: int, *, enforce: bool = False) -> int:
        return devices.cpus_near(FOUR[2:3], MACHINE.online, Wanted(1, enforce=enforce), need, MACHINE)

    assert cpus(8) == 0xFF00
    assert cpus(9) == MACHINE.online
    with pytest.raises(NoLayout, match="enforce-binding"):
        cpus(9, enforce=True)


@pytest.mark.parametrize(
    ("asked", "masks", "expected"),
    [
        (Wanted(4, 1), [0x3, 0x300, 0xC, 0xC00], [[0], [2], [1], [3]]),  # each its own, near ones first
        (Wanted(4, 2), [0x300, 0x3], [[2, 3], [0, 1]]),
        (Wanted(4, 1), [0] * 5, [[0], [1], [2], [3], [0]]),
        (Wanted(4, bind="closest"), [0x3, 0x300, 0x103, 0], [[0, 1], [2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]),
        (Wanted(4, bind="none"), [0x3, 0x300], [[0, 1, 2, 3]] * 2),
        (Wanted(4), [0x3, 0x300], [[0, 1, 2, 3]] * 2),
        (Wanted(4, 1, bind="none"), [0x3], [[0, 1, 2, 3]]),
        (Wanted(4, bind="map_gpu", entries=(3, 0)), [1] * 3, [[3], [0], [3]]),
        (Wanted(4, bind="mask_gpu", entries=(0x9, 0x2)), [1] * 2, [[0, 3], [1]]),
        (Wanted(4, bind="single", entries=(2,)), [1] * 5, [[0], [0], [1], [1], [2]]),
        (Wanted(4, bind="per_task", entries=(2,)), [0] * 2, [[0, 1], [2, 3]]),
    ],
)
def test_tasks_see_the_devices_their_binding_gives_them(
    asked: Wanted, masks: list[int], expected: list[list[int]]
) -> None:
    assert numbers(devices.of_tasks(FOUR, asked, masks, MACHINE)) == expected


@pytest.mark.parametrize(
    "asked", [Wanted(2, bind="map_gpu", entries=(2,)), Wanted(2, bind="mask_gpu", entries=(0x5,)), Wanted(2, 3)]
)
def test_a_device_that_the_job_does_not_hold_is_refused(asked: Wanted) -> None:
    with pytest.raises(NoLayout, match="allocat"):
        devices.of_tasks(FOUR[:2], asked, [1], MACHINE)


def test_every_makers_variable_names_the_tasks_devices() -> None:
    made = devices.task_environment(FOUR[2:])
    assert made["CUDA_VISIBLE_DEVICES"] == made["ROCR_VISIBLE_DEVICES"] == "2,3"
    assert devices.step_environment(FOUR[2:], {"gpus_per_task": "1"}) == {
        "SLURM_JOB_GPUS": "2,3",
        "SLURM_STEP_GPUS": "2,3",
        "SLURM_GPUS_ON_NODE": "2",
        "SLURM_GPUS_PER_TASK": "1",
    }


def test_sysfs_shows_gpus_that_have_a_file(tmp_path: Path) -> None:
    def card(address: str, vendor: str, cpus: str, *names: str) -> None:
        place = tmp_path / "sys/bus/pci/devices" / address
        for name in names:
            (place / "drm" / name).mkdir(parents=True)
        place.mkdir(parents=True, exist_ok=True)
        for file, text in (("class", "0x030200"), ("vendor", vendor), ("device", "0x1"), ("local_cpulist", cpus)):
            (place / file).write_text(text + "\n")

    card("0000:01:00.0", "0x10de", "0-7")
    card("0000:02:00.0", "0x1002", "8-15", "card1", "renderD129")
    card("0000:03:00.0", "0x1a03", "0-7", "card0")  # a picture for the console, nothing to compute with
    minor = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    minor.parent.mkdir(parents=True)
    minor.write_text("Model: \t x\nDevice Minor: \t 3\n")
    found = detected_devices.of(["AutoDetect=sysfs"], str(tmp_path))
    assert [(d.number, d.file, d.cpus) for d in found] == [
        (3, "/dev/nvidia3", 0xFF),
        (1, "/dev/dri/renderD129", 0xFF00),
    ]
    assert [d.also for d in found] == [(), ("/dev/dri/card1",)]
    assert detected_devices.of([], str(tmp_path)) == ()


@pytest.mark.parametrize(
    ("variables", "seen"),
    [
        ({}, [(0, "a"), (1, "a"), (2, "b"), (3, "b")]),
        ({"SLURM_JOB_ID": "7"}, []),
        ({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "2,3"}, [(2, "b"), (3, "b")]),
        # Numbered anew within the job's cgroup; which they are on the machine Slurm says besides.
        ({"ROCR_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "1,2", "SLURM_JOB_GPUS": "0,3"}, [(0, "a"), (1, "b")]),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3"}, [(0, "b"), (1, "b")]),
        ({"CUDA_VISIBLE_DEVICES": "7"}, [(7, "")]),  # nobody knows more of it
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
    ],
)
def test_programs_see_the_gpus_that_their_variables_list(
    variables: dict[str, str], seen: list[tuple[int, str]]
) -> None:
    assert [(one.number, one.type) for one in devices.visible(FOUR, variables)] == seen


def test_a_gpu_that_has_a_name_instead_of_a_number_keeps_it() -> None:
    made = devices.visible((), {"CUDA_VISIBLE_DEVICES": "MIG-5e,GPU-6f"})
    assert [one.key for one in made] == ["gpu:0", "gpu:1"]
    assert devices.task_environment(made[1:])["CUDA_VISIBLE_DEVICES"] == "GPU-6f"


def test_a_part_is_of_a_device_that_has_it_and_refused_in_words() -> None:
    shared = declared(["Name=gpu Count=2 Memory=100G", "Name=shard Count=8"])[0]

    def held(asked: Wanted, *keys: str) -> str:
        return devices.hold(shared, asked, loads_of((key, 0) for key in keys), MACHINE.online, MACHINE)[0].key

    assert held(Wanted(1, shards=1)) == "gpu:0/shard:1/mem:25600M"
    assert held(Wanted(1, memory=1024), "gpu:1/shard:3/mem:76800M") == "gpu:1/mem:1024M", "the fuller one"
    assert held(Wanted(1, shards=2), "gpu:0/shard:3") == "gpu:1/shard:2/mem:51200M"
    with pytest.raises(NoLayout, match="5 shards of a GPU asked for: a GPU has 4 shards and 102400 MiB of memory at"):
        held(Wanted(1, shards=5))
    with pytest.raises(NoLayout, match="2 shards of a GPU asked for: no GPU that jobs may share has so much free"):
        held(Wanted(1, shards=2), "gpu:0/shard:3", "gpu:1")
    with pytest.raises(NoLayout, match="1 GPU asked for: this node has 2, of which 0 are free"):
        held(Wanted(1), "gpu:0/shard:3", "gpu:1")
    with pytest.raises(NoLayout, match="this node has none that jobs share; the key gres says"):
        devices.hold(FOUR, Wanted(1, shards=1), {}, MACHINE.online, MACHINE)


def test_a_part_of_a_device_is_seen_as_the_device() -> None:
    held = devices.held_of(FOUR, ["gpu:2/shard:2/mem:512M"])
    assert [one.key for one in held] == ["gpu:2/shard:2/mem:512M"]
    assert devices.task_environment(held)["CUDA_VISIBLE_DEVICES"] == "2"
    assert devices.step_environment(held, {}) == {
        "SLURM_JOB_GPUS": "2",
        "SLURM_STEP_GPUS": "2",
        "SLURM_GPUS_ON_NODE": "1",
        "SLURM_SHARDS_ON_NODE": "2",
        "NODECTL_GPU_MEM": "512",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=512M",
    }
    assert [(one.key, one.shards, one.memory) for one in devices.within(held, entire=False)] == [("gpu:2", 2, 512)]
    assert not devices.within(held, entire=True)


def test_instances_of_mig_are_devices_of_their_own() -> None:
    caps = "/dev/nvidia-caps/nvidia-cap"
    made = declared([
        f"Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia0,{caps}21,{caps}22 UUID=MIG-1 Memory=10G",
        f"Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia0,{caps}30,{caps}31 UUID=MIG-2",
        "Name=gpu File=/dev/nvidia1",
    ])[0]  # fmt: skip
    assert [one.key for one in made] == ["gpu:0", "gpu:1", "gpu:2"]
    assert made[0].also == (f"{caps}21", f"{caps}22")
    assert devices.task_environment(made[1:2])["CUDA_VISIBLE_DEVICES"] == "MIG-2"


def test_the_driver_of_amd_tells_the_memory(tmp_path: Path) -> None:
    place = tmp_path / "sys/bus/pci/devices/0000:02:00.0"
    (place / "drm/renderD128").mkdir(parents=True)
    for file, text in (("class", "0x030200"), ("vendor", "0x1002"), ("mem_info_vram_total", str(64 << 30))):
        (place / file).write_text(text + "\n")
    (found,) = detected_devices.of(["AutoDetect=sysfs", "Name=shard Count=4"], str(tmp_path), sharing="user")
    assert (found.shards, found.memory, found.one_user) == (4, 65_536, True)


def test_the_memory_of_nvidias_gpus_is_what_nvidia_smi_says(tmp_path: Path) -> None:
    for address in ("0000:3b:00.0", "0000:af:00.0"):
        place, there = tmp_path / "sys/bus/pci/devices" / address, tmp_path / "proc/driver/nvidia/gpus" / address
        place.mkdir(parents=True)
        there.mkdir(parents=True)
        (there / "information").write_text(f"Device Minor: \t {int(address[5:7] == 'af')}\n")
        for file, text in (("class", "0x030200"), ("vendor", "0x10de")):
            (place / file).write_text(text + "\n")
    assert [one.memory for one in detected_devices.of(["AutoDetect=sysfs"], str(tmp_path))] == [0, 0]
    program = tmp_path / "usr/bin/nvidia-smi"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho '00000000:3B:00.0, 81559'\necho '00000000:AF:00.0, [N/A]'\n")
    program.chmod(0o755)
    found = detected_devices.of(["AutoDetect=sysfs"], str(tmp_path))
    assert [(one.file, one.memory) for one in found] == [("/dev/nvidia0", 81_559), ("/dev/nvidia1", 0)]
    assert [one.memory for one in detected_devices.of(["AutoDetect=sysfs"], str(tmp_path), sharing="no")] == [0, 0]


def test_the_daemon_runs_no_nvidia_smi_that_another_user_could_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs(*_: object, **__: object) -> None:
        raise AssertionError("it is run")

    monkeypatch.setattr("nodectl.placement.machine.detected_devices.os.path.isdir", lambda _: True)
    monkeypatch.setattr("nodectl.placement.machine.detected_devices.os.access", lambda *_: True)
    monkeypatch.setattr("nodectl.placement.machine.detected_devices.trust.is_trusted", lambda _: False)
    monkeypatch.setattr("subprocess.run", runs)
    assert detected_devices._nvidia_memory("/") == {}
