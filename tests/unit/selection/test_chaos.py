"""A plugin in which every function may answer anything: the host never raises, and nothing is given twice."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.states import COMPLETING, RUNNING, SUSPENDED
from nodectl.plugin_host.kinds import KINDS
from nodectl.selection.host import Choice, Refusal, SelectionFailed
from nodectl.selection.records import JobRecord, ReservationRequest, StepRecord
from nodectl.selection.slurmctld import Parameters
from unit.selection.stage import Stage, stage

MIND = """
import random
from bitarray import bitarray
from nodectl.plugin_api import PluginError, set_errno
from nodectl.selection.buffer import Buf
from nodectl.selection.records import JobRecord, JobResources, Output

chance = random.Random()
level = 0.0  # how often it goes wrong

class Rude(Exception):
    def __str__(self): raise ValueError("no words")

class Odd:
    def __repr__(self): raise ValueError("no words")
    def __eq__(self, other): raise ValueError("no equal")
    __hash__ = None

def anything():
    return chance.choice([
        None, True, False, 0, 1, -1, 2**80, -7.5, float("nan"), float("inf"), "text", b"bytes", [], [1, "x"], {}, set(),
        object(), Odd(), int, bitarray(), bitarray("1" * 7), bitarray("1" * 300), JobResources(bitarray(), bitarray()),
        JobRecord(1), Output([]), Output(Odd()), iter(()), Buf(b"xx"), lambda: 1, (1, 2),
    ])

def misbehave(arguments):
    for one in arguments:
        if isinstance(one, Output):
            one.value = anything()
        elif isinstance(one, bitarray) and chance.random() < 0.5:
            chance.choice([
                lambda: one.setall(1), lambda: one.setall(0), one.clear, lambda: one.extend("101"), one.invert,
            ])()
        elif isinstance(one, bytearray):
            one[:] = bytes(chance.randrange(256) for _ in range(chance.randrange(50)))
        elif isinstance(one, list) and chance.random() < 0.3:
            one.clear()
        elif isinstance(one, Buf) and chance.random() < 0.5:
            one.packstr("x" * chance.randrange(99)); one.pack16(7)
        elif isinstance(one, JobRecord) and chance.random() < 0.5:
            kept = one.job_resrcs
            one.job_resrcs = chance.choice([anything(), kept])
            if isinstance(kept, JobResources):
                kept.core_bitmap.setall(chance.random() < 0.5)
                kept.cpus[chance.choice([0, 1, 99, "n", None])] = anything()
                kept.memory[0] = anything(); kept.gres[0] = anything()
            one.start_time = anything()
            if chance.random() < 0.3:
                one.node_bitmap = anything(); one.nodes = anything(); one.select_jobinfo = anything()
    what = chance.randrange(8)
    if what == 0: raise ValueError("lost")
    if what == 1: raise PluginError(7, "said so")
    if what == 2: raise SystemExit(1)
    if what == 3: raise Rude()
    if what == 4: set_errno(12, "words"); return -1
    if what == 5: raise KeyboardInterrupt
    return anything()

def well(name, arguments):
    if name == "job_test":
        job, bitmap, least = arguments[0], arguments[1], arguments[2]
        free = list(bitmap.search(1))
        chance.shuffle(free)
        bitmap.setall(0)
        for node in free[:least]:
            bitmap[node] = 1
        arguments[7].value = list(arguments[6] or [])[: chance.randrange(2)]
        return 0
    if name in ("select_nodeinfo_alloc", "select_jobinfo_alloc", "select_jobinfo_copy"): return object()
    if name in ("job_ready", "job_expand_allow", "node_ranking"): return 1
    if name.endswith("_unpack"): arguments[0].value = object()
    if name == "step_pick_nodes": return None
    return 0

def play(name, arguments):
    return misbehave(arguments) if chance.random() < level else well(name, arguments)
