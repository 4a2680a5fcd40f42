"""What a run of all rings tells at its end: a table, the slowest tests, what failed and what is unsteady."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rings.ring import Finding, Outcome, Result

SLOWEST = 20
WHY_LINES = 40
# In the order of pytest's last line.
_WORDS = {Outcome.FAILED: "failed", Outcome.PASSED: "passed", Outcome.SKIPPED: "skipped", Outcome.XFAILED: "xfailed",
          Outcome.ERROR: "errors"}  # fmt: skip


def told(findings: Sequence[Finding], seconds: float) -> Iterator[str]:
    """The lines that end a run; the last one has pytest's own form."""
    yield f"{'ring':9} {'result':8} {'seconds':>8} {'CPU':>7}  tests"
    for finding in findings:
        counted = ", ".join(_counted(finding)) or finding.why
        yield f"{finding.ring:9} {finding.result:8} {finding.seconds:8.0f} {finding.cpu:7.0f}  {counted}"
        if finding.why and finding.cases:
            yield f"{'':9} {finding.why}"
    yield from _slowest(findings)
    yield from _skipped(findings)
    yield from _failed(findings)
    yield ""
    counts = Counter(case.outcome for finding in findings for case in finding.cases)
    words = ", ".join(f"{counts[outcome]} {word}" for outcome, word in _WORDS.items() if counts[outcome])
    yield f"===== {words or 'no tests ran'} in {seconds:.2f}s ====="


def _counted(finding: Finding) -> Iterator[str]:
    counts = Counter(case.outcome for case in finding.cases)
    yield from (f"{counts[outcome]} {word}" for outcome, word in _WORDS.items() if counts[outcome])
    if finding.unsteady:
        yield f"{len(finding.unsteady)} unsteady"


def _slowest(findings: Iterable[Finding]) -> Iterator[str]:
    cases = sorted(((case.seconds, finding.ring, case.test) for finding in findings for case in finding.cases),
                   reverse=True)  # fmt: skip
    if cases:
        yield f"\nthe {SLOWEST} slowest tests"
    for seconds, ring, test in cases[:SLOWEST]:
        yield f"{seconds:7.1f} s  {ring:9} {test}"


def _skipped(findings: Iterable[Finding]) -> Iterator[str]:
    reasons = Counter(case.why for finding in findings for case in finding.cases if case.outcome is Outcome.SKIPPED)
    if reasons:
        yield "\nskipped tests, by reason"
    for why, count in reasons.most_common():
        yield f"{count:7}  {why}"


def _failed(findings: Iterable[Finding]) -> Iterator[str]:
    """Each failure with its text: of a long log often the end alone is read, or kept."""
    for finding in findings:
        for case in finding.unsteady:
            yield f"\nUNSTEADY {finding.ring}: {case.test} failed, and passed when it ran again by itself:"
            yield from case.why.splitlines()[:WHY_LINES]
    for finding in findings:
        for case in finding.bad:
            yield f"\n{case.outcome.upper()} {finding.ring}: {case.test}"
            yield from case.why.splitlines()[:WHY_LINES]
        if finding.result is Result.FAILED and not finding.bad:
            yield f"\nFAILED {finding.ring}: {finding.why or 'see its output above'}"
