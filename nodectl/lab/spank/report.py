"""The report of a probe run: failures, exit status, and everything as JSON. For people: `report_text`."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from nodectl.lab.spank import injected_failures, probe_log
from nodectl.lab.spank.command_line import CommandLine
from nodectl.lab.spank.probe_log import Event
from nodectl.lab.spank.probe_run import ProbeRun
from nodectl.model.states import NODE_FAIL
from nodectl.spank.contexts import CONTEXTS, Context, short
from nodectl.spank.inspection.findings import Inspection

FINE, FAILED, USAGE, PARTLY, PROGRAM = range(5)
_REFUSED_WORDS = 255  # of `nodectl run`, for unknown words
_ROOTS = ("slurmd", "job_script", "remote")


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process; `killed` if a hook in the process did not return in time."""

    status: int
    stdout: str
    stderr: str
    killed: bool

    @property
    def signal(self) -> str:
        """The name of the deadly signal, "" if the process exited."""
        return str(signal.strsignal(-self.status)) if self.status < 0 else ""


@dataclass(slots=True)
class RunResult:
    """The output of a probe run's processes: `refused` is the reason if the daemon did not start, `daemon` the log."""

    processes: dict[str, Ended] = field(default_factory=dict)
    record: Mapping[str, Any] | None = None
    refused: str = ""
    daemon: str = ""


@dataclass(slots=True)
class Part:
    """A context, or of job_script either of the two processes."""

    name: str
    context: Context
    events: list[Event]
    missed: list[str]  # hooks that it would have called
    why: str  # why nothing was tried, or the process's words about its failure


