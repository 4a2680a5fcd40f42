"""The account of who holds what: nothing is given twice, and everything comes back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nodectl.lab.simulation.described import nodes_of
from nodectl.selection.ledger import Ledger
from nodectl.selection.records import JobDetails, JobRecord, JobResources
from nodectl.selection.slurmctld import Parameters

SPEC = "3*1s:4c:2t,mem=8G,gpu=2,name=a;2s:2c:1t,mem=4G,name=b"
TABLE = nodes_of(SPEC)
CORES = TABLE.core_count
OFFSETS = {node.index: (node.core_offset, node.core_offset + node.cores) for node in TABLE}


def held(cores: set[int], memory: dict[int, int], gres: dict[int, tuple[str, ...]]) -> JobResources:
    bits = TABLE.core_bitmap()
    for core in cores:
        bits[core] = 1
    nodes = {index for index, (low, high) in OFFSETS.items() if any(low <= core < high for core in cores)}
    return JobResources(
        TABLE.bitmap(nodes),
        bits,
        dict.fromkeys(nodes, 1),
        {node: memory.get(node, 0) for node in nodes},
        {},
        {node: gres[node] for node in nodes if node in gres},
    )


RESOURCES = st.builds(
    held,
    st.sets(st.integers(0, CORES - 1), min_size=1, max_size=6),
    st.dictionaries(st.integers(0, 3), st.integers(0, 6000)),
    st.dictionaries(st.integers(0, 2), st.sampled_from([("gpu:0",), ("gpu:1",), ("gpu:0", "gpu:1")])),
)


class Books(RuleBasedStateMachine):
    """The ledger beside a plain list of who holds what."""

    @initialize(way=st.sampled_from([("no", 1), ("yes", 2), ("force", 3)]))
    def begin(self, way: tuple[str, int]) -> None:
        self.parameters = Parameters(over_subscribe=way[0], share_count=way[1])
        self.ledger = Ledger(TABLE, self.parameters)
        self.jobs: dict[JobRecord, bool] = {}
        self.number = 0

    def fits(self, job: JobRecord, wanted: JobResources) -> bool:
        most = self.parameters.sharers(job)
        for core in wanted.core_bitmap.search(1):
            here = [
                one for one, runs in self.jobs.items() if runs and self.of(one).core_bitmap[core] and one is not job
            ]
            if here and (len(here) + 1 > most or any(self.parameters.sharers(one) == 1 for one in here)):
                return False
        for node in TABLE:
            others = [self.of(one) for one in self.jobs if one is not job]
            memory = sum(one.memory.get(node.index, 0) for one in others)
            if wanted.memory.get(node.index, 0) > node.real_memory - memory:
                return False
            taken = {key for one in others for key in one.gres.get(node.index, ())}
            if taken.intersection(wanted.gres.get(node.index, ())):
                return False
        return True

    def of(self, job: JobRecord) -> JobResources:
        assert job.job_resrcs is not None
        return job.job_resrcs

    @rule(resources=RESOURCES, shares=st.booleans())
    def arrives(self, resources: JobResources, shares: bool) -> None:
        self.number += 1
        job = JobRecord(self.number, details=JobDetails(share_res=shares), job_resrcs=resources)
        conflict = self.ledger.conflicts(job)
        assert (not conflict) == self.fits(job, resources), conflict
        if not conflict:
            self.ledger.take(job)
            self.jobs[job] = True

    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        if self.jobs:
            job = data.draw(st.sampled_from(list(self.jobs)))
            self.ledger.give(job)
            self.ledger.give(job)
            del self.jobs[job]

    @rule(data=st.data())
    def stops_or_goes_on(self, data: st.DataObject) -> None:
        if not self.jobs:
            return
        job = data.draw(st.sampled_from(list(self.jobs)))
        if self.jobs[job]:
            assert not self.ledger.conflicts(job)
            self.ledger.stop(job)
            self.jobs[job] = False
        elif not self.ledger.conflicts(job):
            assert self.fits(job, self.of(job))
            self.ledger.go_on(job)
            self.jobs[job] = True
        else:
            assert not self.fits(job, self.of(job))

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "ledger"):
            return
        busy = TABLE.core_bitmap()
        for job, runs in self.jobs.items():
            if runs:
                busy |= self.of(job).core_bitmap
        assert self.ledger.busy == busy
        assert self.ledger.is_empty() == (not self.jobs)
        for node in TABLE:
            used = sum(self.of(job).memory.get(node.index, 0) for job in self.jobs)
            assert self.ledger.memory_used(node.index) == used
            assert self.ledger.memory_free(node.index) == node.real_memory - used


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBooks = Books.TestCase


@given(RESOURCES)
def test_what_is_said_names_the_core_or_the_device(resources: JobResources) -> None:
    ledger = Ledger(TABLE, Parameters())
    job, other = JobRecord(1, job_resrcs=resources), JobRecord(2, job_resrcs=resources)
    ledger.take(job)
    first = resources.core_bitmap.find(1)
    node = next(node for node in TABLE if OFFSETS[node.index][0] <= first < OFFSETS[node.index][1])
    assert ledger.conflicts(other) == f"core {first - node.core_offset} of node {node.name} is another job's"
    ledger.stop(job)
    for index, keys in resources.gres.items():
        for key in keys:
            assert ledger.devices_used(index)[key] is job


def test_memory_that_nobody_counts_is_without_bound() -> None:
    ledger = Ledger(TABLE, Parameters(tracks_memory=False))
    job = JobRecord(1, job_resrcs=held({0}, {0: 1 << 40}, {}))
    assert not ledger.conflicts(job)
