"""The change of what a waiting batch job was submitted with: CPUs, devices, the script. For UpdateJob.

Whoever changes it decides what runs as the job's user, so it is that user or root, and no admin. The job is described
anew from its request with the changed fields, by the rules of a submission: with the rights of the one who changes it,
and at the job's level of confinement, which must not be below the caller's. Memory is no part of it: UpdateJob changes
the memory of the job's record alone.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nodectl.model.states import PENDING
from nodectl.model.wire.dispatch import Call, Refused, invalid
from nodectl.model.wire.names import WRAP, WRAPPED
from nodectl.placement.binding import options
from nodectl.selection.records import BATCH, JobDetails, JobRecord
from nodectl.service.daemon.controller.job_names import name_of
from nodectl.service.daemon.controller.job_request import told
from nodectl.service.daemon.controller.table import JobTable, text_of
from nodectl.service.daemon.history.batch_text import BatchText, PackedText, packing, unpacking
from nodectl.service.daemon.methods.job_calls import JobCalls

_MERGED = frozenset({"layout", "environment"})  # changed member by member
CHANGEABLE = _MERGED | {"ntasks", "cpus_per_task", "argv"}
"""The fields of a request that may be changed."""


class Rewritten(NamedTuple):
    """The job's new description, the text with which the job starts, and the text that this one replaces."""

    details: JobDetails
    text: PackedText
    old: PackedText


def checked_script(written: str, most: int) -> bytes:
    """Return a script as bytes after a check. Raises Refused. `most`: the key max_script_size."""
    script = written.encode("utf-8", "surrogateescape")
    if len(script) > most:
        raise invalid("script", f"it has {len(script)} bytes: max_script_size = {most}")
    if not script.startswith(b"#!"):
        raise invalid("script", "it does not begin with #! and the path of an interpreter, as #!/bin/sh")
    if script.startswith((b"#!\n", b"#! \n")) or b"\r" in script.partition(b"\n")[0]:
        raise invalid("script", "its first line names no interpreter, or ends as lines of DOS do")
    return script


def shown_command(argv: list[str], script: bytes) -> tuple[str, ...]:
    """Return what is shown as the command of a batch job: name and arguments of the script, or the line of --wrap."""
    if argv == [WRAP] and script.startswith(WRAPPED.encode()):
        argv = [WRAP, script[len(WRAPPED) :].decode("utf-8", "surrogateescape").strip("\n")]
    return tuple(told(argv))


async def rewritten(calls: JobCalls, call: Call, job: JobRecord) -> Rewritten:
    """Return the description and text of a waiting job with the changes of the call. Raises Refused.

    The event loop serves other calls meanwhile: `check_unchanged` comes before the text is put in place.
    """
    if call.peer.uid not in (0, job.user_id):
        words = "its owner and root alone change script and request, which run as the owner"
        raise Refused("NotPermitted", f"job {name_of(job)} is not yours: {words}")
    table = calls.controller.table
    packed = table.store.batch(text_of(job))
    if job.held_by != BATCH or packed is None:
        raise Refused("WrongState", f"job {name_of(job)} is no batch job")
    text = await calls.work().through(unpacking(packed))
    changed: Mapping[str, Any] = call.parameters.get("request", {})
    if unknown := changed.keys() - CHANGEABLE:
        raise invalid("request", f"{sorted(unknown)[0]} of a job cannot be changed")
    old = text.request["request"]
    merged = {}
    for name in _MERGED & changed.keys():
        if not isinstance(changed[name], dict):
            raise invalid("request", f"{name} is no object")
        before = old.get(name, {})
        merged[name] = {**before, **changed[name]} if name == "environment" else options.changed(before, changed[name])
    request = {**old, **changed, **merged}
    script, most = text.script, calls.controller.config.max_script_size
    if "script" in call.parameters:
        script = checked_script(str(call.parameters["script"]), most)
    caller = call.peer.uid or int(text.request["caller"])
    details = await calls.details_of(request, caller, calls.level_of(call, request, str(text.request["level"])))
    details.argv = shown_command(list(request["argv"]), script)
    new = await calls.work().through(packing(BatchText(text.uid, {**text.request, "request": request}, script)))
    return Rewritten(details, new, packed)


def check_waits(table: JobTable, job: JobRecord) -> None:
    """Raise Refused unless the job waits, and no task of its array is a job of its own.

    Such a task would have the new text, with CPUs and devices for the old one.
    """
    if job.job_state != PENDING:
        raise Refused("WrongState", f"job {name_of(job)} is {job.job_state}: it does not wait any more")
    if (task := table.task_apart(job)) is not None:
        words = f"script and request are the whole array's: {name_of(task)} is a task of its own"
        raise Refused("WrongState", words)


def check_unchanged(table: JobTable, job: JobRecord, new: Rewritten) -> None:
    """Raise Refused unless the whole job waits, with the text from which the new one was made, and has room for it."""
    check_waits(table, job)
    if table.store.batch(text_of(job)) != new.old:
        raise Refused("WrongState", f"job {name_of(job)} is as another call has just changed it: try again")
    table.check_bytes(job.user_id, new.text.size - new.old.size)
