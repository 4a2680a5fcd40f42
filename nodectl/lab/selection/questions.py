"""The questions of `nodectl select check` to a select plugin: the document's flow, and frequent mistakes of authors.

Each question gets a bench of its own and yields findings: (level, words). An answer that the plugin's host rejects
meanwhile is an error too, whatever the question was. `nodectl select check` prints the questions' docstrings.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator

from nodectl.lab.selection.bench import LIMIT, NODE_CPUS, NODE_MIB, NOW, Bench, opened
from nodectl.model.states import SUSPENDED
from nodectl.selection.answers import Choice, Refusal, SelectionFailed
from nodectl.selection.modes import NODE_STATE_DRAIN, SELECT_MODE_TEST_ONLY, SELECT_MODE_WILL_RUN
from nodectl.selection.records import JobRecord, ReservationRequest, StepRecord
from nodectl.spank.inspection.findings import ERROR, WARNING

Finding = tuple[str, str]
_MOST = 100  # jobs of one CPU: more than the table has


def a_small_job(bench: Bench) -> Iterator[Finding]:
    """One CPU of an empty table: possible, at once, and ready."""
    job = bench.job()
    for mode, words in ((SELECT_MODE_TEST_ONLY, "TEST_ONLY"), (SELECT_MODE_WILL_RUN, "WILL_RUN")):
        found = bench.test(job, mode)
        if isinstance(found, Refusal):
            yield ERROR, f"job_test({words}) refuses a job of one CPU on an empty table: {found.reason}"
    if why := bench.begin(job):
        yield ERROR, f"a job of one CPU does not start on an empty table: {why}"
        return
    ready = any(bench.selection.job_ready(job) for _ in range(10))
    if not ready:
        yield WARNING, "job_ready says ten times that a job's nodes are not ready"
    bench.end(job)


def an_impossible_job(bench: Bench) -> Iterator[Finding]:
    """What nodes do not have is refused for good, so that no user waits for it."""
    for job, words in (
        (bench.job(1000), "1000 CPUs of 32"),
        (bench.job(1, pn_min_memory=100 * NODE_MIB), "a hundred times a node's memory"),
        (bench.job(1, gres={"gpu": 50}), "50 devices of 2"),
        (bench.job(1, min_nodes=5), "5 nodes of 4"),
    ):
        if isinstance(bench.test(job, SELECT_MODE_TEST_ONLY), Choice):
            level = ERROR if job.details.min_cpus > 1 else WARNING
            yield level, f"job_test(TEST_ONLY) takes a job of {words}: it would never start"


def the_bits_offered(bench: Bench) -> Iterator[Finding]:
    """It chooses from the nodes that are offered, and takes those that the job requires."""
    for index in range(len(bench.nodes)):
        found = bench.test(bench.job(), nodes=bench.nodes.bitmap([index]))
        if isinstance(found, Refusal) and found.kind != "plugin":
            yield ERROR, f"it places nothing on node {bench.nodes[index].name}, the only one offered: {found.reason}"
    job = bench.job(2, req_nodes=("n3",), min_nodes=2, max_nodes=2)
    found = bench.test(job)
    if isinstance(found, Refusal) and found.kind != "plugin":
        yield ERROR, f"it cannot place a job of two nodes that requires n3: {found.reason}"


def cores_held_for_others(bench: Bench) -> Iterator[Finding]:
    """exc_core_bitmap: cores of reservations are not given to others."""
    every = ~bench.nodes.core_bitmap()
    if isinstance(bench.test(bench.job(), excluded_cores=every), Choice):
        yield ERROR, "it places a job although all cores are excluded (exc_core_bitmap)"
    half = every.copy()
    node = bench.nodes[2]
    half[node.core_offset : node.core_offset + node.cores] = 0
    found = bench.test(bench.job(), excluded_cores=half)
    if isinstance(found, Refusal) and found.kind != "plugin":
        yield WARNING, f"it places nothing where the cores of three nodes are excluded and n3 is free: {found.reason}"


def a_full_table(bench: Bench) -> Iterator[Finding]:
    """It gives nothing twice, says so while all is taken, and still knows what would be possible."""
    jobs = bench.fill(_MOST)
    if len(jobs) >= _MOST:
        yield ERROR, f"{_MOST} jobs of one CPU started on 32 CPUs"
        return
    job = bench.job()
    if isinstance(found := bench.test(job, SELECT_MODE_TEST_ONLY), Refusal):
        yield ERROR, f"job_test(TEST_ONLY) refuses for good what only has to wait: {found.reason}"
    found = bench.test(job, SELECT_MODE_WILL_RUN)
    if isinstance(found, Refusal):
        yield ERROR, f"job_test(WILL_RUN) does not say when a job can run on a full table: {found.reason}"
    elif not NOW < found.start_time <= NOW + LIMIT:
        yield (
            WARNING,
            f"job_test(WILL_RUN) expects a job on a full table {found.start_time - NOW:.0f} s from now (start_time of "
            f"the job record); those that run end after {LIMIT} s",
        )


def memory_and_devices(bench: Bench) -> Iterator[Finding]:
    """Memory and devices are given once, as cores are."""
    large = [bench.job(1, pn_min_memory=NODE_MIB * 3 // 4) for _ in range(6)]
    begun = sum(not bench.begin(job) for job in large)
    if begun > len(bench.nodes):
        yield ERROR, f"{begun} jobs started that need 3/4 of a node's memory each, on {len(bench.nodes)} nodes"
    for job in large[:begun]:
        bench.end(job)
    devices = [bench.job(1, gres={"gpu": 2}) for _ in range(6)]
    for job in devices:
        if not bench.begin(job) and job.job_resrcs is not None and not job.job_resrcs.gres:
            yield WARNING, "a job that asks for two GPUs starts without any: it gives no devices"
            return


def what_has_ended(bench: Bench) -> Iterator[Finding]:
    """job_fini is the plugin's only word of an end: it must not forget it."""
    jobs = bench.fill(_MOST)
    if not jobs or len(jobs) >= _MOST:
        return
    bench.end(jobs.pop())
    again = bench.job()
    if why := bench.begin(again):
        yield ERROR, f"a job ended on a full table (job_fini), and another of its size cannot start: {why}"
    else:
        jobs.append(again)
    for job in jobs:
        bench.end(job)
    if len(after := bench.fill(_MOST)) < len(jobs):
        yield ERROR, f"{len(jobs)} jobs filled the table and have ended (job_fini); now {len(after)} find room"


