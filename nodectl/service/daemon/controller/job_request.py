"""Make the record of a job from a client's request: how many CPUs, how much memory, which devices, when, which order.

The daemon does this for each job, including the jobs that `nodectl run` makes. The request has been checked like that
of a step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nodectl.model import notice
from nodectl.model.step import Step
from nodectl.model.warning import warning_of
from nodectl.model.wire.dispatch import Refused, invalid, shaped
from nodectl.placement.binding.devices import wanted
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import DEVICES
from nodectl.placement.binding.request import LayoutRequest
from nodectl.selection.answers import NOT_AVAILABLE
from nodectl.selection.records import BATCH, RUN, JobDetails, JobRecord
from nodectl.service.daemon.controller.options import JOB_OPTIONS

_MOST_TOLD = 1024  # characters of a command
_OPEN_MODES = ("", "append", "truncate")
USER, ADMIN = "user", "admin"


class Machine(NamedTuple):
    """The bounds of a job on this machine: the most CPUs of a job, and the name of the partition."""

    cpus: int
    partition: str


def checked_options(options: object) -> Mapping[str, object]:
    """Return `JobOptions` after a check of the shape. Raises Refused."""
    return shaped(options, JOB_OPTIONS)


def job_of(
    step: Step, asked: LayoutRequest, machine: Machine, request: Mapping[str, object], *, held_by: str
) -> JobRecord:
    """Return the record of a new job made for a step. Raises Refused.

    `asked` holds the step's layout options, parsed.
    """
    return JobRecord(
        0,
        step.uid,
        step.gid,
        step.user_name,
        step.name,
        machine.partition,
        held_by=held_by,
        time_limit=step.time_limit,
        submit_time=step.submitted,
        account=str(request.get("account", "")),
        details=_details(step, asked, machine, held_by, int(str(request.get("mem_per_cpu", 0)))),
    )


def _details(step: Step, asked: LayoutRequest, machine: Machine, held_by: str, memory_per_cpu: int) -> JobDetails:
    cpus = step.ntasks * step.cpus_per_task
    if cpus > machine.cpus and held_by != RUN and not asked.overcommit:
        reason = f"{NOT_AVAILABLE}: {cpus} CPUs are more than the {machine.cpus} of this machine"
        raise Refused("LaunchRefused", f"{reason}; --overcommit has tasks share them", exit_status=1)
    crowded = cpus > machine.cpus and not asked.overcommit  # more tasks than CPUs: all of the machine, as ever
    nodes = asked.nodes or (1, 0)
    return JobDetails(
        num_tasks=step.ntasks,
        cpus_per_task=step.cpus_per_task,
        min_cpus=machine.cpus if crowded else 1 if asked.overcommit else max(cpus, asked.mincpus or 0),
        min_nodes=nodes[0],
        max_nodes=nodes[1],
        pn_min_cpus=asked.mincpus or 0,
        pn_min_memory=0 if memory_per_cpu else step.memory,
        mem_per_cpu=memory_per_cpu,
        overcommit=asked.overcommit or crowded,
        share_res=False if asked.exclusive else None,
        whole=crowded,
        req_nodes=asked.nodelist,
        exc_nodes=asked.exclude,
        gres=_gres(step),
        layout={name: str(value) for name, value in step.layout.items() if name != "hostfile"},
        requeue=held_by == BATCH,
        argv=tuple(told(step.argv)),
        work_dir=step.cwd,
        std_in=step.stdin,
        std_out=step.stdout,
        std_err=step.stderr,
        _request=asked,
    )


def _gres(step: Step) -> dict[str, int]:
    """Return the number of devices by name or name:type. Raises Refused."""
    if DEVICES.isdisjoint(step.layout):
        return {}
    try:
        return wanted({name: str(value) for name, value in step.layout.items()}, step.ntasks).as_gres()
    except NoLayout as error:
        raise invalid("layout", error.reason) from None


def told(argv: Sequence[str]) -> list[str]:
    """Return as much of a command as the record of a job keeps."""
    words: list[str] = []
    room = _MOST_TOLD
    for word in argv:
        if len(word) > room:
            return [*words, f"{word[:room]}..."]
        words.append(word)
        room -= len(word) + 1
    return words


def apply_options(job: JobRecord, options: Mapping[str, object], *, is_admin: bool) -> None:
    """Write the options of a waiting job into the job's record. Raises Refused."""
    details, given = job.details, dict(options)
    if "priority" in given and not is_admin:
        raise invalid("priority", "only an admin gives jobs a priority")
    if int(str(given.get("nice", 0))) < 0 and not is_admin:
        raise invalid("nice", "only an admin gives jobs a negative one")
    if str(given.get("open_mode", "")) not in _OPEN_MODES:
        raise invalid("open_mode", "append or truncate")
    job.direct_priority = int(str(given.get("priority", 0)))
    job.nice = int(str(given.get("nice", 0)))
    job.held = (ADMIN if is_admin and job.user_id != 0 else USER) if given.get("hold") else ""
    job.qos = str(given.get("qos") or job.qos)
    job.comment = str(given.get("comment", ""))
    details.begin_time = float(str(given.get("begin", 0)))
    details.deadline = float(str(given.get("deadline", 0)))
    details.dependency = str(given.get("dependency", ""))
    details.reservation = str(given.get("reservation", ""))
    details.requeue = bool(given.get("requeue", details.requeue))
    details.open_append = given.get("open_mode") == "append"
    details.contiguous = bool(given.get("contiguous"))
    details.least_cpus = int(str(given.get("min_cpus", 0)))
    details.min_cpus = max(details.min_cpus, details.least_cpus)
    details.features = tuple(filter(None, str(given.get("constraint", "")).split("&")))
    details.kill_invalid_dep = bool(given.get("kill_on_invalid_dep"))
    details.signal = _warning(str(given.get("signal", "")))
    details.notices = _notices(job, given)
    if given.get("exclusive"):
        details.share_res = False
    elif given.get("oversubscribe"):
        details.share_res = True
    if details.deadline and details.deadline <= time.time():
        raise invalid("deadline", "it is in the past")


def _notices(job: JobRecord, given: Mapping[str, object]) -> dict[str, str]:
    """Return `JobDetails.notices`, still without the level of confinement. Raises Refused."""
    found: dict[str, str] = {}
    try:
        if types := notice.mail_types(str(given.get("mail_type") or "NONE")):
            found = {"types": ",".join(types), "user": str(given.get("mail_user") or job.user_name)}
            if not given.get("mail_user") and not notice.is_address(job.user_name):
                raise ValueError(f"no mail reaches the user's name {job.user_name[:40]!r}: give an address, name@host")
            notice.addresses(found["user"])
    except ValueError as error:
        raise invalid("mail_user" if found else "mail_type", str(error)) from None
    command = str(given.get("notify", ""))
    if "\0" in command:
        raise invalid("notify", "a line of shell has no NUL")
    return {**found, "command": command} if command else found


def _warning(text: str) -> str:
    """Return the option --signal in normal form, "" for none. Raises Refused."""
    try:
        return str(warning_of(text)) if text else ""
    except ValueError as error:
        raise invalid("signal", str(error)) from None
