"""Several programs in a step: the program of each task, with %t and %o in the arguments.

Pure. A row is a list of tasks, as "0-3,7" or "*" for all tasks not named by an earlier row, and an argv, in which %t is
the task's number, and %o its place among those of the row; with True behind it the argv is as it stands.
"""

from nodectl.model.number import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

EVERY_OTHER = "*"
_MOST_NAMED = 100_000  # tasks, in all rows
_MOST_WRITTEN = 16 << 20  # characters of words that differ from task to task


def tasks_of(text: str, ntasks: int) -> "list[int] | None":
    """Return the tasks named by a list, in the list's order; None for no list, or for a task number out of range."""
    found: list[int] = []
    for word in text.split(","):
        first, dash, last = word.partition("-")
        low, high = whole(first, ntasks - 1), whole(last if dash else first, ntasks - 1)
        if low is None or high is None or low > high:
            return None
        found += range(low, high + 1)
        if len(found) > ntasks:  # some twice
            return None
    return found


def wrong_with(programs: "Sequence[Any]", ntasks: int) -> str:
    """Return the error in the rows, "" where each task has a program. The rows must have the shape of rows."""
    left = set(range(ntasks))
    named_in_all = written = 0
    for tasks, argv, *plain in programs:
        named = left if tasks == EVERY_OTHER else tasks_of(tasks, ntasks)
        if named is None:
            return f"{tasks[:40]!r} is no list of the tasks 0 to {ntasks - 1}"
        if not argv or not argv[0]:
            return f"the tasks {tasks[:40]} have no program"
        named_in_all += len(named)
        written += 0 if plain else sum(len(word) for word in argv if "%" in word) * len(named)
        if named_in_all > _MOST_NAMED or written > _MOST_WRITTEN:
            return "it says too much"
        left -= set(named)
    return f"task {min(left)} has no program" if left else ""


def argv_of(programs: "Sequence[Any]", ntasks: int) -> list[list[str]]:
    """Return the argv of each task, from the first row naming the task."""
    found: dict[int, list[str]] = {}
    left = dict.fromkeys(range(ntasks))
    for tasks, argv, *plain in programs:
        for place, task in enumerate(tasks_of(tasks, ntasks) or list(left)):
            if task in left:
                del left[task]
                found[task] = (
                    argv if plain else [word.replace("%t", str(task)).replace("%o", str(place)) for word in argv]
                )
    return [found[task] for task in range(ntasks)]
