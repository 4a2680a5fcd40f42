"""What came of a trial: for people, for programs, and the exit status."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from nodectl.cli.table import printable
from nodectl.cli.timeline import spent_words, user_name
from nodectl.workbench import fails, witnessed
from nodectl.workbench.contexts import CONTEXTS, Context, short
from nodectl.workbench.inspection import Inspection
from nodectl.workbench.witnessed import Event

if TYPE_CHECKING:
    from nodectl.workbench.trial import Trial
    from nodectl.workbench.trying import Words

FINE, FAILED, USAGE, PARTLY, PROGRAM = range(5)
_REFUSED_WORDS = 255  # of `nodectl run`, for words that it does not know
_COLOURS = {"heading": "1", "failed": "1;31", "faint": "2"}
_ROOTS = ("slurmd", "job_script", "remote")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended; `killed` because a hook in it did not come back."""

    status: int
    stdout: str
    stderr: str
    killed: bool


@dataclass(slots=True)
class Told:
    """What the processes of a trial said: `refused` is why the daemon did not start, `daemon` its log."""

    processes: dict[str, Ended] = field(default_factory=dict)
    record: Mapping[str, Any] | None = None
    refused: str = ""
    daemon: str = ""


@dataclass(slots=True)
class Part:
    """A context, or of job_script one of its two processes."""

    name: str
    context: Context
    events: list[Event]
    missed: list[str]  # hooks that it would have called
    why: str  # why nothing was tried, or what the process said of its failure


