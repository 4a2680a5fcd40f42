"""A recorded scenario, what came of it there, and the same run here: both in one form, so that they can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodectl.model.cpu_list import parse_cpulist

HERE = Path(__file__).parent
LANGUAGES = {"python": ".py", "c": ".so"}
RECORDED_USER = "alice"
PROCESSES = {"L": "command", "A": "allocator", "R": "stepd", "J": "job script", "D": "daemon"}
LINE = re.compile(r"(?:\w+!)?([LARJD])(?:\.(\w+))?:(\w+)(?:\[t(\d+)\])?\(")

# In front of what a command or a step says of itself, where a script's output has it among that of programs.
SPEAKER = re.compile(r"(srun|sbatch|salloc|nodectl|slurmstepd)\b[-\w]*: ")
# Several jobs or commands at once: nothing tells whose a hook is, so that they are compared without their order.
MINGLED = {"core/03d_sbatch_array", "misc/05_one_step_while_other"}
FACTS = [
    (r"plugin (\w+): slurm_spank_(\w+): returned (-?\d+)", r"failed \1 \2 \3"),
    (r"plugin (\w+): slurm_spank_(\w+): (?!returned)", r"died \1 \2"),
    (r"Invalid --(\S+) argument: (.*) \(", r"invalid \1 \2"),
    (r": (tasks? [\d,-]+): Exited with exit code (\d+)", r"\1 exit \2"),
    (r": (tasks? [\d,-]+): (Killed|Terminated|Segmentation fault)", r"\1 signal \2"),
    (r"option '--(\S+)' requires an argument", r"needs argument \1"),
    (r"unrecognized option '--([\w-]+)", r"unrecognized \1"),
    (r"(\w[\w.-]*):(\d+): required plugin (\S+?):", r"refused \1:\2 \3"),
    (r"(plugstack\.conf):(\d+): (line|no )", r"ignored \1:\2"),
    (r'option "(\S+)" provided by both', r"twice \1"),
    (r"DUE TO TIME LIMIT", "time limit"),
    (r"enter working directory '(\S+)'", r"chdir \1"),
    (r'Invalid numeric value "(\S+)" for --(\S+)\.', r"number \1 \2"),
    (r"No command given", "no command"),
    (r"task prolog .* ended with status (\d+)", r"task prolog \1"),
    (r"say (\w+) (\w+)$", r"say \1 \2"),
    (r"^(taskepilog stderr)", r"\1"),
    (r"^((?:\d: )?err-\d)", r"\1"),
]


@dataclass
class Result:
    """What came of a run. `hooks` are each process's in their order: the command's, the stepd's, each task's in its
    own process and at its end, prolog's and epilog's. `said` are facts of stderr, sorted.
    """

    exit_status: int
    stdout: list[str]
    said: list[str]
    states: list[str]
    hooks: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)  # what jobs wrote, lines sorted
    stderr: str = field(default="", compare=False)


def recordings() -> dict[str, dict[str, Any]]:
    """Every scenario by its name."""
    lines = (HERE / "recordings.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["scenario"]: row for row in map(json.loads, lines)}


def by_process(lines: list[str]) -> dict[str, list[str]]:
    """Hooks of different processes, and the ends of different tasks, are not ordered: each has a list of its own. Step
    0 is the one that is meant where none is named.
    """
    found: dict[str, list[str]] = {}
    for (context, step, hook, task), line in with_steps(lines):
        process, of_step = PROCESSES[context], "" if step in ("", "0") else f" {step}"
        if hook in ("task_init_privileged", "task_init"):
            process = f"task {task}"
        elif hook == "task_exit":
            process = f"end of task {task}"
        found.setdefault(f"{process}{of_step}", []).append(line)
    return found


def with_steps(lines: list[str]) -> Iterator[tuple[tuple[str, str, str, str], str]]:
    """The parts of each line. An option is told of in the step whose init was the last."""
    latest = ""
    for line in lines:
        match = LINE.match(line)
        assert match is not None, line
        context, step, hook, task = (part or "" for part in match.groups())
        if context == "R" and hook == "init":
            latest = step
        yield (context, step or (latest if context == "R" else ""), hook, task), line


def settled(result: Result, *, mingled: bool = False) -> Result:
    """A step runner that dies takes its tasks with it: how far each has come, and whose end was first, is chance. So is
    whether an allocation ends before the step that holds it has forked its task.
    """
    if mingled:
        result.hooks = {process: sorted(lines) for process, lines in result.hooks.items()}
    if "stepd extern" in result.hooks:
        hooks = result.hooks["stepd extern"]
        result.hooks["stepd extern"] = [line for line in hooks if ":task_post_fork[" not in line]
    runner = result.hooks.get("stepd", [])
    if runner and not any(":exit(" in line for line in runner):
        ends = [lines for process, lines in result.hooks.items() if process.startswith("end of task")]
        result.hooks = {process: lines for process, lines in result.hooks.items() if "task" not in process}
        result.hooks["end of a task"] = [re.sub(r"\[t\d+\]", "[tN]", line) for lines in ends for line in lines]
        result.stdout = []
    return result


def recorded(row: Mapping[str, Any]) -> Result:
    """What came of the scenario there."""
    lines = [line for line in row.get("hooks", ()) if ":init(u0/0)" not in line or not line.startswith("D:")]
    said = _per_task(row["said"])
    files = {path: wrote(text) for path, text in row.get("files", {}).items()}
    stdout = normal(row.get("stdout", ""), row["command"][0])
    result = Result(row["exit_status"], stdout, said, row["states"], by_process(lines), files)
    return settled(result, mingled=row["scenario"] in MINGLED)


def normal(text: str, command: str = "srun") -> list[str]:
    """Lines of different tasks are not ordered; numbers of processes and jobs are the run's own."""
    number = r"^(Submitted batch job |)\d+$" if command == "sbatch" else r"^(bg )\d+$"
    return sorted(re.sub(number, r"\1N", line) for line in text.splitlines())


def wrote(text: str) -> list[str]:
    """What programs wrote into a job's file, and as facts what the job's steps said there. A tracer that tries every
    call leaves variables there, which is the trial's business.
    """
    lines = text.splitlines()
    programs = [line for line in lines if not SPEAKER.match(line) and "_JC_" not in line]
    return sorted([*programs, *facts("\n".join(filter(SPEAKER.match, lines)))])


def facts(text: str) -> list[str]:
    """What the lines of the command's stderr say, in the words of shrink.py."""
    found = []
    for line in text.splitlines():
        if line.startswith("nodectl: warning: optional plugin"):
            continue  # of which Slurm says nothing: tests/rootful/steps/test_hook_failures.py
        for pattern, fact in FACTS:
            if match := re.search(pattern, line):
                found.append(match.expand(fact))
                break
    return _per_task(found)


def _per_task(found: list[str]) -> list[str]:
    """Tasks that ended the same way may be told together or not, as it happens."""
    apart = []
    for fact in found:
        match = re.match(r"tasks ([\d,-]+) (.*)", fact)
        ranks = parse_cpulist(match[1]) if match else ()
        apart += [f"task {rank} {match[2]}" for rank in ranks if match] or [fact]
    return sorted(apart)
