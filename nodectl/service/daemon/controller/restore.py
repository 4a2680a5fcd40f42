"""Restore the queue left by an earlier daemon: which jobs wait, which run, and which have ended since.

Runs once at a daemon's start, after the running steps have been taken over (`daemon/recovery/sweep.py`). The event loop
continues meanwhile: reading the queue may take seconds, and steps may end. The controller keeps those ends until it
begins. A job whose row says that it runs, but which has neither a step nor the record of one, has never begun: it waits
again. If the machine has been booted since, the job may have begun, and the machine has ended it.
"""

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple

from nodectl.model.reasons import end_reason
from nodectl.model.states import COMPLETED, COMPLETING, ENDED, NODE_FAIL, PENDING, REQUEUED, RUNNING, SUSPENDED
from nodectl.model.step import Step
from nodectl.model.wire.dispatch import Refused
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.happened import Outcome
from nodectl.scheduler.policy import Policy
from nodectl.scheduler.reservation import repeat_of
from nodectl.scheduler.scheduler import Scheduler
from nodectl.selection import known_nodes
from nodectl.selection.host import Selection
from nodectl.selection.records import (
    BATCH,
    JobDetails,
    JobRecord,
    JobResources,
    NodeTable,
    ReservationRequest,
    resources_from_json,
)
from nodectl.service.daemon.admission.share import FIRST_STEP
from nodectl.service.daemon.admission.slices import Slices, Work
from nodectl.service.daemon.controller.controller import Controller, given_to
from nodectl.service.daemon.controller.job_request import told
from nodectl.service.daemon.history.decoding import malformed, readable
from nodectl.service.daemon.history.job_store import Kept
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.steps.live import LiveStep

_RESET = "the machine was reset, or switched off, while the job ran"


class _Found(NamedTuple):
    """The jobs found: `jobs` have not ended, `ended` have ended since, each with state and reason."""

    jobs: list[JobRecord]
    ended: list[tuple[JobRecord, str, str]]


async def restore(controller: Controller, selection: Selection, boot: str) -> None:
    """Create the controller's scheduler with all restored jobs and begin the queue. Raises
    selection.answers.SelectionFailed.
    """
    now = time.time()
    store = controller.table.store
    store.drop_dead_nodes()
    controller.restore_drain(selection.nodes[0])
    work = Work(Slices())
    found = await work.through(_jobs(controller, selection.nodes, boot))
    active = [job for job in found.jobs if job.is_active]
    selection.start(controller.config.state_dir, active, now)
    for index in known_nodes.changed(controller.config.state_dir, selection.nodes):
        selection.update_node_config(index)
    for job in active:
        selection.job_mem_confirm(job)
    scheduler = Scheduler(
        selection,
        Policy.of(controller.config),
        usage=store.usage(),
        week=store.week(),
        reservations=_reservations(controller, now),
        new_id=lambda: _new_id(controller.parts.further_steps),
        outcome=lambda job_id, task: _outcome(controller, job_id, task),
    )
    await work.through(scheduler.restoring(found.jobs, now))
    await work.through(controller.table.restoring(scheduler.jobs, scheduler.waiting_tasks))
    for job, state, reason in found.ended:
        controller.parts.notices.begun(job)
        job.job_state, job.state_desc, job.end_time = state, reason, now
        job.state_reason = end_reason(state, job.exit_code)
        controller.table.ended(job)
    controller.parts.spool.sweep({job.job_id for job in active})
    for job in found.jobs:
        if job.held_by != BATCH and controller.parts.registry.first(job.job_id) is None:
            controller.leases.begin(job.job_id)
    controller.begin(scheduler, selection)


def _new_id(numbers: FurtherSteps) -> int:
    """Return the number of a job split off an array. Raises NotAdmitted, as expected by the scheduler."""
    try:
        return numbers.new_job()
    except Refused as error:
        raise NotAdmitted(str(error)) from None


