"""A part of a step as the daemon reads it: whatever it is sent, it is refused or fits the machine."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.model.step import Step
from nodectl.model.wire.dispatch import Refused
from nodectl.model.wire.shape import Optional
from nodectl.placement.machine.declared_devices import Device
from nodectl.placement.machine.spec import from_spec
from nodectl.service.daemon.admission import part
from nodectl.service.daemon.admission.slurm_job import SlurmJob

MACHINE = from_spec("2s:2c:2t:2n")
CPUS = 0x3F  # which this daemon may use of its eight
GOOD: dict[str, Any] = {
    "job": 7, "step": 3, "nodes": "n[1-2]", "nnodes": 2, "ntasks": 4, "tasks_per_node": "2(x2)", "node": "n2",
    "nodeid": 1, "tasks": "1,3", "cpus": "f", "masks": ["3", "0"], "mems": "0", "mem_policies": [[2, "1"], []],
    "bind": ["mask_cpu:", "0x3"], "devices": ["gpu:1"], "environment": {"SLURM_CPU_BIND_VERBOSE": "verbose"},
}  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 70) | st.integers() | st.text("0123456789abcf,-x ", max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def binder() -> Any:
    def give(step: Step, mask: int) -> None:
        step.allocation = mask

    devices = (Device("gpu", 0), Device("gpu", 1))
    return SimpleNamespace(allocation=CPUS, machine=MACHINE, node_devices=devices, give=give)


def applied(asked: object, ntasks: int = 2, job: SlurmJob | None = None, **environment: str) -> Step:
    of_node = {**environment, "NODECTL_SOCKET": "/here"}
    step = Step.from_json({"job_id": 0, "ntasks": ntasks, "environment": of_node, "stack": []})
    step.shares = {"pids.max": 100}  # as every step of this service has
    step.cpu_masks = []
    request: Mapping[str, object] = {"ntasks": ntasks, "environment": environment, "part": asked}
    part.apply(step, request, binder(), job)
    return step


def test_a_part_is_taken_as_it_is() -> None:
    step = applied(GOOD, A="b")
    assert (step.job_id, step.step_id, step.node_name, step.is_first) == (7, 3, "n2", False)
    assert (step.allocation, step.base, step.step_cpus, step.cpu_masks) == (CPUS, 0xF, 0xF, [3, 0])
    assert (step.mems, step.mem_policies, step.devices) == ("0", [(2, [1]), None], ["gpu:1"])
    assert (list(step.numbers), step.total_tasks, step.nnodes, step.nodeid) == ([1, 3], 4, 2, 1)
    assert step.environment["SLURM_CPU_BIND"] == "verbose,mask_cpu:0x3"


def test_the_socket_is_that_of_who_asked() -> None:
    assert "NODECTL_SOCKET" not in applied(GOOD).environment
    assert applied(GOOD, NODECTL_SOCKET="/gateway").environment["NODECTL_SOCKET"] == "/gateway"


def test_times_of_the_job_are_those_that_came_with_it() -> None:
    step = applied(GOOD, SLURM_JOB_START_TIME="1000", SLURM_JOB_END_TIME="2000")
    assert (step.job_began, step.job_ends) == (1000, 2000)
    step = applied(GOOD, SLURM_JOB_START_TIME="soon", SLURM_JOB_END_TIME="9" * 40)
    assert (step.job_began, step.job_ends) == (0, 0)


def _must_fit(step: Step) -> None:
    assert step.step_cpus
    assert not step.step_cpus & ~CPUS
    assert len(step.cpu_masks) == step.ntasks
    assert not any(mask & ~step.step_cpus for mask in step.cpu_masks)
    numbers = list(step.numbers)
    assert numbers == sorted(set(numbers))
    assert len(numbers) == step.ntasks
    assert numbers[-1] < step.total_tasks
    assert 0 <= step.nodeid < step.nnodes <= step.total_tasks
    assert len(step.mem_policies) in (0, step.ntasks)
    assert "/" not in step.node_name


@given(st.dictionaries(st.sampled_from([*GOOD, "more"]), ANYTHING, max_size=3))
def test_whatever_a_part_has_it_is_refused_or_fits(changed: dict[str, object]) -> None:
    try:
        step = applied({**GOOD, **changed})
    except Refused:
        pass
    else:
        _must_fit(step)
        _must_fit(Step.from_json(step.as_json()))


@given(ANYTHING)
def test_whatever_comes_in_the_place_of_one_is_refused(asked: object) -> None:
    with pytest.raises(Refused):
        applied(asked)


def test_members_that_may_be_left_out_have_their_defaults() -> None:
    least = {name: GOOD[name] for name, rule in part.PART.items() if not isinstance(rule, Optional)}
    step = applied(least)
    assert (step.mems, step.mem_policies, step.devices) == ("0-1", [], [])
    assert not [name for name in step.environment if name.startswith("SLURM_CPU_BIND")]


WITHIN = SlurmJob(7, "/slurm/job_7/step_0/user", 0x83, 250, {"NOFILE": 64})


def test_within_a_job_of_slurms_a_part_has_what_that_has() -> None:
    """Its CPUs, whether or not they are this service's to give; a cgroup there; the caller's hard limits."""
    step = applied({**GOOD, "cpus": "83", "masks": ["3", "80"], "devices": []}, job=WITHIN)
    assert (step.allocation, step.step_cpus, step.cpu_masks) == (0x83, 0x83, [3, 0x80])
    assert (step.within, step.cgroup) == (WITHIN.place, f"{WITHIN.place}/nodectl/step_3")
    assert (step.hard_limits, step.container, step.shares) == ({"NOFILE": 64}, {}, {})


@pytest.mark.parametrize(
    ("name", "value", "why"), [("cpus", "4", "none of the CPUs here"), ("devices", ["gpu:1"], "Slurm's to give")]
)
def test_within_a_job_of_slurms_nothing_else_is_to_be_had(name: str, value: object, why: str) -> None:
    with pytest.raises(Refused, match=why):
        applied({**GOOD, "cpus": "3", "masks": ["3", "0"], "devices": [], name: value}, job=WITHIN)
