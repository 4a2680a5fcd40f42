"""Requests to the service as generators: each yields calls and receives the answers.

The driver of a generator decides how to wait for a call, and throws a refusal of the service in as Failed.
"""

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from nodectl.client import batch_script
from nodectl.client.api import options, values
from nodectl.client.api.errors import NO_SERVICE
from nodectl.client.api.options import WantedLaunch
from nodectl.client.api.streams import Streams
from nodectl.client.command import Failed
from nodectl.client.job_name import job_of, step_of_task
from nodectl.client.session import NotTaken
from nodectl.client.step_name import step_of
from nodectl.client.surrounding_job import join
from nodectl.client.waiting import told
from nodectl.model.states import BEGUN, IN_QUEUE, PENDING
from nodectl.model.step_number import FIRST
from nodectl.model.wire.names import NODE

_WITHOUT_SERVICE = 300.0  # seconds for which a job's lease outlives the service
_SERVICES = 4  # that may end, one after the other, before one takes a launch
_LOOKS = 0.2  # seconds
_BUSY = f"{NODE}.Busy"


class MethodCall(NamedTuple):
    """A call of a method of org.nodectl.

    `pause`: the number of seconds to wait before the call. `acquires`: the reply names what the caller must give back,
    so the caller receives the reply even if cancelled or interrupted meanwhile.
    """

    method: str
    parameters: Mapping[str, object]
    fds: Sequence[int] = ()
    pause: float = 0.0
    acquires: bool = False


class Reply(NamedTuple):
    """The reply's parameters and descriptors. The receiver owns the descriptors."""

    parameters: Mapping[str, Any]
    fds: Sequence[int]


T = TypeVar("T")
Operation = Generator[MethodCall, Reply, T]
StepName = str | tuple[int, int]


def _which(step: StepName) -> "Operation[Mapping[str, int]]":
    """Return `job` and `step` of "7.0", "7" (the first step), "7_3.batch" (of a task of an array), or (7, 0).

    Raises ValueError.
    """
    if isinstance(step, str) and "_" in step:
        task, number = step_of_task(step) if "." in step else (job_of(step), FIRST)
        if "[" in task:
            raise ValueError(f"{step[:40]!r}: one task at a time, as in 7_3.batch")
        reply = yield from ask("ShowJob", job=task)
        if reply["record"]["array_tasks"]:
            raise Failed(f"job {task} waits: it has no steps yet", name=f"{NODE}.NoSuchStep")
        return {"job": reply["record"]["job"], "step": number}
    job, number = step_of(step) if isinstance(step, str) else step
    return {"job": job, "step": number}


def of_step(method: str, step: StepName, **parameters: object) -> "Operation[Mapping[str, Any]]":
    """Make a single call about a step, and return the reply's parameters."""
    named = yield from _which(step)
    return (yield from ask(method, **named, **parameters))


def ask(method: str, **parameters: object) -> Operation[Mapping[str, Any]]:
    """Make a single call and return the reply's parameters."""
    answer = yield MethodCall(method, parameters)
    return answer.parameters


class Turn:
    """The job of a waiting launch; cancel `job` to give up the wait.

    `wanted`, if given, is called several times a second; when it returns False the wait ends.
    """

    def __init__(self, wanted: Callable[[], bool] | None = None) -> None:
        self.job = 0
        self.wanted = wanted

    @property
    def unwanted(self) -> bool:
        """Whether the launch is no longer wanted."""
        return self.wanted is not None and not self.wanted()


def launch(wanted: WantedLaunch, streams: Streams, turn: Turn) -> Operation[tuple[int, int, int, int]]:
    """Launch a step, waiting for a turn if needed.

    Return the job, the step's number, and two descriptors: the reading end of the events and the writing end of the
    calls.
    """
    request = {**wanted.request, **streams.request}
    if wanted.of_job and "jobid" not in request:
        yield from _turn(request, wanted, turn)
    for left in reversed(range(_SERVICES)):
        try:
            answer = yield MethodCall("Launch", {"request": request}, streams.fds)
            break
        except NotTaken:
            if "job" in request or not left:
                raise
        except Failed as failed:
            if failed.name != _BUSY:
                raise
            if "jobid" in request:
                answer = yield from _launched_in_job(request, wanted, streams, failed, turn)
            else:
                yield from _turn(request, wanted, turn, failed.job)
                answer = yield MethodCall("Launch", {"request": request}, streams.fds)
            break
    turn.job = 0  # the step has it
    events, calls = answer.fds
    return answer.parameters["job"], answer.parameters["step"], events, calls


def _turn(request: dict[str, object], wanted: WantedLaunch, turn: Turn, number: int = 0) -> Operation[None]:
    """Allocate a job and wait until the job may begin."""
    reserved = {"job": number} if number else {}
    of_job = {"request": {**request, **reserved, "environment": told(request)}, "job": wanted.of_job}
    answer = yield MethodCall("Allocate", {**of_job, "held_by": "run"}, acquires=True)
    job = turn.job = answer.parameters["job"]
    until = None if wanted.patience is None else time.monotonic() + max(wanted.patience, 1)
    looks = until is not None or turn.wanted is not None  # again and again, rather than to be told
    seen = ""
    while True:
        now = yield from _awaited(job=job, seen="" if looks else seen, pause=_LOOKS if looks and seen else 0.0)
        if now["state"] in BEGUN:
            request["job"] = job
            return
        if now["state"] != PENDING:
            turn.job = 0
            words = f": {now['words']}" if now["words"] else ""
            raise Failed(f"job {job} ended before it began: {now['state']}{words}", name=f"{NODE}.LaunchRefused")
        if turn.unwanted or (until is not None and time.monotonic() >= until):
            raise Failed(f"job {job} waited in vain{': ' + now['words'] if now['words'] else ''}", name=_BUSY)
        seen = now["seen"]