def preemption(bench: Bench) -> Iterator[Finding]:
    """Of the candidates it may name those that have to go."""
    jobs = bench.fill(_MOST)
    if not jobs or len(jobs) >= _MOST:
        return
    found = bench.test(bench.job(), candidates=jobs)
    if isinstance(found, Choice) and not found.preempted:
        yield ERROR, "on a full table it starts a job, with candidates, and preempts none of them"
    elif isinstance(found, Refusal) and found.kind != "plugin":
        yield WARNING, "it never preempts: on a full table it refuses a job although all others are candidates"


def a_suspended_job(bench: Bench) -> Iterator[Finding]:
    """Its CPUs are others' until it is resumed."""
    jobs = bench.fill(_MOST)
    if not jobs or len(jobs) >= _MOST:
        return
    first = jobs[0]
    if why := bench.selection.job_suspend(first, True):
        yield WARNING, f"a job cannot be suspended: {why}"
        return
    first.job_state = SUSPENDED
    other = bench.job()
    if why := bench.begin(other):
        yield WARNING, f"the CPUs of a suspended job are not given to another (job_suspend): {why}"
    else:
        bench.end(other)
    if why := bench.selection.job_resume(first, True):
        yield ERROR, f"a suspended job whose CPUs are free cannot be resumed: {why}"


def a_drained_node(bench: Bench) -> Iterator[Finding]:
    """Nodes change while it runs."""
    node = bench.nodes[0]
    node.node_state |= NODE_STATE_DRAIN
    if why := bench.selection.update_node_state(node):
        yield WARNING, f"update_node_state fails for a node that is drained: {why}"
    found = bench.test(bench.job())
    if isinstance(found, Refusal) and found.kind != "plugin":
        yield ERROR, f"with one of four nodes drained it places nothing: {found.reason}"
    for index in range(len(bench.nodes)):
        if why := bench.selection.update_node_config(index):
            yield WARNING, f"update_node_config fails: {why}"
            break
    if why := bench.selection.reconfigure(bench.selection.parameters):
        yield WARNING, f"reconfigure fails: {why}"


