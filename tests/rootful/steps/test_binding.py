"""Binding as it is applied: the kernel's own word from inside the tasks of real steps."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.model.cpu_list import format_cpulist, parse_cpulist
from rootful.node import NOBODY, Node, running, wait_until

CPUS = sorted(os.sched_getaffinity(0))
ALLOWED = "grep Cpus_allowed_list /proc/self/status | cut -f2"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running(gres=["Name=gpu Type=a File=/dev/null,/dev/zero Cores=0"]) as started:
        yield started


@contextlib.contextmanager
def lasting(node: Node, *words: str, says: str = "on") -> Iterator[str]:
    """A step that runs until it is told to end; what its first task said."""
    with node.popen(*words, "sh", "-c", f'echo "{says}"; exec sleep 60', user=NOBODY) as step:
        assert step.stdout is not None
        try:
            yield step.stdout.readline().strip()
        finally:
            step.terminate()


def answers(node: Node, *words: str, **how: object) -> list[str]:
    done = node.run("-l", *words, user=NOBODY, **how)
    assert done.returncode == 0, done.stderr
    return [line.partition(": ")[2] for line in sorted(done.stdout.splitlines())]


def bound(node: Node, *words: str, **how: object) -> list[str]:
    return answers(node, *words, "--", "sh", "-c", ALLOWED, **how)


def foretold(node: Node, *words: str) -> dict[str, object]:
    told = node.nodectl("bind", "--json", *words, user=NOBODY)
    found: dict[str, object] = json.loads(told.stdout)
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("-n1",),
        ("-n2",),
        ("-n2", "-m", "block:block"),
        ("-n1", "-c1", "--exact"),
        ("-n4",),
        ("-n4", "--cpu-bind=cores"),
        ("-n3", "--cpu-bind=sockets"),
        ("-n2", "--hint=nomultithread"),
        ("-n2", "-O", "--cpu-bind=rank_ldom"),
        ("-n2", "--cpu-bind=none"),
        ("-n2", f"--cpu-bind=map_cpu:{CPUS[-1]}"),
    ],
)
def test_tasks_get_what_bind_foretells(node: Node, words: tuple[str, ...]) -> None:
    tasks = foretold(node, *words)["tasks"]
    assert bound(node, *words) == [task["cpus"] for task in tasks]  # type: ignore[attr-defined]


def test_a_map_and_a_mask_are_taken_in_turn(node: Node) -> None:
    first, last = CPUS[0], CPUS[-1]
    assert bound(node, "-n3", f"--cpu-bind=map_cpu:{last},{first}") == [str(last), str(first), str(last)]
    assert bound(node, "-n2", f"--cpu-bind=mask_cpu:0x{1 << last:x}") == [str(last)] * 2


def test_sruns_variables_count_where_no_option_is_given(node: Node) -> None:
    assert len(bound(node, env={"SLURM_NTASKS": "3"})) == 3
    variables = {"SLURM_CPU_BIND": f"quiet,map_cpu:{CPUS[-1]}"}
    assert bound(node, "-n1", env=variables) == [str(CPUS[-1])]
    assert bound(node, "-n1", f"--cpu-bind=map_cpu:{CPUS[0]}", env=variables) == [str(CPUS[0])]


def test_a_refused_map_costs_no_process_and_tells_what_is_allowed(node: Node) -> None:
    done = node.run("-n2", "--cpu-bind=map_cpu:4095", "touch", "never", user=NOBODY)
    mask = sum(1 << cpu for cpu in CPUS)
    assert done.returncode == 1
    assert f"allocated CPUs are: 0x{mask:X}" in done.stderr
    assert not (node.scratch / "never").exists()


@pytest.mark.parametrize(
    ("words", "policy"), [(("map_mem:0",), "bind:0"), (("local",), "bind:0"), (("prefer,map_mem:0",), "prefer:0")]
)
def test_memory_comes_from_the_nodes_asked_for(node: Node, words: tuple[str, ...], policy: str) -> None:
    option = f"--mem-bind=verbose,{words[0]}"
    done = node.run("-n2", option, "head", "-n1", "/proc/self/numa_maps", user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == [policy] * 2
    equals = " PREFER " if "prefer" in option else "="
    kind = "LOC" if "local" in option else "MAP"
    told = [line.partition(" - ")[0] for line in done.stderr.splitlines() if line.startswith("mem-bind")]
    assert told == [f"mem-bind{equals}{kind}"] * 2


def test_without_mem_bind_there_is_no_policy_and_no_variable(node: Node) -> None:
    (policy,) = answers(node, "-n1", "--", "sh", "-c", "head -n1 /proc/self/numa_maps | cut -d' ' -f2")
    assert policy == "default"
    assert answers(node, "-n1", "--", "sh", "-c", "echo ${SLURM_MEM_BIND-none}") == ["none"]


def test_each_task_sees_its_own_devices(node: Node) -> None:
    show = "echo $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES $SLURM_JOB_GPUS $SLURM_GPUS_ON_NODE"
    assert answers(node, "-n2", "--gpus-per-task=1", "--", "sh", "-c", show) == ["0 0 0,1 2", "1 1 0,1 2"]
    assert answers(node, "-n2", "--gpus=2", "--gpu-bind=map_gpu:1", "--", "sh", "-c", show) == ["1 1 0,1 2"] * 2
    assert answers(node, "-n1", "--gpus=1", "--", "sh", "-c", show) == ["0 0 0 1"]
    assert answers(node, "-n1", "--", "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-none}") == ["none"]


def test_devices_are_near_and_belong_to_one_job_at_a_time(node: Node) -> None:
    assert bound(node, "-n1", "--gpus=1", "--gres-flags=enforce-binding") == [str(CPUS[0])]
    with lasting(node, "--gpus=2", says="held"):
        refused = node.run("--immediate", "--gpus=1", "true", user=NOBODY)
        assert refused.returncode == 1
        assert "Requested nodes are busy" in refused.stderr
    wait_until(lambda: node.run("--gpus=1", "true", user=NOBODY).returncode == 0, "the devices are free again")


def test_exact_steps_of_several_jobs_keep_apart_while_there_is_room(node: Node) -> None:
    with contextlib.ExitStack() as stack:
        seen = [stack.enter_context(lasting(node, "-n1", "-c1", says=f"$({ALLOWED})")) for _ in CPUS]
        assert bound(node, "-n1", "-c1")[0] in seen
    assert sorted(seen) == sorted(map(str, CPUS))


def test_exact_steps_share_all_cpus_alike_when_there_is_no_room(node: Node) -> None:
    with contextlib.ExitStack() as stack:
        rounds = [stack.enter_context(lasting(node, "-n1", "-c1", says=f"$({ALLOWED})")) for _ in [*CPUS, *CPUS, *CPUS]]
    assert sorted(rounds, key=int) == [str(cpu) for cpu in CPUS for _ in range(3)]


def test_explain_tells_the_rule_of_a_running_step(node: Node) -> None:
    with lasting(node, "-n2", "--cpu-bind=cores"):
        job = node.last_job()
        shown = node.nodectl("explain", str(job), "--json", user=NOBODY)
        assert shown.returncode == 0, shown.stderr
        answer = json.loads(shown.stdout)
        for_people = node.nodectl("explain", f"{job}.0", user=NOBODY).stdout
        node.restart()
        assert node.nodectl("explain", str(job), "--json", user=NOBODY).stdout == shown.stdout
    assert [task["task"] for task in answer["tasks"]] == [0, 1]
    assert answer["allocated"] == format_cpulist(CPUS)
    assert answer["rule"] in for_people
    ended = node.nodectl("explain", str(job), user=NOBODY)
    assert (ended.returncode, "has ended" in ended.stderr) == (1, True)


def test_the_steps_cpuset_is_what_it_was_given(node: Node) -> None:
    if not (Path(node.base) / "cpuset.cpus").exists():
        pytest.skip("the cpuset controller does not belong to cgroup2 here")
    shown = answers(
        node, "-n1", "-c1", "--", "sh", "-c", "cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/../cpuset.cpus"
    )
    assert parse_cpulist(shown[0]) <= set(CPUS)
