"""The answer to why a job waits: Slurm's word, and words for people. Values, in the daemon and in planning commands."""

from __future__ import annotations

from nodectl.model.value_class import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to why a job waits.

    `reason`: Slurm's word, "" for a job that does not wait. `words`: one sentence. `for_whom`: the jobs for which it
    waits ("job 7 of ann"). `expected_start`: seconds since the epoch, None where unknown. `what_would_help`: what its
    user, or an administrator, could change.
    """

    reason: str
    words: str
    for_whom: tuple[str, ...] = ()
    expected_start: float | None = None
    what_would_help: tuple[str, ...] = ()
