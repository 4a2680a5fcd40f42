"""What select/cons_tres gives on small nodes is what a plain model of SelectTypeParameters says, and no more."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.selection.answers import Choice, Refusal
from nodectl.selection.modes import SELECT_MODE_TEST_ONLY
from unit.selection.tres import Bed, nodes, parameters

MODES = ("CR_CPU", "CR_CPU_Memory", "CR_Core", "CR_Core_Memory", "CR_Socket", "CR_Socket_Memory")


@dataclass
class Model:
    """Nodes that are alike. `free`: of each node and socket, how many cores; `memory`: free MiB of each node."""

    mode: str
    threads: int
    cores: int
    free: list[list[int]]
    memory: list[int]
    one_task: bool

    def cpus(self, node: int, size: int) -> int:
        """CPUs that a job of tasks of this size can use of a node."""
        threads = min(self.threads, size) if self.one_task else self.threads
        if "Socket" in self.mode:
            return sum(cores for cores in self.free[node] if cores == self.cores) * threads
        return sum(self.free[node]) * threads

    def tasks(self, node: int, size: int, per_node: int, per_cpu: int) -> int:
        """How many tasks of this size fit on a node. Memory for each CPU is charged for whole cores, but by CR_CPU."""
        cpus = self.cpus(node, size)
        if "Memory" in self.mode:
            if per_node > self.memory[node]:
                return 0
            if per_cpu:
                unit = 1 if "CPU" in self.mode else min(self.threads, size) if self.one_task else self.threads
                cpus = min(cpus, self.memory[node] // per_cpu // unit * unit)
        return cpus // size

    def fits(self, ntasks: int, size: int, per_node: int, per_cpu: int, most: int) -> bool:
        each = sorted((self.tasks(node, size, per_node, per_cpu) for node in range(len(self.free))), reverse=True)
        return sum(each[: most or len(each)]) >= ntasks


def _free(bed: Bed, sockets: int, cores: int) -> list[list[int]]:
    return [
        [cores - (use.busy >> socket * cores & (1 << cores) - 1).bit_count() for socket in range(sockets)]
        for use in bed.state.uses
    ]


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_job_starts_exactly_when_the_model_has_room(mode: str, data: st.DataObject) -> None:
    count, sockets, cores, threads = (data.draw(st.integers(1, most)) for most in (3, 2, 3, 2))
    one_task = data.draw(st.booleans())
    words = (mode, "CR_ONE_TASK_PER_CORE") if one_task else (mode,)
    bed = Bed(nodes(count, f"{sockets}s:{cores}c:{threads}t", 1000), parameters(*words))
    for _ in range(6):
        ntasks, size = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 3))
        memory = data.draw(
            st.sampled_from([("", 0), ("pn_min_memory", 300), ("mem_per_cpu", 90), ("mem_per_cpu", 300)])
        )
        most = data.draw(st.integers(0, count))
        options = [f"ntasks={ntasks}", f"cpus_per_task={size}"]
        if most:
            most = min(most, ntasks)
            options.append(f"nodes=1-{most}")
        if data.draw(st.booleans()):
            options.append("distribution=*:block")
        job = bed.job(*options, **({memory[0]: memory[1]} if memory[0] else {}))
        model = Model(
            mode, threads, cores, _free(bed, sockets, cores), [1000 - use.memory for use in bed.state.uses], one_task
        )
        per_node, per_cpu = (memory[1] if memory[0] == name else 0 for name in ("pn_min_memory", "mem_per_cpu"))
        fits = model.fits(ntasks, size, per_node, per_cpu, most)
        started = bed.start(job)
        if started != fits:
            # Whole sockets cost memory of all their CPUs: what tasks alone would need may be too much there.
            assert not started
            assert mode == "CR_Socket_Memory"
            assert per_cpu
        if started:
            _check(bed, job, model, ntasks * size)


def _check(bed: Bed, job: object, model: Model, need: int) -> None:
    held = job.job_resrcs  # type: ignore[attr-defined]
    threads = model.threads
    total = 0
    for node in range(len(bed.table)):
        if not held.node_bitmap[node]:
            continue
        mine = bed.state.cores_of(held.core_bitmap, node).bit_count()
        cpus = held.cpus[node]
        total += cpus
        if "CPU" in model.mode:
            assert mine <= cpus <= mine * threads
        else:
            assert cpus == mine * threads or model.one_task
        if "Socket" in model.mode:
            assert mine % model.cores == 0
    assert total >= need
    if "CPU" in model.mode:
        assert total == need


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_can_run_now_can_ever_run(data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(MODES))
    bed = Bed(
        nodes(
            data.draw(st.integers(1, 4)),
            data.draw(st.sampled_from(("1s:2c:2t", "2s:3c:1t", "2s:2c:2t"))),
            1000,
            "01"[:1],
        ),
        parameters(mode, sharing=data.draw(st.sampled_from(("no", "yes", "force"))), count=2),
    )
    for _ in range(8):
        job = bed.job(
            f"ntasks={data.draw(st.integers(1, 9))}", f"cpus_per_task={data.draw(st.integers(1, 4))}",
            *data.draw(st.lists(st.sampled_from((
                "ntasks_per_node=2", "ntasks_per_socket=1", "ntasks_per_core=1", "mincpus=3", "hint=nomultithread",
                "extra_node_info=2:1:1", "distribution=*:block", "distribution=*:fcyclic", "nodes=1-2", "overcommit",
                "use_min_nodes",
            )), max_size=3, unique_by=lambda word: word[:6])),
            contiguous=data.draw(st.booleans()), share_res=data.draw(st.sampled_from((None, True, False))),
            mem_per_cpu=data.draw(st.sampled_from((0, 100, 400))), gres=data.draw(st.sampled_from(({}, {"gpu": 1}))),
        )  # fmt: skip
        ever = bed.test(job, SELECT_MODE_TEST_ONLY)
        started = bed.start(job)
        assert not started or isinstance(ever, Choice), "it runs, and yet it never can"
        if isinstance(ever, Refusal):
            assert ever.kind == "never"
        ends = st.none() | st.sampled_from(bed.jobs) if bed.jobs else st.none()
        if (ended := data.draw(ends)) is not None:
            bed.end(ended)
