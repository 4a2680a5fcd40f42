"""A cluster of thousands of nodes, simulated: how soon a step starts, how many commands a second, what the leader keeps
and hears, how soon a dead node is noticed. docs/cluster-scale.md says how and what came out.

    ./dev bench --simulated [--nodes 10,100,1000,10000] [--tasks 10000,100000] [--json FILE] [--pictures DIRECTORY]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.scale import pictures, plays
from bench.scale.costs import Measured, measured, told

_MIB = 1 << 20
_DISPATCHED_OVER = 10_000  # nodes


def main() -> int:
    """Measures the costs, plays, prints a table, writes JSON and pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=_numbers, default=[10, 100, 1000, 10_000], help="sizes of the cluster")
    parser.add_argument("--tasks", type=_numbers, default=[10_000, 100_000], help="commands of bulk")
    parser.add_argument("--bulk-nodes", type=int, default=1000, help="nodes on which both run")
    parser.add_argument("--dispatched", type=int, default=1_000_000, help="commands through the dispatcher alone")
    parser.add_argument("--many", type=int, default=0, help="commands by a shortcut, for very many")
    parser.add_argument("--slots", type=int, default=64, help="of each node, for commands")
    parser.add_argument("--task-seconds", type=float, default=0.0, help="how long a task runs")
    parser.add_argument("--latency", type=float, default=50, help="of a link, in microseconds")
    parser.add_argument("--bandwidth", type=float, default=10, help="of a node's interface, in Gbit/s")
    parser.add_argument("--costs", help="a JSON file of an earlier run, whose costs are taken instead of measured ones")
    parser.add_argument("--json", default="cluster.json")
    parser.add_argument("--pictures", help="a directory for them")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # as an agent does
    costs = Measured.of(json.loads(Path(arguments.costs).read_text())["costs"]) if arguments.costs else measured()
    print(*told(costs), "", sep="\n", flush=True)
    found = {
        "costs": costs.as_json(), "cpu": _cpu(), "python": platform.python_version(),
        "latency": arguments.latency * 1e-6, "bandwidth": arguments.bandwidth * 1.25e8, **play(arguments, costs),
    }  # fmt: skip
    Path(arguments.json).write_text(json.dumps(found, indent=1), encoding="utf-8")
    if arguments.pictures:
        pictures.write(found, Path(arguments.pictures))
    return 0


def play(arguments: argparse.Namespace, costs: Measured) -> dict[str, Any]:
    """All plays, told as they end."""
    given = plays.Given(
        costs, latency=arguments.latency * 1e-6, bandwidth=arguments.bandwidth * 1.25e8, task=arguments.task_seconds,
        slots=arguments.slots,
    )  # fmt: skip
    found: dict[str, Any] = {"launches": [], "bulk": [], "deaths": [], "dispatched": {}}
    for count in arguments.nodes:
        with tempfile.TemporaryDirectory(prefix="nodectl-scale-") as directory:
            cluster = given.cluster(count, journal=os.path.join(directory, "journal"))
            found["launches"].append(show_launch(plays.launches(cluster)))
            found["deaths"] += [show_death(one) for one in plays.deaths(cluster)]
            cluster.close()
    if arguments.tasks:
        cluster = given.cluster(arguments.bulk_nodes)
        found["bulk"] = [show_bulk(one) for one in plays.bulk(cluster, given, arguments.tasks)]
        cluster.close()
    if arguments.many:
        cluster = given.cluster(arguments.bulk_nodes)
        found["many"] = plays.many(cluster, given, arguments.many, show_mark)
        print(f"{arguments.many} commands: {found['many']['rate']:.0f} a second")
        cluster.close()
    if arguments.dispatched:
        one = plays.dispatched(_DISPATCHED_OVER, arguments.slots, arguments.dispatched)
        found["dispatched"] = one
        last = one["marks"][-1]
        print(
            f"{one['tasks']} commands through the dispatcher of {one['nodes']} nodes: {1e6 * one['each']:.1f} us each; "
            f"{last['objects']} objects, {last['bytes'] / _MIB:.0f} MiB are kept"
        )
    return found


def show_launch(row: plays.Figures) -> plays.Figures:
    """A line of the table."""
    print(
        f"{row['nodes']:6} nodes: joined in {row['joined']:.2f} s; a step is answered after {row['begun']:.3f} s, its "
        f"tasks have started after {row['started']:.3f} s, it is over after {row['ended']:.3f} s; leader: "
        f"{row['leader_cpu']:.3f} s of CPU, {row['leader_heard']:.0f} messages, {row['leader_in'] / _MIB:.2f} MiB in, "
        f"{row['leader_out'] / _MIB:.2f} MiB out, {row['bytes'] / _MIB:.1f} MiB in memory",
        flush=True,
    )
    return row


def show_bulk(row: plays.Figures) -> plays.Figures:
    """Likewise."""
    print(
        f"{row['tasks']:8} commands on {row['nodes']} nodes: {row['rate']:.0f} a second; leader: {row['leader_heard']} "
        f"messages, {row['leader_objects']} objects; the client's agent: {row['root_cpu']:.2f} s of CPU, "
        f"{row['agent_objects']} objects",
        flush=True,
    )
    return row


def show_mark(row: plays.Figures) -> None:
    """Likewise."""
    agent = f"; the client's agent: {row['agent_bytes'] / _MIB:.0f} MiB" if "agent_bytes" in row else ""
    print(
        f"{row['tasks']:8} commands on {row['nodes']} nodes after {row['seconds']:.1f} s: leader: "
        f"{row['bytes'] / _MIB:.2f} MiB in {row['objects']} objects, {row['leader_heard']} messages, "
        f"{row['leader_in'] / _MIB:.2f} MiB in, {row['leader_out'] / _MIB:.2f} MiB out{agent}; "
        f"{row['cpu']:.0f} s of real CPU",
        flush=True,
    )


def show_death(row: plays.Figures) -> plays.Figures:
    """Likewise."""
    print(f"{row['nodes']:6} nodes: {row['what']}: the leader knows after {row['seconds']:.1f} s", flush=True)
    return row


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    sys.exit(main())
