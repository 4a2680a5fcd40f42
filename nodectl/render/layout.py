"""A layout for people: a table of the tasks, and why they are where they are. Pure."""

from collections.abc import Mapping
from typing import Any

from nodectl.render.table import table


def lines_of(answer: Mapping[str, Any], *, explain: bool) -> list[str]:
    """The answer for people; with `explain` the rule, and behind each task why."""
    rows = answer["tasks"]
    columns = [name for name in ("task", "node", "cpus", "mems", "gpus") if any(name in row for row in rows)]
    header = [name.upper() for name in columns] + (["WHY"] if explain else [])
    lines = [f"allocated CPUs: {answer['allocated']}", f"rule: {answer['rule']}", ""]
    cells = [[*(row.get(name, "") for name in columns), *([row["why"]] if explain else [])] for row in rows]
    lines += table(header, cells, right=("TASK",))
    if explain:
        lines += ["", *(f"{name}={value}" for name, value in sorted(answer["env"].items()))]
    return lines
