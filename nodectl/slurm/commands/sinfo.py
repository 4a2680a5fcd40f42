"""sinfo: the machine as a node of a partition."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from nodectl.client.command import GlobalOptions
from nodectl.client.render.terminal import put
from nodectl.client.session import Session
from nodectl.model.words import moment
from nodectl.slurm.commands import machine_facts, reservations
from nodectl.slurm.commands.column_format import Field, Layout, Row, by_letters, by_names, lines_of
from nodectl.slurm.commands.command_line import HELP, again_and_again, read_line, tell_settings
from nodectl.slurm.commands.host_names import expanded
from nodectl.slurm.commands.machine_facts import gres, reason, reason_user, sharing, short_state, state
from nodectl.slurm.commands.option_words import ARGUMENT, Given, Option
from nodectl.slurm.commands.time_words import limit, line_of_now

_TABLE = (
    Option("all", "a", text="all partitions (there is one)"),
    Option("dead", "d", text="only nodes that do not answer: none"),
    Option("format", "o", ARGUMENT, "columns: %[.][width]letter"),
    Option("Format", "O", ARGUMENT, "columns: name[:[.]width],..."),
    Option("iterate", "i", ARGUMENT, "again every so many seconds"),
    Option("json", "", text="one JSON object"),
    Option("list-reasons", "R", text="why the node takes no jobs"),
    Option("long", "l", text="more columns"),
    Option("Node", "N", text="a line for each node"),
    Option("nodes", "n", ARGUMENT, "these nodes"),
    Option("noheader", "h", text="no line of headers"),
    Option("partition", "p", ARGUMENT, "any partition: all names are the one that there is"),
    Option("reservation", "T", text="reservations"),
    Option("states", "t", ARGUMENT, "nodes in these states"),
    Option("summarize", "s", text="a line for each partition"),
    *HELP,
    Option("clusters", "M", ARGUMENT),
    Option("exact", "e"),
    Option("federation"),
    Option("hide"),
    Option("local"),
    Option("noconvert"),
    Option("responding", "r"),
    Option("sort", "S", ARGUMENT),
)


def _used(row: Row) -> str:
    busy, idle, other = (1, 0, 0) if row["cpus_used"] else (0, 1, 0)
    if state(row) == "drained":
        busy, idle, other = 0, 0, 1
    return f"{busy}/{idle}/{other}/1"


def _cpus(row: Row) -> str:
    free = row["cpus"] - row["cpus_used"]
    idle, other = (0, free) if state(row).startswith("drain") else (free, 0)
    return f"{row['cpus_used']}/{idle}/{other}/{row['cpus']}"


def _constant(text: str) -> Callable[[Row], object]:
    return lambda row: text


def _features(row: Row) -> str:
    return ",".join(row.get("features") or ()) or "(null)"


FIELDS = (
    Field("a", "Available", "AVAIL", _constant("up")),
    Field("A", "NodeAI", "NODES(A/I)", lambda row: "/".join(_used(row).split("/")[:2])),
    Field("b", "features_act", "ACTIVE_FEATURES", _features),
    Field("B", "MaxCPUsPerNode", "MAX_CPUS_PER_NODE", _constant("UNLIMITED")),
    Field("c", "CPUs", "CPUS", lambda row: row["cpus"]),
    Field("C", "CPUsState", "CPUS(A/I/O/T)", _cpus),
    Field("d", "Disk", "TMP_DISK", _constant("0")),
    Field("D", "Nodes", "NODES", _constant("1")),
    Field("e", "FreeMem", "FREE_MEM", lambda row: row["free"]),
    Field("E", "Reason", "REASON", reason),
    Field("f", "Features", "AVAIL_FEATURES", _features),
    Field("F", "NodeAIOT", "NODES(A/I/O/T)", _used),
    Field("g", "Groups", "GROUPS", _constant("all")),
    Field("G", "Gres", "GRES", gres),
    Field("h", "OverSubscribe", "OVERSUBSCRIBE", sharing),
    Field("H", "Timestamp", "TIMESTAMP", lambda row: moment(row.get("reason_time"), "Unknown")),
    Field("i", "", "RESERVATION", _constant("")),
    Field("I", "PriorityJobFactor", "PRIO_JOB_FACTOR", _constant("1")),
    Field("l", "Time", "TIMELIMIT", lambda row: limit(row["max_time"]).replace("UNLIMITED", "infinite")),
    Field("L", "DefaultTime", "DEFAULTTIME", lambda row: limit(row["default_time"] or 0).replace("UNLIMITED", "n/a")),
    Field("m", "Memory", "MEMORY", lambda row: row["memory"]),
    Field("M", "PreemptMode", "PREEMPT_MODE", _constant("OFF")),
    Field("n", "NodeHost", "HOSTNAMES", lambda row: row["host"]),
    Field("N", "NodeList", "NODELIST", lambda row: row["name"]),
    Field("o", "NodeAddr", "NODE_ADDR", lambda row: row["host"]),
    Field("O", "CPUsLoad", "CPU_LOAD", lambda row: f"{row['load']:.2f}"),
    Field("p", "PriorityTier", "PRIO_TIER", _constant("1")),
    Field("P", "Partition", "PARTITION", lambda row: f"{row['partition']}*"),
    Field("r", "Root", "ROOT", _constant("no")),
    Field("R", "PartitionName", "PARTITION", lambda row: row["partition"]),
    Field("s", "Size", "JOB_SIZE", _constant("1-infinite")),
    Field("S", "AllocNodes", "ALLOCNODES", _constant("all")),
    Field("t", "StateCompact", "STATE", short_state),
    Field("T", "StateLong", "STATE", state),
    Field("u", "User", "USER", reason_user),
    Field("U", "UserLong", "USER", lambda row: f"{reason_user(row)}({row.get('reason_uid') or 0})"),
    Field("v", "Version", "VERSION", lambda row: row["release"]),
    Field("V", "Cluster", "CLUSTER", lambda row: row["cluster"]),
    Field("w", "Weight", "WEIGHT", _constant("1")),
    Field("X", "Sockets", "SOCKETS", lambda row: row["sockets"]),
    Field("Y", "Cores", "CORES", lambda row: row["cores_per_socket"]),
    Field("Z", "Threads", "THREADS", lambda row: row["threads_per_core"]),
    Field("z", "SocketCoreThread", "S:C:T",
          lambda row: f"{row['sockets']}:{row['cores_per_socket']}:{row['threads_per_core']}"),
    Field("", "AllocMem", "ALLOCMEM", lambda row: row["memory_used"]),
    Field("", "Comment", "COMMENT", _constant("(null)")),
    Field("", "Extra", "EXTRA", _constant("(null)")),
    Field("", "GresUsed", "GRES_USED", lambda row: gres(row, "gres_used")),
    Field("", "Port", "PORT", _constant("0")),
)  # fmt: skip


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    given = read_line(words, _TABLE, "[OPTIONS]")
    tell_settings(given, _TABLE)

    def show() -> None:
        with closing(Session(settings, start_private=False)) as session:
            if "reservation" in given:
                put(reservations.table(session))
            else:
                _show(machine_facts.read(session), given)

    return again_and_again(given, show)


def _show(nodes: list[dict[str, Any]], given: Given) -> None:
    found = [node for node in nodes if _is_meant(node, given)]
    if "json" in given:
        print(json.dumps({"nodes": found}, indent=2))
        return
    layout = _layout(given, nodes)
    header = "noheader" not in given
    if "long" in given and header:
        put([line_of_now(time.time())])
    put(lines_of(layout, found, header=header))


def _layout(given: Given, nodes: list[dict[str, Any]]) -> Layout:
    if "Format" in given:
        return by_names(given.value("Format"), FIELDS)
    if "format" in given:
        return by_letters(given.value("format"), FIELDS)
    if names := os.environ.get("SINFO_FORMAT2"):
        return by_names(names, FIELDS)
    name = max((len(str(node["name"])) for node in nodes), default=8)
    part = max((len(str(node["partition"])) + 1 for node in nodes), default=9)
    if "summarize" in given:
        text = "%9P %.5a %.10l %.16F  %N"
    elif "list-reasons" in given:
        text = "%20E %12U %19H %6t %N" if "long" in given else "%20E %9u %19H %N"
    elif "Node" in given and "long" in given:
        text = f"%{max(name, 8)}N %.6D %.{max(part, 9)}P %.11T %.4c %.8z %.6m %.8d %.6w %.8f %20E"
    elif "Node" in given:
        text = f"%{max(name, 8)}N %.6D %.{max(part, 9)}P %6t"
    elif "long" in given:
        text = "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %.11i %N"
    else:
        text = os.environ.get("SINFO_FORMAT") or "%9P %.5a %.10l %.6D %.6t %N"
    return by_letters(text, FIELDS)


def _is_meant(node: dict[str, Any], given: Given) -> bool:
    if "nodes" in given and not machine_facts.names_of(node) & set(expanded(given.value("nodes"))):
        return False
    if "dead" in given or ("list-reasons" in given and not node.get("reason")):
        return False
    wanted = [word.lower().removesuffix("+") for word in given.listed("states")]
    if not wanted or "all" in wanted:
        return True
    own = {state(node), short_state(node), "up", "responding"}
    own |= {"drain", "drng"} if state(node).startswith("drain") else set()
    return bool(own & set(wanted)) or any(state(node).startswith(word) for word in wanted if len(word) > 2)
