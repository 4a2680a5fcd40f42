"""Checks of a job's requests, at submission and at each later change. In the daemon and in planning commands."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from nodectl.model.states import PENDING
from nodectl.model.words import duration
from nodectl.scheduler import expansion
from nodectl.scheduler.book import Book
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.limits import given
from nodectl.scheduler.policy import NORMAL, Policy
from nodectl.scheduler.reservation import Reservations
from nodectl.selection.answers import PLUGIN, Choice
from nodectl.selection.modes import SELECT_MODE_TEST_ONLY
from nodectl.selection.records import JobRecord

MOST_NICE = 2_147_480_000
_RESOURCES = frozenset({"ntasks", "cpus_per_task", "mem", "demand"})
# What a job has of `demand`, the description of the changed request.
_DEMANDED = ("num_tasks", "cpus_per_task", "min_cpus", "min_nodes", "max_nodes", "pn_min_cpus", "overcommit", "whole",
             "req_nodes", "exc_nodes", "req_node_bitmap", "exc_node_bitmap", "gres", "layout", "argv",
             "_request")  # fmt: skip
_PLAIN = ("time_limit", "nice", "name", "comment", "qos")
_DETAILS = {"begin": "begin_time", "deadline": "deadline", "reservation": "reservation"}
_LIMITED = frozenset({"time_limit", "begin", "deadline", "qos"})  # what `prepare` looks at
_ONLY_WAITING = _RESOURCES | {"begin", "deadline", "dependency", "reservation", "qos", "nice", "priority"}


def prepare(job: JobRecord, policy: Policy, now: float) -> None:
    """Fill in the defaults of a job. Raises NotAdmitted for requests outside of the queue's policy."""
    job.qos = job.qos or NORMAL
    qos = policy.qos.get(job.qos)
    if qos is None or (qos.users and job.user_id and job.user_name not in qos.users):
        raise NotAdmitted(f"Invalid qos specification: {job.qos}", "qos")
    job.time_limit = job.time_limit or policy.default_time
    job.submit_time = job.submit_time or now
    longest = qos.max_time or policy.max_time
    if longest and job.user_id and not 0 < job.time_limit <= longest:
        if job.time_limit:
            raise NotAdmitted(
                f"Requested time limit is invalid: {duration(longest)} is the longest (PartitionTimeLimit)"
            )
        job.time_limit = longest
    deadline = job.details.deadline
    if deadline and max(now, job.details.begin_time) + job.time_limit > deadline:
        raise NotAdmitted("Incorrect or missing deadline: the job cannot end by then")


def possible(job: JobRecord, book: Book, now: float) -> None:
    """Check the job against empty nodes, and the resources it would be given (whole cores) against its user's limits.

    Raises NotAdmitted where a check fails. A plugin that fails proves nothing.
    """
    found = book.selection.job_test(job, SELECT_MODE_TEST_ONLY, now=now)
    if isinstance(found, Choice):
        demand = given(found.resources)
        book.accounts.admit_demand(job, demand, "would be given")
        book.week.admit(job, demand, "would use")
    elif found.kind != PLUGIN:
        raise NotAdmitted(found.reason, found.subject or "machine")


class Update:
    """A change of a job, tried on a copy and then made."""

    def __init__(
        self, book: Book, reservations: Reservations, job: JobRecord, changed: Mapping[str, Any], *, is_admin: bool
    ) -> None:
        self._book = book
        self._reservations = reservations
        self._job = job
        self._changed = dict(changed)
        self._is_admin = is_admin

    def make(self, now: float) -> None:
        """Make the whole change or none of it. Raises NotAdmitted."""
        job, changed = self._job, self._changed
        self._permitted()
        after = copy(job)
        after.details = copy(job.details)
        for name in _PLAIN:
            if name in changed:
                setattr(after, name, changed[name])
        for name, field in _DETAILS.items():
            if name in changed:
                setattr(after.details, field, changed[name])
        if "priority" in changed:
            after.direct_priority = changed["priority"]
        self._resources(after)
        if "qos" in changed or (_LIMITED & changed.keys() and not self._is_admin):
            prepare(after, self._book.policy, job.start_time if job.is_active else now)
        if job.job_state == PENDING:
            self._reservations.admit(after)
            if _RESOURCES & changed.keys():
                possible(after, self._book, now)
        if "dependency" in changed:
            expansion.admit(self._book, job, changed["dependency"])
            self._book.waits.want(job, changed["dependency"])
        self._take_over(after, now)

    def _permitted(self) -> None:
        job, changed = self._job, self._changed
        unknown = changed.keys() - {*_PLAIN, *_DETAILS, *_RESOURCES, "dependency", "priority"}
        if unknown:
            raise NotAdmitted(f"{sorted(unknown)[0]} cannot be changed")
        late = _ONLY_WAITING & changed.keys()
        if job.job_state != PENDING and late:
            raise NotAdmitted(f"Job {job.job_id} is no longer pending execution: {sorted(late)[0]} cannot be changed")
        if "nice" in changed and not -MOST_NICE <= changed["nice"] <= MOST_NICE:
            raise NotAdmitted(f"Invalid nice value {changed['nice']}")
        if self._is_admin:
            return
        if "priority" in changed:
            raise NotAdmitted("Access denied: an administrator sets the priority of jobs")
        if changed.get("nice", 0) < min(job.nice, 0):
            raise NotAdmitted("Access denied: an administrator makes jobs less nice")
        limit = changed.get("time_limit")
        if limit is not None and job.time_limit and not 0 < limit <= job.time_limit:
            raise NotAdmitted("Access denied: an administrator raises time limits")

    def _resources(self, after: JobRecord) -> None:
        changed, details = self._changed, after.details
        if "ntasks" in changed or "cpus_per_task" in changed:
            details.num_tasks = changed.get("ntasks", details.num_tasks)
            details.cpus_per_task = changed.get("cpus_per_task", details.cpus_per_task)
            if details.num_tasks < 1 or details.cpus_per_task < 1:
                raise NotAdmitted("Invalid number of tasks or of CPUs")
            cpus = 1 if details.overcommit else details.num_tasks * details.cpus_per_task
            details.min_cpus = max(cpus, details.min_nodes, details.pn_min_cpus)
            for option, value in (("ntasks", details.num_tasks), ("cpus_per_task", details.cpus_per_task)):
                if option in changed:
                    details.layout = {**details.layout, option: str(value)}
            details._request = None
        if "demand" in changed:
            for name in _DEMANDED:
                setattr(details, name, getattr(changed["demand"], name))
            if changed["demand"].share_res is not None:  # else what the job's options say
                details.share_res = changed["demand"].share_res
        details.min_cpus = max(details.min_cpus, details.least_cpus)
        if "mem" in changed:
            if changed["mem"] < 0:
                raise NotAdmitted("Invalid memory")
            details.pn_min_memory, details.mem_per_cpu = changed["mem"], 0

    def _take_over(self, after: JobRecord, now: float) -> None:
        job, accounts = self._job, self._book.accounts
        counted_anew = job.job_state == PENDING and after.qos != job.qos
        if counted_anew:
            accounts.gone(job)
        renamed = after.name != job.name
        if renamed:
            self._book.waits.rename(job, after.name)
        after.details.dependency = job.details.dependency
        for name in (*_PLAIN, "direct_priority"):
            setattr(job, name, getattr(after, name))
        job.details = after.details
        if counted_anew:
            accounts.submitted(job)
        if job.is_active:
            job.end_time = self._book.expected_end(job, now)
            self._book.version += 1