def _launched_in_job(
    request: dict[str, object], wanted: WantedLaunch, streams: Streams, busy: Failed, turn: Turn
) -> Operation[Reply]:
    """Launch a further step of a job, when earlier steps of the job have given CPUs back."""
    if wanted.patience is not None:
        raise busy
    seen = ""
    while not turn.unwanted:
        seen = (yield from _awaited(job=request["jobid"], seen=seen, step=True))["seen"]
        try:
            return (yield MethodCall("Launch", {"request": request}, streams.fds))
        except Failed as failed:
            if failed.name != _BUSY:
                raise
    raise busy


def _awaited(pause: float = 0.0, **parameters: object) -> Operation[Mapping[str, Any]]:
    """Return the reply to Await. While no service answers, repeat the call for up to 300 seconds."""
    until = time.monotonic() + _WITHOUT_SERVICE
    while True:
        try:
            return (yield MethodCall("Await", parameters, pause=pause)).parameters
        except Failed as failed:
            if failed.name != NO_SERVICE or time.monotonic() > until:
                raise
            pause = _LOOKS


def request_of_step(
    argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str] | None, given: Mapping[str, object], socket: str,
    *, exact: bool = False,
) -> WantedLaunch:  # fmt: skip
    """Return the request for a step. Raises BadOption, TypeError.

    Inside a job of this service the request is for a further step of the job; with `exact` the step takes no more CPUs
    than needed.
    """
    wanted = options.step(argv, env, given)
    if join(wanted.request, socket) and exact:
        layout: dict[str, str] = wanted.request["layout"]  # type: ignore[assignment]  # join's
        if not layout.keys() & {"exclusive", "overlap", "whole"}:
            layout["exact"] = "1"
    return wanted


def submit(
    script: str | os.PathLike[str], arguments: Sequence[str], text: str | None, env: Mapping[str, str] | None,
    given: Mapping[str, object],
) -> Operation[int]:  # fmt: skip
    """Queue a batch job, and return the job's number once the job is on disk."""
    name = os.fsdecode(script)
    if text is None:
        text = batch_script.read(name)
    else:
        batch_script.check(text.encode("utf-8", "surrogateescape"), name)
    lines = [(f"{name}: {where}", of_line) for where, of_line in batch_script.option_lines(text)]
    wanted = options.job(name, arguments, lines, env, given)
    answer = yield MethodCall("Submit", {"request": wanted.request, "job": wanted.of_job, "script": text})
    return int(answer.parameters["job"])


def steps(ended: int) -> Operation[list[values.StepInfo]]:
    """Return the running steps and the latest `ended` ended steps. Ask for further pages until done."""
    found: dict[tuple[int, int, object], values.Record] = {}
    told, more = 0, True
    while more:
        reply = yield from ask("List", ended=max(ended - told, 0), skip=told)
        found |= {(one["job"], one["step"], one.get("restart")): one for one in reply["steps"]}
        told = sum(one.get("ended") is not None for one in found.values())
        more = reply["more"] and told < ended
    return [values.step_info(record) for record in found.values()]


def jobs(chosen: Mapping[str, Sequence[str] | None]) -> Operation[list[values.JobInfo]]:
    """Return the queue, page by page. A queue changing between two pages may repeat jobs."""
    asked = {name: list(words) for name, words in chosen.items() if words is not None}
    found: dict[str, values.Record] = {}
    told, more = 0, True
    while more:
        reply = yield from ask("Queue", **asked, skip=told)
        found |= {one["id"]: one for one in reply["jobs"]}
        told += len(reply["jobs"])
        more = reply["more"]
    return [values.job_info(record) for record in found.values()]


def job(name: str | int) -> Operation[values.JobInfo]:
    """Return a job; the service remembers ended jobs for some time."""
    reply = yield from ask("ShowJob", job=job_of(str(name)))
    return values.job_info(reply["record"])


def wait_for_job(number: int) -> Operation[values.JobInfo]:
    """Wait until a job, not an array, has ended, and return the job."""
    seen = ""
    while True:
        reply = yield from _awaited(job=number, seen=seen)
        if reply["state"] not in IN_QUEUE:
            return (yield from job(number))
        seen = reply["seen"]


def trace(step: StepName) -> Operation[list[values.TraceCall]]:
    """Return the lines of a step's flight recorder, page by page."""
    lines: list[values.TraceCall] = []
    more: dict[str, object] = {}
    named = yield from _which(step)
    while True:
        reply = yield from ask("Trace", **named, **more)
        lines += map(values.trace_call, reply["trace"])
        if not reply["next"]:
            return lines
        more = {"begin": reply["next"]}


def cancel(names: Sequence[str | int]) -> Operation[list[str]]:
    """Cancel the jobs and return the names of the cancelled jobs."""
    reply = yield from ask("Cancel", jobs=[job_of(str(name)) for name in names])
    return list(reply["cancelled"])
