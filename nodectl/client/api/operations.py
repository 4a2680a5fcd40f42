"""What is asked of the service, as generators: each yields calls, and is sent their answers. Who drives one decides how
a call is waited for; what the service refuses is thrown in as Failed.
"""

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from nodectl.client import script as scripts
from nodectl.client.api import options, values
from nodectl.client.api.errors import NO_SERVICE
from nodectl.client.api.options import Wanted
from nodectl.client.api.streams import Streams
from nodectl.client.command import Failed
from nodectl.client.job_name import job_of
from nodectl.client.session import NotTaken
from nodectl.client.step_name import step_of
from nodectl.client.surrounding_job import join
from nodectl.wire.names import NODE

_WITHOUT_SERVICE = 300.0  # seconds for which a job's lease outlives the service
_SERVICES = 4  # that may end, one after the other, before one takes a launch
_LOOKS = 0.2  # seconds
_BEGUN = ("RUNNING", "SUSPENDED")
_BUSY = f"{NODE}.Busy"


class Call(NamedTuple):
    """A method of org.nodectl and its parameters; `pause` seconds before it is called."""

    method: str
    parameters: Mapping[str, object]
    fds: Sequence[int] = ()
    pause: float = 0.0


class Answer(NamedTuple):
    """The reply's parameters, and the descriptors that came along, which are the receiver's."""

    parameters: Mapping[str, Any]
    fds: Sequence[int]


T = TypeVar("T")
Operation = Generator[Call, Answer, T]
StepName = str | tuple[int, int]
Which = Mapping[str, int]


def which(step: StepName) -> Which:
    """`job` and `step` of "7.0", "7" (its first step), or (7, 0). Raises ValueError."""
    job, number = step_of(step) if isinstance(step, str) else step
    return {"job": job, "step": number}


def ask(method: str, **parameters: object) -> Operation[Mapping[str, Any]]:
    """One call."""
    answer = yield Call(method, parameters)
    return answer.parameters


class Turn:
    """The job that a launch waits for: `job` is to be cancelled when the wait is given up. `wanted`, where it is given,
    is asked several times a second whether anybody still wants it.
    """

    def __init__(self, wanted: Callable[[], bool] | None = None) -> None:
        self.job = 0
        self.wanted = wanted

    @property
    def unwanted(self) -> bool:
        """Nobody wants it any more."""
        return self.wanted is not None and not self.wanted()


def launch(wanted: Wanted, streams: Streams, turn: Turn) -> Operation[tuple[int, int, int, int]]:
    """A step, at once or when its turn has come: its job, its number, the ends of its events and of its calls."""
    request = {**wanted.request, **streams.request}
    if wanted.of_job and "jobid" not in request:
        yield from _turn(request, wanted, turn)
    for left in reversed(range(_SERVICES)):
        try:
            answer = yield Call("Launch", {"request": request}, streams.fds)
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
                answer = yield Call("Launch", {"request": request}, streams.fds)
            break
    turn.job = 0  # the step has it
    events, calls = answer.fds
    return answer.parameters["job"], answer.parameters["step"], events, calls


def _turn(request: dict[str, object], wanted: Wanted, turn: Turn, number: int = 0) -> Operation[None]:
    """Allocates a job and waits until it may begin."""
    reserved = {"job": number} if number else {}
    of_job = {"request": {**request, **reserved, "environment": _told(request)}, "job": wanted.of_job}
    answer = yield Call("Allocate", {**of_job, "held_by": "run"})
    job = turn.job = answer.parameters["job"]
    until = None if wanted.patience is None else time.monotonic() + max(wanted.patience, 1)
    looks = until is not None or turn.wanted is not None  # again and again, rather than to be told
    seen = ""
    while True:
        now = yield from _awaited(job=job, seen="" if looks else seen, pause=_LOOKS if looks and seen else 0.0)
        if now["state"] in _BEGUN:
            request["job"] = job
            return
        if now["state"] != "PENDING":
            turn.job = 0
            words = f": {now['words']}" if now["words"] else ""
            raise Failed(f"job {job} ended before it began: {now['state']}{words}", name=f"{NODE}.LaunchRefused")
        if turn.unwanted or (until is not None and time.monotonic() >= until):
            raise Failed(f"job {job} waited in vain{': ' + now['words'] if now['words'] else ''}", name=_BUSY)
        seen = now["seen"]


