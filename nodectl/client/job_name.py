"""Names of jobs and steps, as all commands read them: 42, 42_3, 42_[0-4], 42.0, 42_3.batch, 42-47, last."""

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from nodectl.client.command import Failed
from nodectl.client.job_options import array
from nodectl.client.step_name import step_of
from nodectl.model.number import whole
from nodectl.model.states import PENDING
from nodectl.model.step_number import FIRST, step_number
from nodectl.model.wire.names import NODE

if TYPE_CHECKING:
    from nodectl.client.session import Session

NEWEST = "last"
_LAST = 2**32 - 1
_MOST = 10_000  # jobs of a range
_T = TypeVar("_T")


def job_of(text: str) -> str:
    """Return the checked name of a job, a task of an array, or several tasks, for the service. Raises ValueError."""
    job, underscore, tasks = text.partition("_")
    number = whole(job, _LAST)
    if not number:
        raise ValueError(f"{text[:40]!r} is no job; one is written like 42, a task of an array like 42_3 or 42_[0-4]")
    if not underscore:
        return str(number)
    listed = tasks[1:-1] if tasks.startswith("[") and tasks.endswith("]") else tasks
    try:
        if "%" in listed or (listed == tasks and whole(tasks, _LAST) is None):
            raise ValueError
        array(listed)
    except ValueError:
        raise ValueError(f"{text[:40]!r}: tasks of an array are written like 42_3 or 42_[0-4,9]") from None
    return f"{number}_{tasks}"


def step_of_task(text: str) -> tuple[str, int]:
    """Return the checked name of a task, or of several, and the step of a name like 42_3.batch. Raises ValueError."""
    task, _, word = text.partition(".")
    step = step_number(word)
    if step is None or step > _LAST:
        raise ValueError(f"{text[:40]!r} is no step; a step of a task of an array is written like 42_3.0 or 42_3.batch")
    return job_of(task), step


def names_of(text: str, *, steps: bool = True) -> list[str]:
    """Return the checked names that a word means: each job of a range, otherwise the word alone. Raises ValueError."""
    first, dash, end = text.partition("-")
    if dash and first.isdecimal():
        low, high = whole(first, _LAST), whole(end, _LAST)
        if not low or high is None or high < low:
            raise ValueError(f"{text[:40]!r} is no range of jobs; one is written like 7-12")
        if high - low >= _MOST:
            raise ValueError(f"{text[:40]!r}: a range has {_MOST} jobs at most")
        return [str(number) for number in range(low, high + 1)]
    named = f"1{text.removeprefix(NEWEST)}" if text.partition("_")[0].partition(".")[0] == NEWEST else text
    job, dot, _ = named.partition(".")
    if dot and steps:
        _ = step_of_task(named) if "_" in job else step_of(named)
    else:
        job_of(job)
        if dot:
            raise ValueError(f"{text[:40]!r} is no job, but a step; give its job: {text.partition('.')[0]}")
    return [text]


def named(session: "Session", words: "Iterable[str]", *, apart: bool = False) -> "list[str | tuple[int, int]]":
    """Return each named job, as the service knows it, or step once.

    `apart`: each task of 42_[0-4] has a name of its own. Raises Failed.
    """
    found: list[str | tuple[int, int]] = []
    newest = ""
    for word in words:
        name = word
        if word.startswith(NEWEST):
            newest = newest or str(session.call("Newest")["job"])
            name = f"{newest}{word.removeprefix(NEWEST)}"
        if "." not in name:
            found += _tasks(name) if apart else [job_of(name)]
        elif "_" in name:
            tasks, step = step_of_task(name)
            found += [(number_of(session, task), step) for task in _tasks(tasks)]
        else:
            found.append(step_of(name))
    return list(dict.fromkeys(found))


def one(session: "Session", words: "Iterable[str]") -> "str | tuple[int, int]":
    """Return the single named job or step. Raises Failed."""
    found = named(session, words, apart=True)
    if len(found) != 1:
        raise Failed(f"one job at a time, and these are {len(found)}", 2)
    return found[0]


