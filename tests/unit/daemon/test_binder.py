"""The daemon's binder: steps of several jobs on one machine, here one that is larger than most that tests run on."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest

from nodectl.model.step import Step
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.machine import topology
from nodectl.placement.machine.spec import from_spec
from nodectl.service.config_file.reader import build
from nodectl.service.daemon.admission.binder import Binder

MACHINE = from_spec("2s:4c:2t:2n:i")


class Machine:
    """A binder and the steps that run."""

    def __init__(self, **config: object) -> None:
        self.running: list[Step] = []
        self.binder = Binder(build({"over_subscribe": "force", **config}), lambda: self.running)

    def begin(self, environment: dict[str, str] | None = None, *, number: int = 0, **layout: object) -> Step:
        values: dict[str, object] = {"ntasks": 1, **layout}
        step = Step.from_json({"job_id": len(self.running) + 1, "ntasks": values["ntasks"], "layout": values})
        step.cpus_per_task = int(str(values.get("cpus_per_task", 1)))
        step.environment = dict(environment or {})
        step.step_id = number
        self.binder.give(step, self.binder.allocation)
        self.binder.bind(step)
        self.running.append(step)
        return step


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(topology, "read", lambda *, allowed: MACHINE)
    return Machine()


def cores(steps: list[Step]) -> Counter[int]:
    return Counter(core.number for step in steps for core in MACHINE.cores if core.mask & step.step_cpus)


def test_exact_steps_are_shared_out_alike_round_after_round(machine: Machine) -> None:
    for _ in range(3):
        taken = [machine.begin(cpus_per_task=1) for _ in MACHINE.cores]
        assert cores(taken) == Counter(range(8))
    assert cores(machine.running) == Counter(dict.fromkeys(range(8), 3))


def test_a_step_that_took_the_last_free_cores_is_one_that_has_them(machine: Machine) -> None:
    for ntasks in (3, 5):  # together all cores
        machine.begin(ntasks=ntasks, cpus_per_task=2)
    assert cores(machine.running) == Counter(range(8))
    machine.begin(ntasks=8, cpus_per_task=1, exclusive="1")
    del machine.running[0]
    free = {core.number for core in MACHINE.cores} - set(cores(machine.running[:1]))
    again = machine.begin(ntasks=3, cpus_per_task=2)
    assert set(cores([again])) == free


def test_steps_that_have_the_whole_machine_keep_nobody_away(machine: Machine) -> None:
    for _ in range(5):
        machine.begin(ntasks=16)
    assert cores([machine.begin(cpus_per_task=1)]) == Counter([0])
    assert cores([machine.begin(cpus_per_task=1)]) == Counter([1])


def test_a_refusal_is_kept_in_the_users_words(machine: Machine) -> None:
    with pytest.raises(NoLayout):
        machine.begin(ntasks=2, nodes="2")
    step = Step.from_json({"job_id": 1, "ntasks": 1, "layout": {"ntasks": 1, "cpu_bind": "map_cpu:16"}})
    step.environment = {}
    machine.binder.give(step, machine.binder.allocation)
    with pytest.raises(NoLayout):
        machine.binder.bind(step)
    assert step.refused == "CPU binding outside of job step allocation, allocated CPUs are: 0xFFFF."


def test_who_never_asks_the_same_twice_does_not_fill_the_daemons_memory(machine: Machine) -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            layout = {"ntasks": 512, "cpu_bind": f"map_cpu:{'0,' * number}1"}
            step = Step.from_json({"job_id": 1, "ntasks": 512, "layout": layout})
            step.environment = {}
            machine.binder.give(step, machine.binder.allocation)
            machine.binder.bind(step)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 8 << 20


def test_a_step_has_the_variables_of_its_own_part_of_a_gpu_and_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "read", lambda *, allowed: MACHINE)
    names = ("SLURM_SHARDS_ON_NODE", "NODECTL_GPU_MEM", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
    machine = Machine(gres=["Name=gpu Count=3 Memory=80G", "Name=shard Count=12"])

    def of_part(environment: dict[str, str]) -> dict[str, str]:
        return {name: environment[name] for name in names if name in environment}

    shard = machine.begin(gres="shard:1").environment
    assert of_part(shard) == dict(zip(names, ("1", "20480", "0=20480M"), strict=True))
    assert of_part(machine.begin(shard, gpus="1").environment) == {}
    assert of_part(machine.begin(shard, gpu_mem="1G").environment) == dict(
        zip(names[1:], ("1024", "0=1024M"), strict=True)
    )
    assert of_part(machine.begin(shard | {names[2]: "0=1G"}, gpus="1").environment) == {names[2]: "0=1G"}
    assert of_part(machine.begin(shard).environment) == {names[0]: "1"}
    assert of_part(machine.begin(shard, number=1).environment) == {}, "the job's, and this step has no GPU"
