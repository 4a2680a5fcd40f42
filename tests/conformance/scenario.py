"""A recorded scenario, what came of it there, and the same run here: both in one form, so that they can be compared."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.scenery import FILES, INCLUDES, SCRIPTS
from conformance.tracers import line_of, make_tracer
from nodectl.model.cpu_list import parse_cpulist
from rootful.jobs.machine import queue
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until

HERE = Path(__file__).parent
LANGUAGES = {"python": ".py", "c": ".so"}
RECORDED_USER = "alice"
PROCESSES = {"L": "command", "A": "allocator", "R": "stepd", "J": "job script", "D": "daemon"}
LINE = re.compile(r"(?:\w+!)?([LARJD])(?:\.(\w+))?:(\w+)(?:\[t(\d+)\])?\(")
COMMANDS = {"srun": "run", "sbatch": "submit", "salloc": "alloc"}
# In front of what a command or a step says of itself, where a script's output has it among that of programs.
SPEAKER = re.compile(r"(srun|sbatch|salloc|nodectl|slurmstepd)\b[-\w]*: ")
_PRESET = {"SLURM_SPANK__SLURM_SPANK_OPTION_trace_trace_opt": "fromenv"}
ENVIRONMENTS = {
    "opt/16_env_SLURM_SPANK": _PRESET,
    "opt/16c_env_and_cmdline": _PRESET,
    "opt/16d_env_raw": {"_SLURM_SPANK_OPTION_trace_trace_opt": "raw"},
}
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


@dataclass
class Played:
    """A run here: what came of it, and the records of every hook."""

    result: Result
    records: list[dict[str, Any]]


def recordings() -> dict[str, dict[str, Any]]:
    """Every scenario by its name."""
    lines = (HERE / "recordings.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["scenario"]: row for row in map(json.loads, lines)}


def by_process(lines: list[str]) -> dict[str, list[str]]:
    """Hooks of different processes, and the ends of different tasks, are not ordered: each has a list of its own. Step
    0 is the one that is meant where none is named.
    """
    found: dict[str, list[str]] = {}
    for (context, step, hook, task), line in _with_steps(lines):
        process, of_step = PROCESSES[context], "" if step in ("", "0") else f" {step}"
        if hook in ("task_init_privileged", "task_init"):
            process = f"task {task}"
        elif hook == "task_exit":
            process = f"end of task {task}"
        found.setdefault(f"{process}{of_step}", []).append(line)
    return found


def _with_steps(lines: list[str]) -> Iterator[tuple[tuple[str, str, str, str], str]]:
    """The parts of each line. An option is told of in the step whose init was the last."""
    latest = ""
    for line in lines:
        match = LINE.match(line)
        assert match is not None, line
        context, step, hook, task = (part or "" for part in match.groups())
        if context == "R" and hook == "init":
            latest = step
        yield (context, step or (latest if context == "R" else ""), hook, task), line


def settled(result: Result) -> Result:
    """A step runner that dies takes its tasks with it: how far each has come, and whose end was first, is chance. So is
    whether an allocation ends before the step that holds it has forked its task.
    """
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
    files = {path: _written(text) for path, text in row.get("files", {}).items()}
    stdout = _normal(row.get("stdout", ""), row["command"][0])
    return settled(Result(row["exit_status"], stdout, said, row["states"], by_process(lines), files))


def _normal(text: str, command: str = "srun") -> list[str]:
    """Lines of different tasks are not ordered; numbers of processes and jobs are the run's own."""
    number = r"^(Submitted batch job |)\d+$" if command == "sbatch" else r"^(bg )\d+$"
    return sorted(re.sub(number, r"\1N", line) for line in text.splitlines())


def _written(text: str) -> list[str]:
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