def _reservations(controller: Controller, now: float) -> Iterator[ReservationRequest]:
    """Yield the current reservations, and drop the expired reservations from the store."""
    store = controller.table.store
    for made in readable(store.reservations(), _reservation):
        if made.end_time > now or repeat_of(made):
            yield made
        else:
            store.drop_reservation(made.name)


def _reservation(record: Mapping[str, Any]) -> ReservationRequest:
    """Make a reservation of a record. Raises Malformed."""
    try:
        return ReservationRequest(**{**record, "users": tuple(record["users"]), "flags": tuple(record["flags"])})
    except (KeyError, TypeError) as error:
        raise malformed(f"reservation {record.get('name')}", repr(error)) from None


def _jobs(controller: Controller, nodes: NodeTable, boot: str) -> Generator[None, None, _Found]:
    registry = controller.parts.registry
    found = _Found([], [])
    known = set()
    running = [live for live in registry.unfinished() if live.step.is_first]  # including the steps that end meanwhile
    for kept in controller.table.store.waiting():
        yield
        job = kept.record
        if job.job_id in known:
            continue
        known.add(job.job_id)
        first = registry.first(job.job_id)
        if first is not None and first.step.restart == job.restart_cnt:
            _runs(job, kept, first, nodes, ends=first.key in registry.ending)
            found.jobs.append(job)
        elif job.is_active and not controller.has_early(job.job_id):
            _is_gone(controller, kept, nodes, boot, found)
        else:
            if job.is_active:  # its end was noticed already
                job.job_resrcs = resources_from_json(kept.resources, nodes)
                job.node_bitmap = job.job_resrcs.node_bitmap
            found.jobs.append(job)
    found.jobs.sort(key=lambda job: job.job_id)
    for live in running:
        if live.step.job_id not in known:
            found.jobs.append(_of_step(live, nodes, ends=live.key in registry.ending))
            controller.table.add_unwritten(found.jobs[-1])
    for job in (one for one in found.jobs if one.is_active):
        record = controller.end_of(job)
        if record is not None and record.get("restart", 0) == job.restart_cnt:
            # Since then it uses nothing, however long no daemon ran.
            job.job_state, job.end_time = COMPLETING, float(record.get("ended", job.end_time))
    _keep_given(found.jobs)
    return found


def _keep_given(jobs: list[JobRecord]) -> None:
    """Set each giving job to COMPLETING. While the target lists the giver, the resources move to `given_resrcs`."""
    holders = {job.job_id: job for job in jobs if job.is_active}
    for job in (one for one in jobs if one.given_to and one.is_active):
        job.job_state = COMPLETING
        if job.job_resrcs is not None and not job.job_resrcs.nhosts:
            job.job_resrcs = job.node_bitmap = None  # its end was noticed already, so nothing of it runs
        target = holders.get(job.given_to)
        if target is not None and any(number == job.job_id for number, _ in target.joining):
            job.given_resrcs, job.job_resrcs, job.node_bitmap, job.nodes = job.job_resrcs, None, None, ""


def _runs(job: JobRecord, kept: Kept, first: LiveStep, nodes: NodeTable, *, ends: bool) -> None:
    held = resources_from_json(kept.resources, nodes) if kept.resources else None
    job.job_resrcs = _held_by_step(first.step, nodes) if held is None or not held.nhosts else held
    job.node_bitmap = job.job_resrcs.node_bitmap
    if ends:
        job.job_state = COMPLETING
    elif job.job_state in (PENDING, COMPLETING):
        job.job_state = SUSPENDED if first.suspended else RUNNING
        job.suspended_by_owner = first.suspended_by_owner


