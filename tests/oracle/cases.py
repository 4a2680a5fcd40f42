"""The cases measured on a real Slurm, and how each is put to `nodectl.placement.binding`."""

from __future__ import annotations

import argparse
import functools
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nodectl.model.cpu_list import cpus_of, format_cpulist, mask_of_list
from nodectl.placement.binding.allocation import Allocation
from nodectl.placement.binding.layout import Layout
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import FLAG, ROWS, request_of
from nodectl.placement.binding.request import LayoutRequest, Settings
from nodectl.placement.binding.step import place
from nodectl.placement.machine.spec import from_lscpu
from nodectl.placement.machine.topology import Board, Topology
from nodectl.selection.planning import allocate

CASES = Path(__file__).parent / "cases"
# what a reason must hold for the word of a refusal; groups are those of the word
REASONS = [
    (r"outside (.*)", r"CPU binding outside of .*: \1\."),
    (r"whole node (.*)", r"Entire node must be allocated for \1;"),
    (r"too many CPUs", r"More processors requested than permitted"),
    (r"threads per core", r"more threads per core than the job"),
    (r"no such nodes", r"Requested node configuration is not available|Invalid node name"),
    (r"bad (.*)", r"--\1 "),
    (r"hostlist", r"tasks but hostlist specified"),
    (r"nodes of the job", r"--relative|Only allocated"),
    (r"no such NUMA node", r"NUMA node \d+ does not exist"),
]
# variables of task 0, without SLURM_
TOLD = (
    "CPU_BIND", "MEM_BIND", "DISTRIBUTION", "TASKS_PER_NODE", "CPUS_PER_TASK", "THREADS_PER_CORE", "CPUS_ON_NODE",
    "GTIDS",
)  # fmt: skip
COLUMNS = ("cpu", "node", "socket", "core", "l1d:l1i:l2:l3")


@dataclass(frozen=True)
class Machine:
    """The nodes of one file, all alike, and their configuration."""

    name: str
    nodes: tuple[Topology, ...]
    names: tuple[str, ...]
    settings: Settings


@dataclass(frozen=True)
class Case:
    """One measurement. `row`: as in the file."""

    machine: Machine
    number: int
    row: dict[str, Any]

    def __str__(self) -> str:
        alloc = f"({self.row['alloc']}) " if "alloc" in self.row else ""
        environ = "".join(f"{name}={value} " for name, value in self.row.get("environ", {}).items())
        return f"{self.machine.name}:{self.number} {self.row['mode']}: {alloc}{environ}{shlex.join(self.row['args'])}"


@functools.cache
def cases(name: str) -> tuple[Case, ...]:
    lines = (CASES / f"{name}.jsonl").read_text().splitlines()
    machine = _machine(name, json.loads(lines[0]))
    return tuple(Case(machine, number, json.loads(line)) for number, line in enumerate(lines[1:], 1))


def every_case() -> Iterator[Case]:
    for path in sorted(CASES.glob("*.jsonl")):
        yield from cases(path.stem)


def _machine(name: str, row: dict[str, Any]) -> Machine:
    lscpu = {"cpus": [dict(zip(COLUMNS, line, strict=True)) for line in row["lscpu"]]}
    node = from_lscpu(json.dumps(lscpu).encode())
    size = len(node.sockets) // row["boards"]
    boards = [node.sockets[at : at + size] for at in range(0, len(node.sockets), size)]
    masks = [functools.reduce(int.__or__, (socket.mask for socket in sockets)) for sockets in boards]
    node = replace(node, boards=tuple(Board(number, mask) for number, mask in enumerate(masks)))
    words = row["select_type_parameters"].lower().split(",")
    settings = Settings(
        select_type_parameters=tuple(words), slurmd_parameters=tuple(row["slurmd_parameters"].lower().split(","))
    )
    return Machine(name, (node,) * len(row["names"]), tuple(row["names"]), settings)