class Theatre:
    """A node with the recordings' scenery: programs, plugins, directories by the recordings' names below `@`."""

    def __init__(self, node: Node, suffix: str) -> None:
        self.node = node
        self.suffix = suffix
        self.at = node.dir
        self.out = node.dir / "trace.jsonl"
        self.out.touch()
        self.out.chmod(0o666)
        for name in ("plugin", "jobs", "etc/plugstack.d/more"):
            (self.at / name).mkdir(parents=True, exist_ok=True)
        for name, text in SCRIPTS.items():
            self.script(name, text)
        for name, text in FILES.items():
            (self.node.scratch / name).write_text(text, encoding="utf-8")
        for name, text in INCLUDES.items():
            (self.at / "etc" / name).write_text(self.stack_text(text), encoding="utf-8")
        (self.at / "etc/plugstack.d/noperm.conf").chmod(0o600)
        for name in ("trace", "traceb", "tracetab"):
            make_tracer(self.at / "plugin" / f"{name}{suffix}")
        done = node.nodectl("slurm-commands", str(self.at / "bin"))
        assert done.returncode == 0, done.stderr

    def script(self, name: str, text: str) -> None:
        """A program of the recordings: in `@/jobs`, or in the working directory where its name begins with ./"""
        directory = self.node.scratch if name.startswith("./") else self.at / "jobs"
        path = directory / name
        path.write_text(text.replace("@", str(self.at)), encoding="utf-8")
        path.chmod(0o644 if name == "./noexec.sh" else 0o755)

    def stack_text(self, text: str, more: str = "") -> str:
        """A recorded plugstack.conf, with our tracer in the place of theirs."""
        text = text.replace("jcscript=1", "calls=1")
        text = re.sub(r"(\s)(\S*?)(trace(?:b|tab)?)(\.so)?(?=\s)", rf"\1\2\3\4 out={self.out}{more}", f"{text}\n")
        return text.replace("@", str(self.at)).replace(".so ", f"{self.suffix} ")

    def play(self, row: Mapping[str, Any]) -> Played:
        """Runs the scenario here."""
        calls = " calls=1" if "calls" in row else ""
        (self.at / "etc/plugstack.conf").write_text(
            self.stack_text(row.get("plugstack") or "", calls), encoding="utf-8"
        )
        os.truncate(self.out, 0)
        before, command = self.last_job(), row["command"][0]
        words = [word.replace("@", str(self.at)) for word in row["command"][1:] if word != "-O" or command != "srun"]
        environment = {"FOO": "bar", **ENVIRONMENTS.get(row["scenario"], {})}
        if command != "srun":  # Slurm's commands are found by their names
            environment["PATH"] = f"{self.at}/bin:/usr/bin:/bin"
        if command in COMMANDS:
            done = self.node.nodectl(COMMANDS[command], *words, user=NOBODY, env=environment)
        else:
            done = self.typed(command, *words, env=environment)
        wait_until(lambda: not queue(self.node), "the job is over")
        self.node.assert_clean()
        records = self.records()
        lines = list(map(line_of, records))
        stdout, stderr = (text.replace(str(self.at), "@") for text in (done.stdout, done.stderr))
        states = self.states(before, steps=command == "srun")
        result = Result(done.returncode, _normal(stdout, command), facts(stderr), states, by_process(lines))
        result.files = {path: self.written(path) for path in row.get("files", {})}
        result.stderr = done.stderr
        check_barriers(lines)
        return Played(settled(result), records)

    def typed(self, *words: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """A line of shell."""
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=2 * PATIENCE,
            env=self.node.environment(env), cwd=self.node.scratch, user=NOBODY.pw_uid, group=NOBODY.pw_gid,
            extra_groups=[],
        )  # fmt: skip

    def states(self, before: int, *, steps: bool) -> list[str]:
        """Of the jobs that came after the one with the number `before`; of a run its step's, which may be a record
        where its job has none.
        """
        if steps:
            return [str(step["state"]) for step in self.ended() if int(str(step["job"])) > before]
        told = json.loads(self.node.nodectl("acct", "--json", "-X").stdout)["jobs"]
        return sorted(str(one["state"]) for one in told if int(one["job"]) > before)

    def written(self, path: str) -> list[str]:
        """What a job wrote into its file, which goes."""
        file = self.node.scratch / path
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        file.unlink(missing_ok=True)
        return _written(text.replace(str(self.at), "@").replace(NOBODY.pw_name, RECORDED_USER))

    def try_tracer(self) -> list[dict[str, Any]]:
        """What `nodectl spank try` of the tracer has it write down."""
        os.truncate(self.out, 0)
        tracer = str(self.at / f"plugin/trace{self.suffix}")
        done = self.node.nodectl("spank", "try", "--user", NOBODY.pw_name, tracer, f"out={self.out}", "calls=1")
        assert done.returncode == 0, done.stdout + done.stderr
        return self.records()

    def records(self) -> list[dict[str, Any]]:
        """What the tracers wrote down; of a job_epilog's line, which comes when the command has ended, there may be a
        part.
        """
        text = self.out.read_text(encoding="utf-8", errors="surrogateescape").replace(str(self.at), "@")
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def ended(self) -> list[dict[str, object]]:
        return self.node.call("List", ended=2)["steps"]  # type: ignore[return-value]

    def last_job(self) -> int:
        return max((int(str(step["job"])) for step in self.ended()), default=0)


