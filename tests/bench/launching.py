"""What many tasks of one step cost, beside as many programs started at once, and a command that has no service."""

from __future__ import annotations

from pathlib import Path

from bench.clients import Client
from bench.programs import TRUE, spawn, spawn_at_once
from bench.rows import Row, in_turns
from rootful.node import Node

_TASKS = (8, 32, 128, 512)
_FEWEST_ROUNDS = 3


def tasks(rounds: int, client: Client) -> list[Row]:
    """A step's n tasks, without what a step of one costs, beside n programs."""
    rows = []
    for count in _TASKS:
        taken = in_turns(
            max(rounds // count, _FEWEST_ROUNDS),
            one=client.step,
            step=lambda count=count: client.step(count),  # type: ignore[misc]
            programs=spawn_at_once(count, TRUE),
        )
        what = f"{count} tasks more than one step / posix_spawn of {count}"
        rows.append(Row(what, taken["step"] - taken["one"], taken["programs"], "s", 1.3))
    return rows


def private_node(rounds: int, runtime_dir: Path, nodectl: str) -> Row:
    """`nodectl run` where no service runs: it starts one for itself."""
    node = Node(runtime_dir=str(runtime_dir))
    try:
        taken = in_turns(rounds, run=spawn(nodectl, "--config", str(node.config_path), "run", TRUE))
    finally:
        node.close()
    return Row("nodectl run /bin/true, a private node", 1000 * taken["run"], 0, "ms", 60)