def _is_gone(controller: Controller, kept: Kept, nodes: NodeTable, boot: str, found: _Found) -> None:
    """Decide about an active job without files: the job ends, waits again, or waits for the client's first step."""
    job = kept.record
    record = controller.parts.registry.batch.record(job.job_id, FIRST_STEP[job.held_by])
    if record is not None and record.get("restart", 0) != job.restart_cnt:
        record = None  # of an earlier run
    if job.given_to:
        found.ended.append((job, COMPLETED, given_to(job)))
        return
    lost = record is None or record.get("state") == NODE_FAIL
    if record is not None and job.to_requeue is not None:
        _run_again(controller, job, found)
    elif record is not None and not lost:
        job.exit_code = int(str(record.get("exit_status", 1)))
        found.ended.append((job, str(record["state"]), str(record.get("reason") or "")))
    elif kept.boot == boot and record is None and job.held_by != BATCH:
        job.job_state = RUNNING  # its client has not launched its step yet
        job.job_resrcs = resources_from_json(kept.resources, nodes)
        job.node_bitmap = job.job_resrcs.node_bitmap
        found.jobs.append(job)
    elif kept.boot == boot and record is None:
        _wait_again(job)
        found.jobs.append(job)
    elif job.held_by == BATCH and job.details.requeue:
        _run_again(controller, job, found, NODE_FAIL, _RESET)
    else:
        found.ended.append((job, NODE_FAIL, _RESET))


def _run_again(controller: Controller, job: JobRecord, found: _Found, state: str = REQUEUED, words: str = "") -> None:
    """Keep the ended run in the history, and let the job wait for the next run."""
    job.end_time = time.time()
    controller.table.store.put_run(job, state)
    controller.parts.notices.requeued(job)
    _wait_again(job)
    job.restart_cnt += 1
    job.state_desc = words or job.state_desc
    controller.table.store.put(job)
    found.jobs.append(job)


def _wait_again(job: JobRecord) -> None:
    if job.to_requeue is not None:
        job.held, job.to_requeue = job.to_requeue, None
    job.job_state = PENDING
    job.start_time = job.end_time = job.suspend_time = job.suspended_seconds = 0.0
    job.job_resrcs = job.node_bitmap = None
    job.joining = ()
    job.nodes = ""


def _of_step(live: LiveStep, nodes: NodeTable, *, ends: bool) -> JobRecord:
    """Return the record of a job without a row, made from the job's first step."""
    step = live.step
    held = _held_by_step(step, nodes)
    return JobRecord(
        step.job_id, step.uid, step.gid, step.user_name, step.name, step.partition,
        job_state=COMPLETING if ends else SUSPENDED if live.suspended else RUNNING,
        suspended_by_owner=live.suspended_by_owner,
        held_by=next(word for word, number in FIRST_STEP.items() if number == step.step_id),
        time_limit=step.time_limit, submit_time=step.submitted, eligible_time=step.submitted, start_time=step.submitted,
        restart_cnt=step.restart, nodes=nodes[0].name, node_bitmap=held.node_bitmap, job_resrcs=held,
        details=JobDetails(
            num_tasks=step.ntasks, cpus_per_task=step.cpus_per_task, min_cpus=held.ncpus, requeue=False,
            argv=tuple(told(step.argv)), work_dir=step.cwd, std_in=step.stdin, std_out=step.stdout, std_err=step.stderr,
        ),
    )  # fmt: skip


def _held_by_step(step: Step, nodes: NodeTable) -> JobResources:
    return JobResources(
        nodes.bitmap((0,)),
        nodes.core_bitmap({0: step.allocation}),
        {0: step.allocation.bit_count()},
        {0: step.memory},
        {0: step.ntasks},
        {0: tuple(step.devices)} if step.devices else {},
    )


def _outcome(controller: Controller, job_id: int, task: int | None) -> Outcome | None:
    """Return the outcome of a job or array task after leaving the queue; None while the job or task has not ended."""
    job = controller.table.get(job_id) if task is None else None
    if job is None:
        return controller.table.store.outcome(job_id, task)
    return job.job_state if job.job_state in ENDED else None
