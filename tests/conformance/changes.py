"""What makes a recorded result into nodectl's, in place: one function for each kind of difference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from conformance.scenario import Result


def once(result: Result) -> None:
    """Remote callbacks come twice: all by the message, then all by the environment, whose word is the last."""
    for process, hooks in result.hooks.items():
        if process.startswith("stepd") and process != "stepd batch":  # which has no message
            calls = [place for place, line in enumerate(hooks) if "option_cb" in line]
            for place in reversed(calls[: len(calls) // 2]):
                del hooks[place]


def _until(lines: Iterable[str], last: Callable[[str], bool]) -> list[str]:
    kept = []
    for line in lines:
        kept.append(line)
        if last(line):
            break
    return kept


def _failed(line: str) -> bool:
    return "=>" in line


def command_refused(result: Result) -> None:
    result.hooks = {"command": _until(result.hooks["command"], _failed)}
    result.exit_status, result.stdout, result.states = 1, [], []
    tell_failure(result)


def launch_refused(result: Result) -> None:
    """As command_refused, when init is over: exit is called."""
    ends = [line for line in result.hooks["command"] if ":exit(" in line]
    command_refused(result)
    result.hooks["command"] += ends


def rest_skipped(result: Result) -> None:
    """The plugins behind the one that failed are not called; nothing else."""
    for process, lines in result.hooks.items():
        if "task" in process or process == "job script":
            result.hooks[process] = _until(lines, _failed)


def _only(result: Result, *processes: str) -> None:
    result.hooks = {process: result.hooks[process] for process in processes}


def step_fails(result: Result) -> None:
    hooks = result.hooks["stepd"]
    ends = [line for line in hooks if ":exit(" in line]
    _only(result, "command", "job script", "stepd")
    result.hooks["stepd"] = [*_until(hooks, _failed), *ends]
    result.exit_status, result.stdout, result.states = 1, [], ["FAILED"]
    tell_failure(result)


def step_fails_at_its_gate(result: Result) -> None:
    """As step_fails, with tasks that wait for their own init, and have an end."""
    tasks = {process: lines for process, lines in result.hooks.items() if "task" in process}
    step_fails(result)
    for process, lines in tasks.items():
        result.hooks[process] = [line for line in lines if ":task_init[" not in line]
    result.said = sorted([*result.said, "task 0 exit 1", "task 1 exit 1"])


def task_exit_fails(result: Result) -> None:
    """What failed is told, the plugins behind it are not called for that task, which has not ended well."""
    rest_skipped(result)
    exit_fails(result)
    result.said = sorted([*result.said, "task 0 exit 1", "task 1 exit 1"])


def exit_fails(result: Result) -> None:
    """All has run, and the step has failed."""
    result.exit_status, result.states = 1, ["FAILED"]
    tell_failure(result)


def option_refused(result: Result) -> None:
    """The step ends with the callback that failed."""
    hooks = result.hooks["stepd"]
    ends = [line for line in hooks if ":exit(" in line]
    _only(result, "command", "job script", "stepd")
    result.hooks["stepd"] = [*_until(hooks, lambda line: "option_cb" in line and "ret=-" in line), *ends]
    result.exit_status, result.stdout, result.states = 1, [], ["FAILED"]


def tell_failure(result: Result) -> None:
    """Every failure of a required plugin is told."""
    lines = [line for process in result.hooks.values() for line in process if _failed(line)]
    matches = (re.search(r"[LRJ][.\d]*:(\w+).*=>(-?\d+)", line) for line in lines)
    result.said = sorted(
        [fact for fact in result.said if not fact.startswith("failed")]
        + [f"failed trace {match[1]} {match[2]}" for match in matches if match]
    )


def tasks_fail(result: Result) -> None:
    for rank in (0, 1):
        result.hooks[f"task {rank}"] = _until(result.hooks[f"task {rank}"], _failed)
    result.exit_status, result.stdout, result.states = 1, [], ["FAILED"]
    tell_failure(result)
    result.said = sorted([*result.said, "task 0 exit 1", "task 1 exit 1"])


def step_fails_and_exits(result: Result) -> None:
    result.hooks["stepd"] += ["R.0:exit(u0/0)", "traceb!R.0:exit(u0/0)"]
    step_fails(result)


def runner_died(result: Result) -> None:
    result.exit_status, result.states = 1, ["NODE_FAIL"]
    result.hooks["command"] = [
        *(line for line in result.hooks["command"] if ":exit(" not in line),
        "L:exit(u2001/2001)",
    ]


def nothing_launched(result: Result) -> None:
    _only(result, "command")
    result.states = []


def job_refused(result: Result) -> None:
    _only(result, "command", "job script")
    result.exit_status, result.stdout, result.states = 1, [], ["FAILED"]
    tell_failure(result)


def job_script_died(result: Result) -> None:
    job_refused(result)
    result.said = ["died trace job_prolog"]


def runs(result: Result) -> None:
    """A plain run of one task with one tracer."""
    user = "(u2001/2001)"
    result.hooks = {
        "command": [f"L:{hook}{user}" for hook in ("init", "init_post_opt", "local_user_init", "exit")],
        "job script": ["J:job_prolog(u0/0)", "J:job_epilog(u0/0)"],
        "stepd": [
            "R.0:init(u0/0)",
            "R.0:init_post_opt(u0/0)",
            "R.0:user_init(u0/2001)",
            "R.0:task_post_fork[t0](u0/0)",
            "R.0:exit(u0/0)",
        ],
        "task 0": ["R.0:task_init_privileged[t0](u0/0)", f"R.0:task_init[t0]{user}"],
        "end of task 0": ["R.0:task_exit[t0](u0/0)"],
    }
    succeeds(result)


def succeeds(result: Result) -> None:
    result.exit_status, result.stdout, result.states = 0, ["TASK RAN procid=0 localid=0"], ["COMPLETED"]
    result.said = []


def carriage_return(result: Result) -> None:
    runs(result)
    result.said = ["ignored plugstack.conf:1"]


def user_stderr(result: Result) -> None:
    """Words of remote hooks, and what they write to stderr: those of the stepd's first and last hooks are told too."""
    more = [
        f"say {hook} {level}"
        for hook in ("init", "init_post_opt", "exit")
        for level in ("error", "spank_log", "stderr")
    ]
    result.said = sorted([*result.said, *more])