class Report:
    """One trial. `status` is the exit status of the command."""

    def __init__(
        self, found: Inspection, trial: "Trial", words: "Words", told: Told, wanted: Sequence[fails.Fail]
    ) -> None:
        self._found = found
        self._trial = trial
        self._words = words
        self._told = told
        self._wanted = wanted
        self.events = witnessed.events(trial.rows())
        self.parts = list(self._parts())
        self.failures = list(self._failures())
        self.status = self._status()

    def _parts(self) -> Iterator[Part]:
        for name, context, calls in _places():
            events = witnessed.of_context(self.events, context, calls)
            missed = witnessed.not_called(events, self._found.hooks, calls)
            yield Part(name, context, events, missed, self._why(context, events, missed))

    def _why(self, context: Context, events: Sequence[Event], missed: Sequence[str]) -> str:
        if not self._as_root and context.name in _ROOTS:
            return "not tried: only root can"
        if self._told.refused and context.name not in ("allocator", "slurmd"):
            return "not tried: the private node did not start"
        if not events and not missed:
            return "it has no hook that is called here" if self._found.hooks else "nothing of it can be called"
        return ""

    @property
    def _as_root(self) -> bool:
        return os.geteuid() == 0

    def _failures(self) -> Iterator[str]:
        """One line for each hook that did not succeed, naming context and hook."""
        for part in self.parts:
            for event in part.events:
                if event.failed:
                    yield f"{part.name}: {short(event.hook)}{_task(event)}: {self._reason(part, event)}"
        if self._told.refused and not any(event.failed for event in self.parts[0].events):
            yield self._own(self._told.refused.splitlines()[-1])
        record = self._told.record
        if record is not None and record["state"] == "NODE_FAIL" and not any(event.failed for event in self.events):
            yield f"remote: {record['reason']}"

    def _reason(self, part: Part, event: Event) -> str:
        if event.rc is not None:
            return self._own(event.why) or f"returned {event.rc}"
        ended = self._told.processes.get(part.name)
        if ended is not None and ended.killed:
            return "took too long and could not be interrupted"
        if ended is not None and ended.status < 0:
            return f"the process died in it: {signal.strsignal(-ended.status)}"
        told = self._own(self._words_about(part)).removeprefix("nodectl daemon: ")
        return "did not come back" + (f": {told}" if told else "; its process ended in it")

    def _words_about(self, part: Part) -> str:
        """What the node said of the end of a process of this context."""
        if part.name == "slurmd":
            return (self._told.refused or self._told.daemon).rpartition("\n")[2]
        record = self._told.record
        if record is None or part.name in ("allocator", "local"):
            return ""
        return str(record.get("epilog", "") if part.name == "job_script_epilog" else record["reason"])

    def _status(self) -> int:
        local = self._told.processes.get("local")
        if self.failures:
            return FAILED
        if any(ended.killed or ended.status < 0 for ended in self._told.processes.values()):
            return FAILED
        if local is not None and self._told.record is None and local.status:
            return USAGE if local.status == _REFUSED_WORDS else FAILED
        if not self._as_root:
            return PARTLY
        return PROGRAM if local is None or local.status else FINE

    # For programs.

    def as_json(self) -> Mapping[str, Any]:
        """Everything as one document."""
        return {
            "plugin": self._trial.path,
            "copied": self._trial.copied,
            "name": self._found.name,
            "arguments": self._words.arguments,
            "options": self._words.options,
            "contexts": {
                part.name: {
                    "why": part.why,
                    "events": [_event_as_json(event) for event in part.events],
                    "not_called": part.missed,
                }
                for part in self.parts
            },
            "processes": {name: asdict(ended) for name, ended in self._told.processes.items()},
            "daemon": {"refused": self._told.refused, "log": self._told.daemon},
            "program": self._words.program,
            "step": self._told.record,
            "fails": [
                {"context": fail.context.name, "hook": fail.hook, "value": fail.value, "costs": self._costs(fail)}
                for fail in self._wanted
            ],
            "failures": self.failures,
            "exit_status": self.status,
        }

    def _costs(self, fail: fails.Fail) -> str:
        return fails.costs(fail.context, fail.hook)

    # For people.

    def text(self, *, colour: bool) -> list[str]:
        """Everything as lines."""
        lines = [self._title()]
        if self._trial.copied:
            lines.append(f"tried is a copy of root's: as it lies there root refuses it: {self._trial.copied}")
        paint = _painter(colour)
        for part in self.parts:
            lines += ["", paint("heading", f"{part.name}: {part.context.process}")]
            lines += [f"  {line}" for line in self._part(part, paint)]
        lines += ["", *self._program(paint), *self._replaced(), *self._conclusion(paint)]
        return [self._own(line) for line in lines]

    def _title(self) -> str:
        words = [self._trial.path, *self._words.arguments, *self._words.options, "--", *self._words.program]
        return printable(f"{self._found.name or 'plugin'}: {' '.join(words)}")

    def _part(self, part: Part, paint: "Any") -> Iterator[str]:
        if part.why:
            yield part.why
        wide = max((len(_called(event)) for event in part.events), default=0)
        whose = max((len(_who(event)) for event in part.events), default=0)
        pid = 0
        for event in part.events:
            if event.pid != pid:
                pid = event.pid
                yield paint("faint", f"pid {pid}")
            said = paint("failed", self._said(part, event)) if event.failed else self._said(part, event)
            spent = "" if event.rc is None else spent_words(event.us)
            yield f"  {_called(event):{wide}}  {_who(event):{whose}}  {spent:>9}  {said}".rstrip()
            yield from (f"      {printable(line)}" for line in _happened(event))
        if part.missed and not part.why:
            yield f"not called: {', '.join(map(short, part.missed))}"
        ended = self._told.processes.get(part.name)
        yield from (f"says: {printable(line)}" for line in (ended.stderr.splitlines() if ended else ()))

    def _said(self, part: Part, event: Event) -> str:
        if event.rc is None:
            return self._reason(part, event)
        if event.replaced:
            return f"rc {event.rc} in place of {event.returned}"
        return f"rc {event.rc}" + (
            f": {printable(event.why)}" if event.why and event.why != f"returned {event.rc}" else ""
        )

    def _program(self, paint: "Any") -> Iterator[str]:
        local = self._told.processes.get("local")
        if self._as_root and local is not None:
            yield paint("heading", printable(self._ran(local)))
            yield from (f"  prints: {printable(line)}" for line in local.stdout.splitlines())
        log = self._told.refused or self._told.daemon
        if log:
            yield paint("heading", "the node's log:")
            yield from (f"  {printable(line)}" for line in log.splitlines())

    def _ran(self, local: Ended) -> str:
        record = self._told.record
        if record is None:
            return f"nodectl run: exit status {local.status}, no step"
        reason = f": {record['reason']}" if record["reason"] else ""
        epilog = f"; epilog: {record['epilog']}" if record.get("epilog") else ""
        return f"nodectl run: exit status {local.status}, step {record['state']}{reason}{epilog}"

    def _replaced(self) -> Iterator[str]:
        """For each --fail the words of the table of hooks beside what came of it."""
        for fail in self._wanted:
            parts = [part for part in self.parts if part.context is fail.context]
            done = any(event.replaced for part in parts for event in part.events if event.hook == fail.hook)
            yield f"--fail {fail}" + ("" if done else ": it was not called")
            yield f"  said of a required plugin: {self._costs(fail)}"
            yield f"  what came: {printable(self._came(fail))}"
            missed = [f"{part.name}: {', '.join(map(short, part.missed))}" for part in self.parts if part.missed]
            yield f"  what did not run: {'; '.join(missed) or 'nothing'}"

    def _came(self, fail: fails.Fail) -> str:
        if self._told.refused:
            return f"the daemon did not start: {self._told.refused.splitlines()[-1]}"
        ended = self._told.processes.get("allocator" if fail.context.name == "allocator" else "local")
        if ended is None:
            return "nothing"
        return (
            f"exit status {ended.status}" if not self._as_root or fail.context.name == "allocator" else self._ran(ended)
        )

    def _conclusion(self, paint: "Any") -> Iterator[str]:
        for failure in self.failures:
            yield paint("failed", printable(f"failed: {failure}"))
        yield {
            FINE: "every hook succeeded, and so did the program",
            FAILED: "not every hook succeeded" if self.failures else "the trial failed, see above",
            USAGE: "the words make no sense, see above",
            PARTLY: "what could be tried succeeded; the other contexts need root",
            PROGRAM: "every hook succeeded; the program did not",
        }[self.status]

    def _own(self, text: str) -> str:
        """Without the places of the trial, which are gone; of root's copy the author's name."""
        named = text.replace(self._trial.plugin, self._trial.path) if self._trial.copied else text
        return named.replace(f"{self._trial.directory}/", "")


