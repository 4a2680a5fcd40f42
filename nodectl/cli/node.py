"""`nodectl node`: the machine as jobs see it, and whether jobs may start on it."""

import argparse
import json
import time
from typing import Any

from nodectl.client.session import Session
from nodectl.machine import figures
from nodectl.render.job_columns import moment_words
from nodectl.render.machine_figures import figure_words
from nodectl.render.table import pairs, table
from nodectl.render.terminal import put, terminal_width

_HEADER = ("NODE", "STATE", "CPUS USED", "MIB USED", "DEVICES USED", "JOBS", "REASON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl node` to its parser."""
    actions = parser.add_subparsers(dest="action", metavar="list|show|drain|resume")
    shown = actions.add_parser("list", help="one line for the machine (the default)", description="List the machine.")
    more = actions.add_parser("show", help="all that is known of it", description="Show all that is known of it.")
    for one in (parser, shown, more):
        one.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help='print one JSON object, {"nodes": [...]}'
        )
    drain = actions.add_parser(
        "drain", help="start no more jobs; running ones go on", description="Start no more jobs; running ones go on."
    )
    drain.add_argument("reason", nargs="+", metavar="REASON", help="words for whom asks why")
    actions.add_parser("resume", help="start jobs again", description="Start jobs again.")
    parser.epilog = (
        "What drain says is kept over restarts. Only root and members of the admin group may drain and resume."
    )


def main(arguments: argparse.Namespace) -> int:
    """Do it; 0."""
    session = Session(arguments.settings, start_private=False)
    try:
        if arguments.action == "drain":
            session.call("UpdateNode", state="drain", reason=" ".join(arguments.reason))
            return 0
        if arguments.action == "resume":
            session.call("UpdateNode", state="resume")
            return 0
        nodes: Any = session.call("Nodes")["nodes"]
    finally:
        session.close()
    full = arguments.action == "show"
    now = figures.read() if full else None
    if "json" in arguments:
        print(json.dumps({"nodes": nodes, **({} if now is None else {"figures": now.as_json()})}, indent=2))
    elif now is None:
        put(table(_HEADER, map(_row, nodes), width=terminal_width()))
    else:
        for node in nodes:
            put(pairs(_shown(node)))
        put(["", *pairs(figure_words(now.as_json(), time.time()))])
    return 0


def _row(node: dict[str, Any]) -> tuple[object, ...]:
    return (
        node["name"], node.get("state", "-"), _used(node, "cpus"), _used(node, "memory"), _used(node, "gres"),
        node.get("jobs", "-"), node.get("reason") or "-",
    )  # fmt: skip


def _used(node: dict[str, Any], name: str) -> str:
    whole, used = (
        len(value) if isinstance(value, list) else value or 0 for value in (node.get(name), node.get(f"{name}_used"))
    )
    return f"{used}/{whole}" if whole else "-"


def _shown(node: dict[str, Any]) -> list[tuple[str, object]]:
    """Each value that the service tells, times in words."""
    rows: list[tuple[str, object]] = []
    for name, value in node.items():
        if value in (None, "", [], {}) or (name == "reason_uid" and not node.get("reason")):
            continue
        words = moment_words(value) if name.endswith("_time") else value
        words = ", ".join(map(str, words)) if isinstance(words, list) else words
        rows.append((name.replace("_", " "), words))
    return rows