class Theatres:
    """One theatre for each language. Both play a scenario at the same time, as most of its time is waiting."""

    def __init__(self, theatres: Mapping[str, Theatre]) -> None:
        self.theatres = theatres
        self.pool = ThreadPoolExecutor(len(theatres))
        self.played: dict[str, dict[str, Future[Played]]] = {}
        self.trials: dict[str, Future[list[dict[str, Any]]]] = {}

    def play(self, row: Mapping[str, Any]) -> dict[str, Played]:
        """What came of the scenario in each language; it is played once."""
        name = str(row["scenario"])
        if name not in self.played:
            self.played[name] = {
                language: self.pool.submit(theatre.play, row) for language, theatre in self.theatres.items()
            }
        return {language: played.result() for language, played in self.played[name].items()}

    def tried(self) -> dict[str, list[dict[str, Any]]]:
        """The records of a trial of the tracer, which calls every context, in each language; there is one trial."""
        if not self.trials:
            self.trials = {
                language: self.pool.submit(theatre.try_tracer) for language, theatre in self.theatres.items()
            }
        return {language: trial.result() for language, trial in self.trials.items()}

    def logged(self, language: str) -> str:
        """What the node's processes wrote."""
        return self.theatres[language].node.logged()


@contextlib.contextmanager
def theatres_open() -> Iterator[Theatres]:
    """Started nodes with everything in place; at the end they must be clean."""
    with contextlib.ExitStack() as nodes:
        theatres = {}
        for language, suffix in LANGUAGES.items():
            node = nodes.enter_context(running())
            directories = [str(node.plugins), str(node.dir / "plugin")]
            node.configure(plugstack_config=str(node.dir / "etc/plugstack.conf"), plugin_dir=directories)
            node.restart()
            theatres[language] = Theatre(node, suffix)
        opened = Theatres(theatres)
        with opened.pool:
            yield opened


def check_barriers(lines: list[str]) -> None:
    """The orders between processes that are promised: no code of the user's before the last task_post_fork, the whole
    step's hooks before and after its tasks'.
    """
    steps: dict[str, list[str]] = {}
    for (context, step, hook, _), _ in _with_steps(lines):
        if context == "R":
            steps.setdefault(step, []).append(hook)
    for hooks in steps.values():
        places: dict[str, list[int]] = {}
        for place, hook in enumerate(hooks):
            places.setdefault(hook, []).append(place)
        for earlier, later in (
            ("user_init", "task_init_privileged"),
            ("task_post_fork", "task_init"),
            ("task_exit", "exit"),
        ):
            assert max(places.get(earlier, [-1])) < min(places.get(later, [len(hooks)])), lines