"""
FUNCTIONS = "".join(
    f"def {name}({', '.join(f'a{number}' for number in range(arity))}): "
    f"return play({name.removeprefix('select_p_')!r}, [{', '.join(f'a{number}' for number in range(arity))}])\n"
    for name, arity in KINDS["select"].functions.items()
)
WAYS = [
    Parameters(),
    Parameters(over_subscribe="force", share_count=2),
    Parameters(over_subscribe="yes", share_count=3),
]


class Chaos:
    """The life of some jobs over such a plugin, with an account of the test's own."""

    def __init__(self, theatre: Stage, seed: int) -> None:
        self.theatre = theatre
        self.selection = theatre.selection
        self.chance = random.Random(seed)  # noqa: S311 - chance, no secret
        self.held: dict[JobRecord, tuple[frozenset[int], frozenset[tuple[int, str]], int]] = {}
        self.stopped: set[JobRecord] = set()

    def start(self) -> None:
        job = self.theatre.job(
            min_nodes=self.chance.randint(1, 2),
            pn_min_memory=self.chance.choice([0, 300]),
            gres=self.chance.choice([{}, {"gpu": 1}]),
            share_res=self.chance.choice([None, True]),
        )
        self.selection.info.admit(job)
        candidates = self.chance.choice([None, list(self.held)])
        mode = self.chance.choice([0, 0, 0, 1, 2])
        found = self.selection.job_test(job, mode, candidates=candidates, now=self.chance.choice([1.0, 5000.0]))
        if mode or not isinstance(found, Choice) or found.preempted:
            assert isinstance(found, Choice | Refusal)
            return
        if self.selection.job_begin(job):
            return
        job.job_state = RUNNING
        assert job.job_resrcs is not None
        cores = frozenset(job.job_resrcs.core_bitmap.search(1))
        devices = frozenset((node, key) for node, keys in job.job_resrcs.gres.items() for key in keys)
        self.held[job] = (cores, devices, self.selection.parameters.sharers(job))
        self.selection.job_ready(job)

    def change(self) -> None:
        if not self.held:
            return
        job = self.chance.choice(list(self.held))
        step = StepRecord(job, 0)
        way = self.chance.randrange(9)
        if way == 0 and not self.selection.job_suspend(job, indf_susp=True):
            self.stopped.add(job)
        elif way == 1 and not self.selection.job_resume(job, indf_susp=True):
            self.stopped.discard(job)
        elif way == 2:
            self.selection.job_signal(job, 9)
            self.selection.job_mem_confirm(job)
            self.selection.step_pick_nodes(job, step, 1)
            self.selection.step_finish(step, killing_step=False)
        elif way == 3:
            self.selection.info.refresh()
            for node in self.theatre.nodes:
                self.selection.info.node_data(node)
            self.selection.info.print_job(job)
            self.selection.info.describe_job(job)
            self.selection.info.job_data(job, 24)
            self.selection.info.unpack_job(job, self.selection.info.pack_job(job))
            self.selection.info.copy(job, self.theatre.job())
            self.selection.get_info(0, job)
        elif way == 4:
            self.selection.update_node_state(self.theatre.nodes[0])
            self.selection.update_node_config(0)
            self.selection.reconfigure(self.selection.parameters)
        elif way == 5:
            request = ReservationRequest("r", 1.0, 2.0, core_cnt=self.chance.choice([0, 1]))
            self.selection.resv_test(request, self.theatre.nodes.bitmap([1, 2]), self.theatre.nodes.core_bitmap({1: 1}))
        else:
            job.job_state = COMPLETING
            self.selection.job_fini(job)
            self.selection.released(job)
            self.selection.forget(job)
            del self.held[job]
            self.stopped.discard(job)

    def examine(self) -> None:
        """Of what the host gave, nobody has what another has; ledger and records say the same."""
        for job, (cores, _, _) in self.held.items():
            assert job.job_resrcs is not None
            assert frozenset(job.job_resrcs.core_bitmap.search(1)) == cores
            assert (job.start_time, job.job_state, job.node_bitmap) == (0.0, RUNNING, job.job_resrcs.node_bitmap)
        busy: dict[int, list[int]] = {}
        devices: list[tuple[int, str]] = []
        for job, (cores, keys, most) in self.held.items():
            devices += keys
            for core in () if job in self.stopped else cores:
                busy.setdefault(core, []).append(most)
        assert len(devices) == len(set(devices))
        assert all(len(most) <= min(most) for most in busy.values())
        assert set(self.selection.ledger.busy.search(1)) == busy.keys()
        assert set(self.selection.ledger.jobs) == self.held.keys()


@pytest.mark.parametrize("parameters", WAYS, ids=lambda one: one.over_subscribe)
@pytest.mark.parametrize("level", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_host_lives_with_a_plugin_that_answers_anything(
    tmp_path: Path, parameters: Parameters, level: float, seed: int
) -> None:
    theatre = stage(tmp_path, MIND + FUNCTIONS, "3*1s:2c:1t,mem=1G,gpu=2", parameters=parameters)
    mind: Any = theatre.plugin.module
    mind.chance.seed(seed)
    mind.level = 0.0
    theatre.selection.start("/nowhere", now=1.0)
    mind.level = level
    chaos = Chaos(theatre, seed)
    for _ in range(300):
        chaos.chance.choice([chaos.start, chaos.change])()
        chaos.examine()
    theatre.selection.save("/nowhere")
    jobs = list(chaos.held)
    for job in jobs:
        job.job_state = SUSPENDED if job in chaos.stopped else RUNNING
    with contextlib.suppress(SelectionFailed):
        theatre.selection.start("/nowhere", jobs, now=2.0)
    for job in jobs:
        theatre.selection.forget(job)
    theatre.selection.end()
    assert theatre.selection.ledger.is_empty()
    assert all("\n" not in line and line.startswith("plugin select/actor: ") for line in theatre.told)
    assert len(theatre.told) == len({line.split(": ")[1] + line for line in theatre.told})
