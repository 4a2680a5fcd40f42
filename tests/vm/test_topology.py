"""Sockets, cores, threads and memory nodes: read right, and pinned to as asked; the masks are the kernel's answer."""

from __future__ import annotations

import json
import os
import re

import pytest

from vm import service
from vm.host.qemu import Topology
from vm.service import Sleeper

MACHINE = Topology.parse(os.environ.get("NODECTL_TEST_VM", "1s1c1t1n"))
PER_SOCKET = MACHINE.cores * MACHINE.threads
PER_NODE = MACHINE.cpus // MACHINE.nodes
CORES = [set(range(first, first + MACHINE.threads)) for first in range(0, MACHINE.cpus, MACHINE.threads)]
SOCKETS = [set(range(first, first + PER_SOCKET)) for first in range(0, MACHINE.cpus, PER_SOCKET)]
NODES = [set(range(first, first + PER_NODE)) for first in range(0, MACHINE.cpus, PER_NODE)]
# Where the pages of a task's 16 MiB are, by node.
MEMORY = """
import re
data = bytearray(b"x") * (16 << 20)
nodes = {}
for line in open("/proc/self/numa_maps"):
    for node, pages in re.findall(r" N(\\d+)=(\\d+)", line if "anon=" in line else ""):
        nodes[node] = nodes.get(node, 0) + int(pages)
print(max(nodes, key=nodes.get))
"""
two_nodes = pytest.mark.skipif(MACHINE.nodes == 1, reason="one memory node")


def cpus(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def masks(ntasks: int, *words: str) -> list[set[int]]:
    """Each task's CPUs, by rank, as the kernel says in the task."""
    script = "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status"
    out = service.nodectl("run", "-l", "-n", str(ntasks), *words, "sh", "-c", script, user="alice")
    found = dict(re.findall(r"^ *(\d+): (\S+)$", out, re.MULTILINE))
    return [cpus(found[str(rank)]) for rank in range(ntasks)]


def memory_of_tasks(*words: str) -> list[int]:
    """Of tasks that are pinned to one node each: where their memory is."""
    first = ",".join(str(min(node)) for node in NODES)
    command = ("run", "-l", "-n", str(MACHINE.nodes), f"--cpu-bind=map_cpu:{first}", *words, "python3", "-c", MEMORY)
    found = dict(re.findall(r"^ *(\d+): (\d+)$", service.nodectl(*command, user="alice"), re.MULTILINE))
    return [int(found[str(rank)]) for rank in range(MACHINE.nodes)]


def test_topology_is_read_as_it_was_built() -> None:
    machine = json.loads(service.nodectl("topo", "--json"))
    assert [cpus(socket["cpus"]) for socket in machine["sockets"]] == SOCKETS
    assert [set(core["cpus"]) for socket in machine["sockets"] for core in socket["cores"]] == CORES
    assert [cpus(node["cpus"]) for node in machine["nodes"]] == NODES


def test_tasks_bound_to_cores_have_a_core_with_all_its_threads_each() -> None:
    found = masks(len(CORES), "--cpu-bind=cores")
    assert sorted(map(sorted, found)) == sorted(map(sorted, CORES))


def test_tasks_bound_to_threads_have_one_each() -> None:
    found = masks(MACHINE.cpus, "--cpu-bind=threads")
    assert sorted(map(sorted, found)) == [[cpu] for cpu in range(MACHINE.cpus)]


def test_tasks_bound_to_sockets_have_one_each() -> None:
    found = masks(len(SOCKETS), "--cpu-bind=sockets")
    assert sorted(map(sorted, found)) == sorted(map(sorted, SOCKETS))


def test_map_and_mask_are_obeyed_to_the_letter() -> None:
    wanted = [MACHINE.cpus - 1, 0, MACHINE.cpus // 2]
    assert masks(3, f"--cpu-bind=map_cpu:{','.join(map(str, wanted))}") == [{cpu} for cpu in wanted]
    whole, last = (1 << MACHINE.cpus) - 1, 1 << MACHINE.cpus - 1
    assert masks(2, f"--cpu-bind=mask_cpu:{whole:#x},{last:#x}") == [set(range(MACHINE.cpus)), {MACHINE.cpus - 1}]


def test_unbound_tasks_have_the_whole_machine() -> None:
    assert masks(2, "--cpu-bind=none") == [set(range(MACHINE.cpus))] * 2


def test_threads_of_a_core_are_kept_together() -> None:
    found = masks(len(CORES), f"-c{MACHINE.threads}", "--cpu-bind=threads")
    assert sorted(map(sorted, found)) == sorted(map(sorted, CORES))


def test_task_without_multithreading_has_one_thread_of_a_core_of_its_own() -> None:
    found = masks(len(CORES), "--hint=nomultithread")
    assert [len(mask) for mask in found] == [1] * len(CORES)
    assert [sum(bool(mask & core) for mask in found) for core in CORES] == [1] * len(CORES)


def test_exact_step_is_kept_on_whole_cores_by_the_kernel() -> None:
    step = Sleeper("alice", 0, "--exact", "-n1", "-c1")
    assert cpus((step.group / "user/cpuset.cpus.effective").read_text().strip()) in CORES
    assert step.let_go()[0] == 0


@two_nodes
def test_pinned_task_gets_its_memory_from_its_own_node() -> None:
    assert memory_of_tasks() == list(range(MACHINE.nodes))


@two_nodes
@pytest.mark.parametrize("words", ["map_mem:{}", "mask_mem:{}"])
def test_memory_is_on_the_node_that_was_asked_for_wherever_the_task_runs(words: str) -> None:
    far = list(reversed(range(MACHINE.nodes)))
    values = far if words.startswith("map") else [1 << node for node in far]
    assert memory_of_tasks(f"--mem-bind={words.format(','.join(map(str, values)))}") == far


@two_nodes
def test_memory_nodes_of_the_unit_of_steps_are_those_of_all_steps() -> None:
    insisting = ("nodectl", "run", "numactl", f"--membind={MACHINE.nodes - 1}", "true")
    assert service.run(*insisting, user="alice").returncode == 0
    service.limit_steps("AllowedMemoryNodes=0")
    try:
        assert memory_of_tasks() == [0] * MACHINE.nodes
        assert service.run(*insisting, user="alice").returncode != 0
    finally:
        service.limit_steps(f"AllowedMemoryNodes=0-{MACHINE.nodes - 1}")


def test_cpu_outside_of_the_machine_is_refused() -> None:
    refused = service.run("nodectl", "run", f"--cpu-bind=map_cpu:{MACHINE.cpus}", "true", user="alice")
    assert refused.returncode != 0
    assert refused.stderr.startswith("nodectl: ")
