"""A layout as lines for the terminal: a table of the tasks, and the reason of each place. Pure."""

from collections.abc import Mapping
from typing import Any

from nodectl.client.render.table import table


def lines_of(answer: Mapping[str, Any], *, explain: bool) -> list[str]:
    """Return the layout as lines; with `explain` also the rule, and the reason for each task's place."""
    rows = answer["tasks"]
    columns = [name for name in ("task", "node", "cpus", "mems", "gpus") if any(name in row for row in rows)]
    header = [name.upper() for name in columns] + (["WHY"] if explain else [])
    lines = [f"allocated CPUs: {answer['allocated']}", f"rule: {answer['rule']}", ""]
    cells = [[*(row.get(name, "") for name in columns), *([row["why"]] if explain else [])] for row in rows]
    lines += table(header, cells, right=("TASK",))
    if explain:
        lines += ["", *(f"{name}={value}" for name, value in sorted(answer["env"].items()))]
    return lines
