"""Dependencies of a job on other jobs: reads and writes the text of sbatch's --dependency.

Values only, in the daemon and in planning commands. `waits.py` follows the events.
"""

from __future__ import annotations

import re

from nodectl.model.value_class import dataclass

AFTER, AFTER_OK, AFTER_NOT_OK, AFTER_ANY, AFTER_CORR, EXPAND, SINGLETON = (
    "after", "afterok", "afternotok", "afterany", "aftercorr", "expand", "singleton",
)  # fmt: skip
_KINDS = (AFTER, AFTER_OK, AFTER_NOT_OK, AFTER_ANY, AFTER_CORR, EXPAND)
_TARGET = r"([0-9]{1,10})(?:_(?:([0-9]{1,9})|\*))?(?:\+([0-9]{1,7}))?\Z"  # compiled when it is wanted
_MOST_TERMS = 256


class BadDependency(Exception):
    """An invalid dependency text; str() names the fault."""


@dataclass(frozen=True, slots=True)
class Term:
    """A required event of job `job_id`, or of task `task` of the array `job_id`. `minutes`: the delay after it."""

    kind: str
    job_id: int = 0
    task: int | None = None
    minutes: int = 0

    def __str__(self) -> str:
        if self.kind == SINGLETON:
            return self.kind
        task = "" if self.task is None else f"_{self.task}"
        return f"{self.kind}:{self.job_id}{task}" + (f"+{self.minutes}" if self.minutes else "")


@dataclass(frozen=True, slots=True)
class Dependency:
    """A set of terms: all terms must happen, or any."""

    terms: tuple[Term, ...]
    any: bool = False

    def __str__(self) -> str:
        return ("?" if self.any else ",").join(map(str, self.terms))

    @property
    def expands(self) -> int:
        """The number of the job to be expanded, 0 for none."""
        return next((term.job_id for term in self.terms if term.kind == EXPAND), 0)

    def without(self, done: set[Term]) -> Dependency:
        """Return the dependency without the terms already met."""
        return Dependency(tuple(term for term in self.terms if term not in done), self.any)


def parse(text: str) -> Dependency:
    """Read "afterok:7:8_3,after:9+5", or "afterok:7?afternotok:8" for any of the terms. Raises BadDependency."""
    if "," in text and "?" in text:
        raise BadDependency("',' and '?' cannot be mixed")
    separator = "?" if "?" in text else ","
    terms: list[Term] = []
    for part in text.split(separator):
        kind, *targets = part.strip().split(":")
        kind = kind.lower()
        if kind == SINGLETON and not targets:
            terms.append(Term(SINGLETON))
            continue
        if kind not in _KINDS:
            raise BadDependency(f"{kind[:100]!r} is none of {', '.join(_KINDS)}, {SINGLETON}")
        if not targets:
            raise BadDependency(f"{kind} names no job")
        terms += [_term(kind, target) for target in targets]
        if len(terms) > _MOST_TERMS:
            raise BadDependency(f"more than {_MOST_TERMS} jobs")
    found = Dependency(tuple(dict.fromkeys(terms)), separator == "?")
    if found.expands and (found.any or sum(term.kind == EXPAND for term in found.terms) > 1):
        raise BadDependency(f"a job expands one other job: {EXPAND} stands once, and not with '?'")
    return found


def _term(kind: str, target: str) -> Term:
    match = re.match(_TARGET, target, re.ASCII)
    if match is None:
        raise BadDependency(f"{target[:100]!r} is no job")
    job_id, task, minutes = match.groups()
    if minutes and kind != AFTER:
        raise BadDependency(f"{target!r}: minutes go with {AFTER} alone")
    if kind == AFTER_CORR and task:
        raise BadDependency(f"{target!r}: {AFTER_CORR} names a whole array")
    if kind == EXPAND and not target.isdecimal():
        raise BadDependency(f"{target!r}: {EXPAND} names one job")
    return Term(kind, int(job_id), int(task) if task else None, int(minutes or 0))