@functools.cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, letter, _, _, kind in ROWS:
        flags = [f"--{name}", f"-{letter}"] if letter else [f"--{name}"]
        if kind == FLAG:
            parser.add_argument(*flags, action="store_true", default=None)
        else:
            parser.add_argument(*flags)
    return parser


def request(words: list[str], environ: dict[str, str]) -> LayoutRequest:
    """The request of options; those that say nothing about layout, as --mem, are left out."""
    options, _ = _parser().parse_known_args(words)
    return request_of(vars(options), environ, environ.get("SLURM_HOSTFILE", ""))


def allocation(case: Case) -> Allocation | None:
    """What the job of the case holds; None where the step makes its own."""
    machine = case.machine
    mode = case.row["mode"]
    if mode == "alloc":
        asked = request(case.row["alloc"].split(), {})
        return allocate(machine.nodes, asked, (), machine.settings, machine.names)
    if mode == "job":
        return None
    held = machine.nodes[0].to_machine(mask_of_list(case.row["allocated"]))
    made = Allocation.of_masks(machine.nodes, dict.fromkeys(range(len(machine.nodes)), held), machine.names)
    if mode == "frag":
        return replace(made, environment={"SLURM_CPUS_PER_TASK": str(machine.nodes[0].threads_per_core)})
    return made


def played(case: Case) -> Layout | str:
    """What nodectl makes of the case: a layout, or the reason of its refusal."""
    machine = case.machine
    try:
        held = allocation(case)
        environ = (dict(held.environment) if held else {}) | case.row.get("environ", {})
        asked = request(case.row["args"], environ)
        if held is None:
            held = replace(allocate(machine.nodes, asked, (), machine.settings, machine.names), own=True)
        layout = place(machine.nodes, held, asked, machine.settings)
        return replace(layout, environment=environ | layout.environment)
    except NoLayout as refused:
        return refused.reason


def unrolled(text: str) -> list[str]:
    words = [word.partition("*") for word in text.split()]
    return [word for word, _, count in words for _ in range(int(count or 1))]


def _says(reason: str, refusal: str) -> bool:
    for pattern, wanted in REASONS:
        if match := re.fullmatch(pattern, refusal):
            return re.search(match.expand(wanted) if match.groups() else wanted, reason) is not None
    return False


def differences(case: Case) -> dict[str, tuple[object, object]]:
    """By name, what was measured and what nodectl says, where these differ."""
    got = played(case)
    row = case.row
    if isinstance(got, str) or "refusal" in row:
        if isinstance(got, str) and row["exit"] and _says(got, row["refusal"]):
            return {}
        return {"exit": (f"{row['exit']} {row.get('refusal', 'runs')}", got if isinstance(got, str) else "runs")}
    wanted: dict[str, object] = {"cpus": unrolled(row["cpus"])}
    gotten: dict[str, object] = {"cpus": [format_cpulist(cpus_of(task.cpus)) for task in got.tasks]}
    if "mems" in row:
        wanted["mems"] = unrolled(row["mems"])
        gotten["mems"] = [format_cpulist(cpus_of(task.mems)) for task in got.tasks]
    if "policies" in row:
        wanted["policies"] = unrolled(row["policies"])
        gotten["policies"] = [
            f"[{task.policy.mode},{task.policy.nodes}]" if task.policy else "[0,0]" for task in got.tasks
        ]
    if row["env"]:
        # of one node GTIDS were not kept: they are all of its tasks
        names = [name for name in TOLD if name != "GTIDS" or name in row["env"]]
        wanted |= {name: row["env"].get(name) for name in names}
        gotten |= {name: got.environment.get(f"SLURM_{name}") for name in names}
    if row["step"]:
        wanted["step"] = row["step"]
        gotten["step"] = format_cpulist(cpus_of(next(n.cpus for n in got.nodes if n.node == got.tasks[0].node)))
    return {name: (wanted[name], gotten.get(name)) for name in wanted if wanted[name] != gotten.get(name)}