def steps_and_reservations(bench: Bench) -> Iterator[Finding]:
    """The functions that are called now and then."""
    job = bench.job(2, min_nodes=2, max_nodes=2)
    if not bench.begin(job):
        step = StepRecord(job, 0)
        bench.selection.step_pick_nodes(job, step, 1)
        for killing in (True, False):
            if why := bench.selection.step_finish(step, killing):
                yield WARNING, f"step_finish fails: {why}"
        if why := bench.selection.job_signal(job, 15):
            yield WARNING, f"job_signal fails: {why}"
        if why := bench.selection.job_mem_confirm(job):
            yield WARNING, f"job_mem_confirm fails: {why}"
        if bench.selection.expand_allow():
            other = bench.job()
            if not bench.begin(other) and (why := bench.selection.expand(other, job)):
                yield WARNING, f"job_expand_allow says yes, and job_expand fails: {why}"
    if bench.has("resv_test"):
        request = ReservationRequest("r1", NOW, NOW + LIMIT, node_cnt=1)
        found = bench.selection.resv_test(request, ~bench.nodes.bitmap(), now=NOW)
        if isinstance(found, Refusal) and found.kind != "plugin":
            yield WARNING, f"resv_test finds no node of four for a reservation: {found.reason}"


def its_own_objects(bench: Bench) -> Iterator[Finding]:
    """select_jobinfo and select_nodeinfo survive being packed and unpacked."""
    job = bench.job()
    if job.select_jobinfo is None:
        return
    packed = bench.selection.info.pack_job(job)
    if packed:
        other = bench.job()
        bench.selection.info.unpack_job(other, packed)
        if other.select_jobinfo is None:
            yield ERROR, "select_jobinfo_unpack makes nothing of what select_jobinfo_pack wrote"
        elif bench.selection.info.pack_job(other) != packed:
            yield ERROR, "a select_jobinfo that was packed and unpacked packs to other bytes"


QUESTIONS: tuple[Callable[[Bench], Iterator[Finding]], ...] = (
    a_small_job, an_impossible_job, the_bits_offered, cores_held_for_others, a_full_table, memory_and_devices,
    what_has_ended, preemption, a_suspended_job, a_drained_node, steps_and_reservations, its_own_objects,
)  # fmt: skip


def restart(name: str) -> Iterator[Finding]:
    """What it saves it finds again; what is no state of its own it refuses. Raises PluginRefused, SelectionFailed."""
    with tempfile.TemporaryDirectory(prefix="nodectl-select-") as directory:
        with opened(name) as bench:
            jobs = bench.fill(NODE_CPUS)
            bench.selection.save(directory)
            yield from ((ERROR, fault) for fault in bench.selection.faults)
            rest = len(bench.fill(_MOST))
        yield from _started_again(name, directory, jobs, rest)
        files = [os.path.join(directory, file) for file in sorted(os.listdir(directory))]
        for file in filter(os.path.isfile, files):
            for content in (b"", os.urandom(64)):
                with open(file, "wb") as state:
                    state.write(content)
                if _starts(name, directory, jobs):
                    words = "that is empty" if not content else "of random bytes"
                    yield WARNING, f"state_restore takes a file {words}: it should verify a magic number"


def _started_again(name: str, directory: str, jobs: list[JobRecord], rest: int) -> Iterator[Finding]:
    try:
        with opened(name, state_dir=directory, jobs=tuple(jobs)) as bench:
            # Job ids go on where they were.
            bench.skip(len(jobs))
            found = len(bench.fill(_MOST))
            faults = list(bench.selection.faults)
    except SelectionFailed as failed:
        yield ERROR, f"it does not start again with what it saved and {len(jobs)} jobs that run: {failed}"
        return
    yield from ((ERROR, f"after a restart: {fault}") for fault in faults)
    if found != rest and not faults:
        yield ERROR, f"{rest} jobs found room beside {len(jobs)} that run; after a restart {found} do"


def _starts(name: str, directory: str, jobs: list[JobRecord]) -> bool:
    try:
        with opened(name, state_dir=directory, jobs=tuple(jobs)):
            return True
    except SelectionFailed:
        return False


def asked(name: str, question: Callable[[Bench], Iterator[Finding]]) -> Iterator[Finding]:
    """Ask a question. Yield the findings and the rejected answers. Raises PluginRefused, SelectionFailed."""
    with opened(name) as bench:
        yield from question(bench)
        yield from ((ERROR, fault) for fault in dict.fromkeys(bench.selection.faults))