class Report:
    """The report of a run. `status` is the exit status of the command."""

    def __init__(
        self,
        found: Inspection,
        run: ProbeRun,
        words: CommandLine,
        result: RunResult,
        wanted: Sequence[injected_failures.Fail],
    ) -> None:
        self.found = found
        self.words = words
        self.result = result
        self.wanted = wanted
        self.as_root = os.geteuid() == 0
        self._run = run
        self.events = probe_log.events(run.rows())
        self._written = {id(event): run.written(*event.stdout) for event in self.events if len(event.stdout) == 3}
        self.parts = list(self._parts())
        self.failures = [*self._of_the_file(), *self._failures()]
        self.status = self._status()

    @property
    def path(self) -> str:
        """The plugin's path as given on the command line."""
        return self._run.path

    @property
    def copied(self) -> str:
        """The reason why a copy of the plugin was loaded, "" if the file itself was loaded."""
        return self._run.copied

    def written(self, event: Event) -> str:
        """Return the text written by a hook to standard output, as far as the run kept the text."""
        return self._written.get(id(event), "")

    def reasons(self) -> list[str]:
        """Return the reasons of all failures, from the hooks and from the record of the step."""
        record = self.result.record
        step = [str(record["reason"]), str(record.get("epilog", ""))] if record is not None else []
        return [reason for reason in (*step, *(event.why for event in self.events)) if reason]

    def _parts(self) -> Iterator[Part]:
        for name, context, calls in _places():
            events = probe_log.of_context(self.events, context, calls)
            missed = probe_log.not_called(events, self.found.hooks, calls)
            yield Part(name, context, events, missed, self._why(context, events, missed))

    def _why(self, context: Context, events: Sequence[Event], missed: Sequence[str]) -> str:
        if not self.as_root and context.name in _ROOTS:
            return "not tried: only root can"
        if self.result.refused and context.name not in ("allocator", "slurmd"):
            return "not tried: the private node did not start"
        if not events and not missed:
            return "it has no hook that is called here" if self.found.hooks else "nothing of it can be called"
        return ""

    def _of_the_file(self) -> Iterator[str]:
        """Yield the file's errors found by `nodectl spank check`, without errors already reported at load."""
        said = [event.why for event in self.events if event.hook == "load" and event.failed]
        for error in self.found.errors:
            text = error.removeprefix(f"{self.found.path}:").lstrip()
            if not any(text in why for why in said):
                yield f"check: {self.own(error)}"

    def _failures(self) -> Iterator[str]:
        """Yield a line for each failed hook, with context and hook."""
        for part in self.parts:
            for event in part.events:
                if event.failed:
                    yield f"{part.name}: {short(event.hook)}{task_suffix(event)}: {self.reason(part, event)}"
        if self.result.refused and not any(event.failed for event in self.parts[0].events):
            yield self.own(self.result.refused.splitlines()[-1])
        record = self.result.record
        if record is not None and record["state"] == NODE_FAIL and not any(event.failed for event in self.events):
            yield f"remote: {record['reason']}"

    def reason(self, part: Part, event: Event) -> str:
        """Return the reason why a hook failed, without plugin and hook names where possible."""
        if event.rc is not None:
            said = self.own(event.why).removeprefix(f"plugin {self.found.name}: {event.hook}: ")
            return said or f"returned {event.rc}"
        ended = self.result.processes.get(part.name)
        if ended is not None and ended.killed:
            return "took too long and could not be interrupted"
        status = self._status_of(event.pid)
        if ended is not None and ended.status < 0:
            return f"the process died in it: {ended.signal}"
        if status is not None and os.WIFSIGNALED(status):
            return f"the process died in it: {signal.strsignal(os.WTERMSIG(status))}"
        if status is not None:
            return "it ended the process"  # the task's line has the status; for a task 0 is no failure
        told = self.own(self._words_about(part)).removeprefix("nodectl daemon: ")
        told = told.removeprefix(f"plugin {self.found.name}: {event.hook}: ")
        return "did not come back" + (f": {told}" if told else "; its process ended in it")

    def _status_of(self, pid: int) -> int | None:
        """Return the wait(2) status of a task, None for any process but a task."""
        tasks = self.result.record["tasks"] if self.result.record is not None else ()
        return next((task["status"] for task in tasks if task["pid"] == pid), None)

    def _words_about(self, part: Part) -> str:
        """Return the node's words about the end of a process of this context."""
        if part.name == "slurmd":
            return (self.result.refused or self.result.daemon).rpartition("\n")[2]
        record = self.result.record
        if record is None or part.name in ("allocator", "local"):
            return ""
        return str(record.get("epilog", "") if part.name == "job_script_epilog" else record["reason"])

    def _status(self) -> int:
        local = self.result.processes.get("local")
        if self.failures:
            return FAILED
        if any(ended.killed or ended.status < 0 for ended in self.result.processes.values()):
            return FAILED
        if local is not None and self.result.record is None and local.status:
            return USAGE if local.status == _REFUSED_WORDS else FAILED
        if not self.as_root:
            return PARTLY
        return PROGRAM if local is None or local.status else FINE

    def as_json(self) -> Mapping[str, Any]:
        """Return the whole report as values for JSON."""
        return {
            "plugin": self._run.path,
            "copied": self._run.copied,
            "name": self.found.name,
            "arguments": self.words.arguments,
            "options": self.words.options,
            "run_options": self.words.run_options,
            "check": [asdict(finding) for finding in self.found.findings],
            "contexts": {
                part.name: {
                    "why": part.why,
                    "events": [self._event_as_json(event) for event in part.events],
                    "not_called": part.missed,
                }
                for part in self.parts
            },
            "processes": {name: asdict(ended) for name, ended in self.result.processes.items()},
            "daemon": {"refused": self.result.refused, "log": self.result.daemon},
            "program": self.words.program,
            "step": self.result.record,
            "fails": [
                {
                    "context": fail.context.name,
                    "hook": fail.hook,
                    "value": fail.value,
                    "costs": injected_failures.costs(fail.context, fail.hook),
                }
                for fail in self.wanted
            ],
            "failures": self.failures,
            "exit_status": self.status,
        }

    def _event_as_json(self, event: Event) -> Mapping[str, Any]:
        return {
            "hook": event.hook,
            "pid": event.pid,
            "task": event.task,
            **dict(zip(("uid", "euid", "gid", "egid"), event.who, strict=True)),
            "rc": event.rc,
            "why": event.why,
            "us": event.us,
            "replaced": event.replaced,
            "returned": event.returned,
            "arguments": event.arguments,
            "calls": [{**asdict(call), "text": str(call)} for call in event.calls if not call.level],
            "messages": [
                {"level": call.level, "text": " ".join(map(str, call.arguments))} for call in event.calls if call.level
            ],
            "environment": event.changes,
            "stdout": self.written(event),
            "children": list(event.children),
        }

    def own(self, text: str) -> str:
        """Return the text without the run's directory, and with the author's file in place of root's copy."""
        named = text.replace(self._run.plugin, self._run.path) if self._run.copied else text
        return named.replace(f"{self._run.directory}/", "")


def _places() -> Iterator[tuple[str, Context, Sequence[str]]]:
    """Yield the contexts in the order of a node's life; a prolog comes before the job, the epilog after the job."""
    for context in CONTEXTS:
        if context.name == "job_script":
            yield "job_script_prolog", context, context.calls[:1]
        else:
            yield context.name, context, context.calls
    yield from (("job_script_epilog", c, c.calls[1:]) for c in CONTEXTS if c.name == "job_script")


def task_suffix(event: Event) -> str:
    """Return [N] for a hook called for task N, else ""."""
    return "" if event.task is None else f"[{event.task}]"
