"""`nodectl node`: show the machine from the jobs' view, and drain or resume the machine."""

import argparse
import json
import time
from typing import Any

from nodectl.client.render.machine_figures import figure_words
from nodectl.client.render.table import pairs, table
from nodectl.client.screen import Screen, add_screen_options, show
from nodectl.client.session import Session
from nodectl.model.device_part import SHARD, as_tres
from nodectl.model.words import moment
from nodectl.placement.machine import figures

_RESUME = ("resume", "undrain")
NODE_HEADER = ("NODE", "STATE", "CPUS USED", "MIB USED", "DEVICES USED", "JOBS", "REASON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl node` to the parser."""
    actions = parser.add_subparsers(dest="action", metavar="list|show|drain|resume")
    shown = actions.add_parser("list", help="one line for the machine (the default)", description="List the machine.")
    more = actions.add_parser("show", help="all that is known of it", description="Show all that is known of it.")
    for one in (parser, shown, more):
        add_screen_options(one)
        one.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help='print one JSON object, {"nodes": [...]}'
        )
    drain = actions.add_parser(
        "drain", help="start no more jobs; running ones go on", description="Start no more jobs; running ones go on."
    )
    drain.add_argument("reason", nargs="+", metavar="REASON", help="why: users whose jobs wait see these words")
    resume = actions.add_parser(_RESUME[0], aliases=_RESUME[1:], help="start jobs again")
    resume.description = "Start jobs again."
    parser.epilog = (
        "What drain says is kept over restarts. Only root and members of the admin group may drain and resume."
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the action. Return 0."""
    session = Session(arguments.settings, start_private=False)
    try:
        if arguments.action == "drain":
            session.call("UpdateNode", state="drain", reason=" ".join(arguments.reason))
            return 0
        if arguments.action in _RESUME:
            session.call("UpdateNode", state="resume")
            return 0
    finally:
        session.close()
    full = arguments.action == "show"
    if "json" in arguments:
        now = {"figures": figures.read().as_json()} if full else {}
        print(json.dumps({"nodes": _nodes(arguments), **now}, indent=2))
        return 0
    return show(arguments, lambda screen: _lines(_nodes(arguments), screen, full=full))


def _nodes(arguments: argparse.Namespace) -> Any:
    session = Session(arguments.settings, start_private=False)
    try:
        return session.call("Nodes")["nodes"]
    finally:
        session.close()


def _lines(nodes: Any, screen: Screen, *, full: bool) -> list[str]:
    if not full:
        return table(NODE_HEADER, map(node_row, nodes), width=screen.width, paint=screen.states("STATE"))
    now = pairs(figure_words(figures.read().as_json(), time.time()))
    return [*(line for node in nodes for line in pairs(_shown(node))), "", *now]


def node_row(node: dict[str, Any]) -> tuple[object, ...]:
    """Return the cells of a node for `NODE_HEADER`."""
    return (
        node["name"], node.get("state", "-"), _used(node, "cpus"), _used(node, "memory"), _devices(node),
        node.get("jobs", "-"), node.get("reason") or "-",
    )  # fmt: skip


def _used(node: dict[str, Any], name: str) -> str:
    whole, used = (
        len(value) if isinstance(value, list) else value or 0 for value in (node.get(name), node.get(f"{name}_used"))
    )
    return f"{used}/{whole}" if whole else "-"


def _devices(node: dict[str, Any]) -> str:
    """Return how many devices jobs hold, also in part, and how many shards: 2/4, 7/20 shards."""
    shards, used = (as_tres(node.get(name) or ()).get(SHARD) for name in ("gres", "gres_used"))
    return f"{_used(node, 'gres')}, {used or 0}/{shards} shards" if shards else _used(node, "gres")


def _shown(node: dict[str, Any]) -> list[tuple[str, object]]:
    """Return each value of the node from the service, times in words."""
    rows: list[tuple[str, object]] = []
    for name, value in node.items():
        if value in (None, "", [], {}) or (name == "reason_uid" and not node.get("reason")):
            continue
        words = moment(value, "-") if name.endswith("_time") else value
        words = ", ".join(map(str, words)) if isinstance(words, list) else words
        words = ", ".join(f"{key} {one}" for key, one in words.items()) if isinstance(words, dict) else words
        rows.append((name.replace("_", " "), words))
    return rows
