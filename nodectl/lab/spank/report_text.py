"""The report of a probe run for people: lines of a screen's width, each fact once.

Output of a process beyond the messages shown at its hooks follows the hooks, as "says" (standard error) and "prints"
(standard output). Long values and long lists are shortened here; `--json` has them whole, up to the probe's own limit.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

from nodectl.lab.spank import injected_failures
from nodectl.lab.spank.probe_log import Call, Event, spelt
from nodectl.lab.spank.report import FAILED, FINE, PARTLY, PROGRAM, USAGE, Ended, Part, Report, task_suffix
from nodectl.model.launch_order import OPTION
from nodectl.model.words import printable, spent_words, user_name
from nodectl.spank.contexts import short

_COLOURS = {"heading": "1", "failed": "1;31", "faint": "2", "warned": "33"}
_LONGEST = 60  # characters of one value
_MOST = 12  # lines of one kind for one hook
_MOST_OUTPUT = 100  # lines of a process
_CONCLUSIONS = {
    USAGE: "the words make no sense, see above",
    PARTLY: "what could be tried succeeded; the other contexts need root",
    PROGRAM: "every hook succeeded; the program did not",
    FINE: "every hook succeeded, and so did the program",
}

Paint = Callable[[str, str], str]


def text(report: Report, *, colour: bool) -> list[str]:
    """Return the whole report as lines."""

    def paint(what: str, words: str) -> str:
        return f"\x1b[{_COLOURS[what]}m{words}\x1b[0m" if colour and words else words

    return [report.own(line) for line in _lines(report, paint)]


def _lines(report: Report, paint: Paint) -> Iterator[str]:
    words = report.words
    line = shlex.join([report.path, *words.arguments, *words.run_options, *words.options, "--", *words.program])
    yield printable(f"{report.found.name or 'plugin'}: {line}")
    if report.copied:
        yield f"root refuses this file, so a copy of root's is run: {report.copied}"
    for part in report.parts:
        yield ""
        heading = paint("heading", f"{part.name}:")
        yield f"{heading} {part.why or part.context.process}"
        yield from (f"  {line}" for line in _part(report, part, paint))
    yield ""
    yield from _program(report, paint)
    yield from _replaced(report)
    yield from _conclusion(report, paint)


def _part(report: Report, part: Part, paint: Paint) -> Iterator[str]:
    wide = max((len(_called(event)) for event in part.events), default=0)
    whose = max((len(_who(event)) for event in part.events), default=0)
    pid = 0
    for event in part.events:
        if event.pid != pid:
            pid = event.pid
            yield paint("faint", f"pid {pid}")
        said = _result(report, part, event)
        spent = "" if event.rc is None else spent_words(event.us)
        shown = paint("failed", said) if event.failed else said
        yield f"  {_called(event):{wide}}  {_who(event):{whose}}  {spent:>9}  {shown}".rstrip()
        yield from (f"      {line}" for line in _happened(report, part, event, paint))
    if part.missed and not part.why:
        yield f"not called: {', '.join(map(short, part.missed))}"
    ended = report.result.processes.get(part.name)
    if ended is not None:
        yield from (f"says: {line}" for line in _not_told(report, ended.stderr))
        if part.name == "allocator" or not report.as_root:
            yield from (f"prints: {line}" for line in _not_told(report, ended.stdout))


def _result(report: Report, part: Part, event: Event) -> str:
    if event.rc is None:
        return printable(report.reason(part, event))
    if event.replaced:
        return f"rc {event.rc} in place of {event.returned or 0}"
    return f"rc {event.rc}"


def _happened(report: Report, part: Part, event: Event, paint: Paint) -> Iterator[str]:
    """Yield calls and messages in order, the reason of a failure, changes of the environment, leftover processes and
    output.
    """
    yield from _first(_call(call) for call in event.calls)
    reason = report.reason(part, event) if event.rc else ""
    if reason and reason != f"returned {event.rc}":
        yield paint("failed", printable(reason))
    signs = (("+", "added"), ("~", "changed"))
    changed = [(sign, item) for sign, kind in signs for item in event.changes.get(kind, {}).items()]
    lines = [f"{sign} {name}={_shortened(value)}" for sign, (name, value) in changed]
    yield from _first([*lines, *(f"- {name}" for name in event.changes.get("removed", ()))])
    if event.children:
        yield paint("warned", f"leaves behind: {_processes(event.children)}")
    if written := report.written(event):
        yield paint("warned", f"writes to standard output: {_shortened(written.rstrip())}")


def _call(call: Call) -> str:
    if call.level:
        return f'{call.level}: "{" ".join(map(str, call.arguments))}"'
    return spelt(call, _shortened)


def _first(lines: Iterable[str], most: int = _MOST) -> list[str]:
    whole = [printable(line) for line in lines]
    if len(whole) <= most + 1:
        return whole
    return [*whole[:most], f"... and {len(whole) - most} more, see --json"]


def _shortened(value: object) -> str:
    words = printable(str(value))
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."


def _processes(pids: Sequence[int]) -> str:
    return f"process {pids[0]}" if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"


def _not_told(report: Report, output: str) -> list[str]:
    """Return the output lines of a process without lines already shown at a hook: messages, failures, output."""
    told = {line for event in report.events for call in event.calls if call.level for line in _as_printed(call)}
    told |= {line for event in report.events for line in report.written(event).splitlines()}
    reasons = report.reasons()
    lines = output.splitlines()
    news = (line for line in lines if line.removeprefix("nodectl: ") not in told)
    return _first((line for line in news if not any(reason in line for reason in reasons)), _MOST_OUTPUT)


def _as_printed(call: Call) -> list[str]:
    level = f"{call.level}: " if call.level == "error" or call.level.startswith("debug") else ""
    return [level + line for line in " ".join(map(str, call.arguments)).splitlines()]


def _program(report: Report, paint: Paint) -> Iterator[str]:
    local = report.result.processes.get("local")
    if report.as_root and local is not None:
        yield paint("heading", printable(ran(report, local)))
        yield from (f"  prints: {line}" for line in _not_told(report, local.stdout))
    log = _not_told(report, report.result.refused or report.result.daemon)
    if log:
        yield paint("heading", "the node's log:")
        yield from (f"  {line}" for line in log)


def ran(report: Report, local: Ended) -> str:
    """Return the result of the step's command in a line; the reason only if no hook's failure gives the same reason."""
    record = report.result.record
    how = f"killed by {local.signal}" if local.signal else f"exit status {local.status}"
    if record is None:
        return f"nodectl run: {how}, no step"
    reason = str(record["reason"])
    told = any(event.failed and event.why and event.why in reason for event in report.events)
    epilog = f"; epilog: {record['epilog']}" if record.get("epilog") else ""
    return f"nodectl run: {how}, step {record['state']}{f': {reason}' if reason and not told else ''}{epilog}"


def _replaced(report: Report) -> Iterator[str]:
    """Yield, for each --fail, the documented consequence and the actual result."""
    for fail in report.wanted:
        parts = [part for part in report.parts if part.context is fail.context]
        done = any(event.replaced for part in parts for event in part.events if event.hook == fail.hook)
        yield f"--fail {fail}" + ("" if done else ": it was not called")
        yield f"  said of a required plugin: {injected_failures.costs(fail.context, fail.hook)}"
        yield f"  what came: {printable(_came(report, fail))}"
        missed = [f"{part.name}: {', '.join(map(short, part.missed))}" for part in report.parts if part.missed]
        yield f"  what did not run: {'; '.join(missed) or 'nothing'}"


def _came(report: Report, fail: injected_failures.Fail) -> str:
    if report.result.refused:
        return f"the daemon did not start: {report.result.refused.splitlines()[-1]}"
    alone = fail.context.name == "allocator" or not report.as_root
    ended = report.result.processes.get("allocator" if fail.context.name == "allocator" else "local")
    if ended is None:
        return "nothing"
    return f"exit status {ended.status}" if alone else ran(report, ended)


def _conclusion(report: Report, paint: Paint) -> Iterator[str]:
    yield from (paint("failed", printable(f"failed: {failure}")) for failure in report.failures)
    count = len(report.failures)
    failed = f"{count} failure{'s' if count > 1 else ''}" if count else "the probe run failed, see above"
    yield failed if report.status == FAILED else _CONCLUSIONS[report.status]


def _called(event: Event) -> str:
    value = ""
    if event.hook == OPTION.call:
        value = f"({', '.join('NULL' if one is None else _shortened(one) for one in event.arguments)})"
    return printable(short(event.hook) + value + task_suffix(event))


def _who(event: Event) -> str:
    real, effective, _, _ = event.who
    return user_name(real) if real == effective else f"{user_name(real)} as {user_name(effective)}"