def one_step(session: "Session", words: "Iterable[str]") -> tuple[int, int]:
    """Return the single named step; a job alone, or a task of an array, means its first step. Raises Failed."""
    name = one(session, words)
    return name if isinstance(name, tuple) else (number_of(session, name), FIRST)


def why_no_step(session: "Session", job: int, step: int, failed: Failed) -> Failed:
    """Return the failure of a call on a step in the words of the user, who named the job alone.

    A job that waits has no step yet; a step of an array's task has the task's name.
    """
    if step != FIRST or failed.name != f"{NODE}.NoSuchStep":
        return failed
    try:
        record: Any = session.call("ShowJob", job=str(job))["record"]
    except Failed:
        return failed
    name = str(job) if record["array_task"] is None else f"{record['array_job']}_{record['array_task']}"
    if record["state"] == PENDING:
        return Failed(f"job {name} waits: it has no steps yet; `nodectl explain {name}` says what for")
    return Failed(str(failed).replace(f"step {job}.", f"step {name}.", 1), name=failed.name, subject=failed.subject)


def in_dependency(session: "Session", text: str) -> str:
    """Return the text of a dependency with the number of the newest job in place of `last`. Raises Failed."""
    first, *jobs = text.split(f":{NEWEST}")
    ends = [not job or not job[0].isalnum() for job in jobs]
    if not any(ends):
        return text
    newest = session.call("Newest")["job"]
    return first + "".join(f":{newest if end else NEWEST}{job}" for job, end in zip(jobs, ends, strict=True))


def separated(text: str) -> list[str]:
    """Return the words between commas outside of brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [word.strip() for word in found if word.strip()]


def _tasks(name: str) -> "Iterator[str]":
    job, underscore, tasks = job_of(name).partition("_")
    if not underscore:
        yield job
        return
    from nodectl.scheduler import job_array  # few commands name tasks

    indices = job_array.tasks_of(tasks.removeprefix("[").removesuffix("]"))
    if job_array.size(indices) > _MOST:
        raise Failed(f"{name[:40]}: more than {_MOST} tasks at a time", 2)
    yield from (f"{job}_{index}" for index in job_array.indices(indices))


def number_of(session: "Session", name: str) -> int:
    """Return the number of a job or of a task of an array. Raises Failed, also for a task without a job of its own."""
    if name.isdecimal():
        return int(name)
    record: Any = session.call("ShowJob", job=name)["record"]
    if record["array_tasks"]:
        raise Failed(f"job {name} waits: it has no steps yet; `nodectl explain {name}` says what for")
    return int(record["job"])


def for_argparse(take: Callable[[str], _T]) -> Callable[[str], _T]:
    """Wrap a reader of a word, which raises ValueError with the reason, for argparse."""

    def read(text: str) -> _T:
        try:
            return take(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


jobs_argument = for_argparse(lambda text: names_of(text, steps=False))
jobs_or_steps_argument = for_argparse(names_of)


def add_jobs(
    parser: argparse.ArgumentParser, what: str, *, steps: bool = False, one: bool = False, optional: bool = False
) -> None:
    """Add the argument for jobs, and steps, `arguments.jobs`: a list of names for `named`."""
    forms = f"42, last{'' if one else ', 42-47'}; a task of an array: 42_3{'' if one else ', 42_[0-4]'}"
    parser.add_argument(
        "jobs",
        nargs=1 if one else "*" if optional else "+",
        action=_Names,
        type=jobs_or_steps_argument if steps else jobs_argument,
        metavar="JOB[.STEP]" if steps and not optional else "JOB",
        help=f"{what}: {forms}{'; a step: 42.0, 42.batch' if steps else ''}",
    )


class _Names(argparse.Action):
    """Joins the names that each word means."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _option: object = None) -> None:
        setattr(namespace, self.dest, [name for word in values for name in word])