def _places() -> Iterator[tuple[str, Context, Sequence[str]]]:
    """The contexts in the order of a node's life; a prolog comes before its job, the epilog behind it."""
    for context in CONTEXTS:
        if context.name == "job_script":
            yield "job_script_prolog", context, context.calls[:1]
        else:
            yield context.name, context, context.calls
    yield from (("job_script_epilog", c, c.calls[1:]) for c in CONTEXTS if c.name == "job_script")


def _event_as_json(event: Event) -> Mapping[str, Any]:
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
        "messages": [{"level": call.level, "text": _text_of(call)} for call in event.calls if call.level],
        "environment": event.changes,
    }


def _happened(event: Event) -> Iterator[str]:
    """Calls and messages in their order, then what is new of the environment."""
    for call in event.calls:
        yield f'{call.level}: "{_text_of(call)}"' if call.level else str(call)
    for sign, kind in (("+", "added"), ("~", "changed")):
        yield from (f"{sign} {name}={value}" for name, value in event.changes.get(kind, {}).items())
    yield from (f"- {name}" for name in event.changes.get("removed", ()))


def _text_of(call: witnessed.Call) -> str:
    return " ".join(map(str, call.arguments))


def _called(event: Event) -> str:
    value = ""
    if event.hook == fails.OPTION:
        value = f"({', '.join('NULL' if one is None else str(one) for one in event.arguments)})"
    return printable(short(event.hook) + value + _task(event))


def _task(event: Event) -> str:
    return "" if event.task is None else f"[{event.task}]"


def _who(event: Event) -> str:
    real, effective, _, _ = event.who
    return user_name(real) if real == effective else f"{user_name(real)} as {user_name(effective)}"


def _painter(colour: bool) -> Any:
    def paint(what: str, text: str) -> str:
        return f"\x1b[{_COLOURS[what]}m{text}\x1b[0m" if colour and text else text

    return paint
