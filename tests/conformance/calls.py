"""What a hook finds: what each call of the interface answers, and the process it runs in. A recorded hook's answers and
those here come in one form, beside the rows in which they differ on purpose.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.tracers import LETTERS

GROUPS = ("process", "items", "env", "job_control", "getopt")
Answers = dict[str, object]
"""By GROUP.call: its error code, or [code, value]."""


def _positive(number: int) -> bool:
    return number > 0


def _is_list_of_cpus(text: str) -> bool:
    return text.replace("-", "").replace(",", "").isdecimal()


def _whose(ids: list[int]) -> list[str]:
    return ["user" if number else "root" for number in ids]


def _without_pid(found: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in found.items() if key != "arg_pid"}


# Values that are the run's, the machine's or the user's own are compared by their shape.
OWN: dict[str, Callable[[Any], object]] = {
    "uids": _whose,
    "gids": _whose,
    "groups": lambda groups: "the user's" if any(groups) else "none",
    "cwd": lambda cwd: "/" if cwd == "/" else "the step's",
    "S_JOB_UID": _positive,
    "S_JOB_GID": _positive,
    "S_JOB_ID": _positive,
    "S_JOB_ARRAY_ID": _positive,
    "S_JOB_NCPUS": _positive,
    "S_JOB_ALLOC_CORES": _is_list_of_cpus,
    "S_STEP_ALLOC_CORES": _is_list_of_cpus,
    "S_JOB_SUPPLEMENTARY_GIDS": any,
    "S_TASK_PID": lambda pid: "a pid" if pid > 0 else pid,
    "S_JOB_PID_TO_GLOBAL_ID": _without_pid,
    "S_JOB_PID_TO_LOCAL_ID": _without_pid,
}
# What Python has no way to ask: lengths of buffers, and what an error leaves in a variable.
C_ONLY = {"getenv_len3", "getenv_len0", "getenv_len-1", "getenv_len2", "needs_arg_null_argp"}
C_ONLY_VALUES = {"pid1_val", "arg99999_val", "null_terminated"}


@dataclass(frozen=True)
class CallRow:
    """One difference: in hooks whose place matches, `calls` answer what stands here."""

    places: tuple[str, ...]
    calls: tuple[str, ...]
    answer: object
    slurm: str
    nodectl: str
    why: str


_IN_TASK = ("R:task_init*",)
_IN_JOB_SCRIPT = ("J:*",)
CALL_DIFFERENCES = (
    CallRow(
        _IN_TASK,
        ("items.S_TASK_PID",),
        [0, "a pid"],
        "-1 in the hooks that run in the task itself",
        "the task's pid",
        "a task knows its own, and a plugin that asks wants it",
    ),
    CallRow(
        _IN_JOB_SCRIPT,
        ("job_control.setenv*", "job_control.unsetenv*"),
        3001,
        "the process crashes",
        "ESPANK_BAD_ARG",
        "the documented code; there is nothing to change any more",
    ),
    CallRow(
        _IN_JOB_SCRIPT,
        ("job_control.getenv", "job_control.getenv_missing"),
        3004,
        "the process crashes",
        "ESPANK_ENV_NOEXIST",
        "the documented code; the variables are in the process's environment",
    ),
    CallRow(
        _IN_JOB_SCRIPT,
        ("job_control.getenv_len2",),
        [3004, ""],
        "the process crashes",
        "ESPANK_ENV_NOEXIST",
        "the documented code; the variables are in the process's environment",
    ),
    CallRow(
        ("R:task_init_privileged*", "R:task_post_fork*", "R:task_exit*", "R:exit"),
        ("process.groups",),
        [0, "none"],
        "once the step has taken the user's groups, its root hooks keep them",
        "root's hooks have no group of the user's",
        "who is root needs none, and files that root makes are not the group's",
    ),
    CallRow(
        ("R:user_init", "R:task_init_privileged*"),
        ("process.cwd",),
        [0, "/"],
        "these hooks stand in the step's working directory already",
        "the task enters it after them, as the user",
        "root does not stand where a user chooses what a relative name means",
    ),
)


def by_hook(records: Iterable[Mapping[str, Any]], language: str) -> dict[str, Answers]:
    """The answers in each hook, by C:hook, C the letter of the context, with [tN] for a task's."""
    found: dict[str, Answers] = {}
    for record in records:
        if "items" in record:
            task = record["items"]["S_TASK_ID"].get("val")
            place = f"{LETTERS[record['ctx']]}:{record['hook']}" + ("" if task is None else f"[t{task}]")
            assert place not in found, place
            found[place] = _answers(record, language)
    return found


def _answers(record: Mapping[str, Any], language: str) -> Answers:
    found: Answers = {}
    for group in GROUPS:
        for name, answer in (record.get(group) or {}).items():
            if language == "c" or name not in C_ONLY:
                found[f"{group}.{name.removeprefix('trace-')}"] = _answer(name, answer, language)
    # A test chooses the groups of the command that it starts.
    if record["ctx"] in ("LOCAL", "ALLOCATOR"):
        del found["process.groups"]
    return found


def _answer(name: str, answer: Mapping[str, Any], language: str) -> object:
    value = answer.get("val", answer.get("arg", answer.get("buf")))
    if value is None:
        return answer["rc"]
    value = OWN[name](value) if name in OWN else value
    if isinstance(value, dict) and language == "python":
        value = {key: part for key, part in value.items() if key not in C_ONLY_VALUES}
    return [answer.get("rc", 0), value]


def change(row: CallRow, place: str, answers: Answers, asked: Iterable[str]) -> None:
    """Puts the row's answer in the place of the recorded, or of none, for what is `asked`."""
    if any(fnmatch.fnmatchcase(place, pattern) for pattern in row.places):
        for call in asked:
            if any(fnmatch.fnmatchcase(call, pattern) for pattern in row.calls):
                answers[call] = row.answer


def words(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The words that go with each code that a plugin was shown."""
    answers = [record.get(group, {}) for record in records for group in ("env", "job_control")]
    return {str(answer["rc"]): answer["str"] for group in answers for answer in group.values()}