def killed_all(result: Result) -> None:
    result.stdout = []
    result.said = sorted(["task 2 exit 3", *(f"task {rank} signal Terminated" for rank in (0, 1, 3))])


def file_refused(result: Result) -> None:
    result.exit_status, result.states, result.said = 1, ["FAILED"], ["task 0 exit 1"]


def input_by_task(result: Result) -> None:
    result.exit_status, result.states, result.stdout = 0, ["COMPLETED"], ["0: zero", "1: one"]


def input_of_one(result: Result) -> None:
    result.exit_status, result.states, result.stdout = 0, ["COMPLETED"], ["zero"]


def whole_lines(result: Result) -> None:
    result.stdout = ["0: noeol-0", "0: part1-0 part2-0", "1: noeol-1", "1: part1-1 part2-1"]


def two_tasks_run(result: Result) -> None:
    """A plain run of two tasks with one tracer."""
    runs(result)
    for process in ("task 0", "end of task 0"):
        result.hooks[process.replace("0", "1")] = [line.replace("[t0]", "[t1]") for line in result.hooks[process]]
    result.hooks["stepd"].insert(4, "R.0:task_post_fork[t1](u0/0)")
    result.stdout.append("TASK RAN procid=1 localid=1")


def held_by_extern(result: Result) -> None:
    """An allocation has a step of its own, of whose task nothing is compared (see `settled`)."""
    if result.exit_status == 0:
        result.hooks["stepd extern"] = [f"R.extern:{hook}(u0/0)" for hook in ("init", "init_post_opt", "exit")]


def prolog_at_allocation(result: Result) -> None:
    result.hooks["job script"].insert(0, "J:job_prolog(u0/0)")


def script_never_runs(result: Result) -> None:
    result.hooks["stepd batch"] += ["R.batch:exit(u0/0)", "traceb!R.batch:exit(u0/0)"]
    result.states = ["FAILED"]


def script_fails(result: Result) -> None:
    """The job's file names what failed; a task that its gate did not let through has an end."""
    lines = [line for process in result.hooks.values() for line in process if _failed(line)]
    match = re.search(r"R\.batch:(\w+).*=>(-?\d+)", lines[0])
    assert match is not None
    result.files["fb.out"] = sorted([*result.files.get("fb.out", ()), f"failed trace {match[1]} {match[2]}"])
    result.states = ["FAILED"]
    if match[1] == "task_post_fork":
        result.hooks["end of task 0 batch"] = [f"{plugin}R.batch:task_exit[t0](u0/0)" for plugin in ("", "traceb!")]


def user_file(result: Result) -> None:
    """As user_stderr, of the batch step and of the one within it."""
    more = [
        f"say {hook} {level}"
        for hook in ("init", "init", "init_post_opt", "init_post_opt", "exit")
        for level in ("error", "spank_log", "stderr")
    ]
    result.files["say.out"] = sorted([*result.files["say.out"], *more])


def killed_by_one(result: Result) -> None:
    result.stdout = []
    result.said = sorted([*result.said, "task 0 signal Killed"])


def succeeds_silently(result: Result) -> None:
    result.exit_status, result.states = 0, ["COMPLETED"]


def one_line(result: Result) -> None:
    result.stdout = ["5003"]


def no_argument(result: Result) -> None:
    result.hooks["command"] = [line.replace("{(null),", "{None,") for line in result.hooks["command"]]


def ended_by(signal: int, word: str = "", state: str = "FAILED") -> Callable[[Result], None]:
    """The task ends by that signal, of which the command says `word`."""

    def change(result: Result) -> None:
        result.exit_status, result.states = 128 + signal, [state]
        result.said = [f"task 0 signal {word}"] if word else []

    return change
