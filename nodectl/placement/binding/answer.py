"""A layout as a JSON object, for `nodectl bind` and `nodectl explain`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.placement.binding.devices import task_environment
from nodectl.placement.binding.layout import Layout
from nodectl.placement.machine.declared_devices import Device

Answer = dict[str, Any]
_TOLD = ("SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_DISTRIBUTION", "SLURM_TASKS_PER_NODE")


def layout_answer(layout: Layout, held: Mapping[int, tuple[str, int]]) -> Answer:
    """Return the JSON object of a layout.

    `held`: the name of each node of the job and the mask of the job's CPUs there, by index of the machine. Tasks name
    their node only if the job has several; lists of CPUs that differ by node are separated by `;`.
    """
    several = len(held) > 1
    lists = [_list(mask) for _, mask in held.values()]
    return {
        "tasks": [
            {
                "task": place.task,
                **({"node": held[place.node][0]} if several else {}),
                "cpus": _list(place.cpus),
                "mems": _list(place.mems),
                "why": place.why,
            }
            for place in layout.tasks
        ],
        "allocated": lists[0] if len(set(lists)) == 1 else ";".join(lists),
        "env": dict(layout.environment),
        "rule": layout.rule,
        "error": None,
    }


def given_answer(
    numbers: Sequence[int], masks: Sequence[int], cpus: int, mems: str, variables: Mapping[str, str]
) -> Answer:
    """Return the JSON object of a step laid out elsewhere.

    It has the numbers and masks of the step's tasks here, the CPUs and memory of the step.
    """
    rule = "as it was laid out with the step's other nodes"
    return {
        "tasks": [
            {"task": number, "cpus": _list(mask or cpus), "mems": mems, "why": rule}
            for number, mask in zip(numbers, masks, strict=True)
        ],
        "allocated": _list(cpus),
        "env": {name: value for name, value in variables.items() if name.startswith(_TOLD)},
        "rule": rule,
        "error": None,
    }


def add_devices(answer: Answer, given: Sequence[Sequence[Device]]) -> None:
    """Add to each task the devices visible to the task, and to the environment the device variables of task 0."""
    for row, held in zip(answer["tasks"], given, strict=True):
        row["gpus"] = ",".join(str(device.number) for device in held)
    answer["env"].update(task_environment(given[0]))


def refusal(reason: str) -> Answer:
    """Return the JSON object for a request without a layout."""
    return {"tasks": [], "allocated": "", "env": {}, "rule": "", "error": reason}


def without_reasons(answer: Answer) -> Answer:
    """Return the object without the members only for --explain."""
    tasks = [{name: value for name, value in row.items() if name != "why"} for row in answer["tasks"]]
    return {**answer, "tasks": tasks}


def _list(mask: int) -> str:
    return format_cpulist(cpus_of(mask))