def _told(request: Mapping[str, Any]) -> dict[str, str]:
    """The variables that a service looks at before there is a step."""
    return {name: text for name, text in request["environment"].items() if name.startswith(("SLURM_", "SRUN_"))}


def _launched_in_job(
    request: dict[str, object], wanted: Wanted, streams: Streams, busy: Failed, turn: Turn
) -> Operation[Answer]:
    """A further step, when other steps of the job have given CPUs back."""
    if wanted.patience is not None:
        raise busy
    seen = ""
    while not turn.unwanted:
        seen = (yield from _awaited(job=request["jobid"], seen=seen, step=True))["seen"]
        try:
            return (yield Call("Launch", {"request": request}, streams.fds))
        except Failed as failed:
            if failed.name != _BUSY:
                raise
    raise busy


def _awaited(pause: float = 0.0, **parameters: object) -> Operation[Mapping[str, Any]]:
    """What Await answers, this service's or that of one to come."""
    until = time.monotonic() + _WITHOUT_SERVICE
    while True:
        try:
            return (yield Call("Await", parameters, pause=pause)).parameters
        except Failed as failed:
            if failed.name != NO_SERVICE or time.monotonic() > until:
                raise
            pause = _LOOKS


def request_of_step(
    argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str] | None, given: Mapping[str, object], socket: str,
    *, exact: bool = False,
) -> Wanted:  # fmt: skip
    """The request; in a job of this service it is a further step of that, which with `exact` takes no more of it than
    it needs. Raises BadOption, TypeError.
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
    """A batch job: its number, when it is on the disk."""
    name = os.fsdecode(script)
    if text is None:
        text = scripts.read(name)
    else:
        scripts.check(text.encode("utf-8", "surrogateescape"), name)
    lines = [(f"{name}: {where}", of_line) for where, of_line in scripts.option_lines(text)]
    wanted = options.job(name, arguments, lines, env, given)
    answer = yield Call("Submit", {"request": wanted.request, "job": wanted.of_job, "script": text})
    return int(answer.parameters["job"])


def steps(ended: int) -> Operation[list[values.StepInfo]]:
    """Running steps, and so many that have ended, in as many replies as it takes."""
    found: dict[tuple[int, int, object], values.Record] = {}
    told, more = 0, True
    while more:
        reply = yield from ask("List", ended=max(ended - told, 0), skip=told)
        found |= {(one["job"], one["step"], one.get("restart")): one for one in reply["steps"]}
        told = sum(one.get("ended") is not None for one in found.values())
        more = reply["more"] and told < ended
    return [values.step_info(record) for record in found.values()]


def jobs(chosen: Mapping[str, Sequence[str] | None]) -> Operation[list[values.JobInfo]]:
    """The queue, in as many replies as it takes. One that changes between two of them tells some jobs twice."""
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
    """One job, also for some time after its end."""
    reply = yield from ask("ShowJob", job=job_of(str(name)))
    return values.job_info(reply["record"])


def wait_for_job(number: int) -> Operation[values.JobInfo]:
    """A job that is not an array, when it has ended."""
    seen = ""
    while True:
        reply = yield from _awaited(job=number, seen=seen)
        if reply["state"] not in values.GOING:
            return (yield from job(number))
        seen = reply["seen"]


def trace(step: StepName) -> Operation[list[values.TraceCall]]:
    """The flight recorder's lines, in as many replies as it takes."""
    lines: list[values.TraceCall] = []
    more: dict[str, object] = {}
    while True:
        reply = yield from ask("Trace", **which(step), **more)
        lines += map(values.trace_call, reply["trace"])
        if not reply["next"]:
            return lines
        more = {"begin": reply["next"]}


def cancel(names: Sequence[str | int]) -> Operation[list[str]]:
    """Ends these jobs; what was cancelled."""
    reply = yield from ask("Cancel", jobs=[job_of(str(name)) for name in names])
    return list(reply["cancelled"])
