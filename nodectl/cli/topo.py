"""`nodectl topo`: draw the machine in text or SVG, or print JSON; with the steps on the machine if a service answers.

Reads the hardware itself, as the user who asks; usable CPUs are the CPUs usable by this very process, so that inside a
step it shows the step's own CPUs. The command asks the service for running steps only if there is a service: users see
their own steps, root and the admin group all. Of other jobs they see the CPUs, and what `nodectl queue` shows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.render import machine_svg, machine_text
from nodectl.client.render.machine_figures import figure_words
from nodectl.client.render.occupants import Occupation, held, job_record, jobs_without_steps, occupation
from nodectl.client.render.terminal import write_document
from nodectl.client.screen import Screen, add_screen_options, show
from nodectl.client.session import Session
from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.placement.machine import figures, pci, spec
from nodectl.placement.machine.pci import PciDevice
from nodectl.placement.machine.topology import Topology, read

WIDTH, NARROWEST, WIDEST = 100, 60, 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl topo` to the parser."""
    add_screen_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--svg", metavar="FILE", help="write a picture in SVG to FILE, - for standard output")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--root", metavar="DIR", help="read the sys and proc trees copied from a machine to DIR")
    other.add_argument("--machine", metavar="SPEC|FILE", help="draw another machine")
    parser.epilog = (
        "A machine is a SPEC such as 2s:4c:2t:2n: s sockets, c cores per socket, t threads per core, n NUMA nodes in "
        "all, d dies per socket, b boards in all, and :i at the end to number siblings last; or a FILE that holds what "
        "`lscpu -J -e=CPU,NODE,SOCKET,CORE,CACHE` prints. Of other users' jobs it shows the CPUs; root and admins see "
        "their steps, too."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print or write the machine. Return 0, or 1 with a line on stderr if reading or writing fails."""
    try:
        topology = _machine(arguments)
        devices = () if arguments.machine else pci.read(arguments.root or "/")
        own = not arguments.machine and os.path.realpath(arguments.root or "/") == "/"

        def occupied() -> Occupation:
            return occupation(*_running(arguments)) if own else Occupation()

        def lines(screen: Screen) -> list[str]:
            width = min(max(screen.width or WIDTH, NARROWEST), WIDEST)
            return [*machine_text.draw(topology, occupied(), devices, width=width), *(_now(width) if own else ())]

        if arguments.json:
            found = as_json(topology, occupied(), devices)
            print(json.dumps(found | {"figures": figures.read().as_json()} if own else found, indent=2))
        if arguments.svg:
            write_document(arguments.svg, machine_svg.draw(topology, occupied(), devices))
        elif not arguments.json:
            return show(arguments, lines)
    except OSError as problem:
        return _refuse(f"{problem.filename}: {problem.strerror}" if problem.filename else problem)
    except ValueError as problem:
        return _refuse(problem)
    return 0


def as_json(topology: Topology, occupied: Occupation, devices: Iterable[PciDevice] = ()) -> dict[str, object]:
    """Return all facts as JSON values; CPU sets in list format, sizes in bytes, -1 for an unknown node."""
    return {
        "online": _cpus(topology.online),
        "usable": _cpus(topology.usable),
        "usable_nodes": _cpus(topology.usable_nodes),
        "offline": _cpus(topology.offline),
        "isolated": _cpus(topology.isolated),
        "boards": [{"board": board.number, "cpus": _cpus(board.mask)} for board in topology.boards],
        "sockets": [
            {
                "socket": socket.number,
                "package": socket.package,
                "cpus": _cpus(socket.mask),
                "cores": [{"core": core.number, "cpus": list(core.cpus)} for core in socket.cores],
            }
            for socket in topology.sockets
        ],
        "nodes": [{"node": node.number, "cpus": _cpus(node.mask), "memory": node.memory} for node in topology.nodes],
        "caches": [
            {"level": cache.level, "type": cache.kind, "size": cache.size, "cpus": _cpus(cache.mask)}
            for cache in topology.caches
        ],
        "kinds": [{"kind": kind.name, "cpus": _cpus(kind.mask)} for kind in topology.kinds],
        "devices": [
            {
                "address": device.address,
                "kind": device.kind,
                "id": f"{device.vendor}:{device.model}",
                "names": list(device.names),
                "node": device.node,
                "cpus": _cpus(device.mask),
            }
            for device in devices
        ],
        "cpus": list(_cpu_rows(topology)),
        "jobs": list(_job_rows(occupied)),
        "gres": list(occupied.devices),
    }


def _refuse(reason: object) -> int:
    print(f"nodectl topo: {reason}", file=sys.stderr)
    return 1


def _machine(arguments: argparse.Namespace) -> Topology:
    if arguments.machine:
        return spec.named(arguments.machine)
    return read(arguments.root or "/", every_cache=True)


def _running(arguments: argparse.Namespace) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the records of running steps and of jobs whose steps the user may not see, and the node's devices.

    There are none without a service, unless the user named a service.
    """
    try:
        session = Session(arguments.settings, start_private=False)
    except Failed:
        if arguments.settings.socket or arguments.settings.config:
            raise
        return [], []
    try:
        steps = session.rows("List", "steps")
        queue = session.rows("Queue", "jobs")
        jobs = jobs_without_steps(queue, steps)
        devices = {job["job"]: held(job) for job in queue}
        records = [{**record, "held": devices.get(step["job"])} for step in steps if (record := _record(session, step))]
        nodes: Any = session.call("Nodes")["nodes"]
        gres = nodes[0].get("gres") or () if len(nodes) == 1 else ()  # of this machine, not of the nodes of a cluster
        return [*records, *(job_record(job) for job in jobs if job["cpu_list"])], list(gres)
    finally:
        session.close()


def _record(session: Session, step: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the record of a step from a moment ago, None if the step has ended since."""
    try:
        record: Mapping[str, Any] = session.call("Show", job=step["job"], step=step["step"])["record"]  # type: ignore[assignment]
    except Failed as failure:
        if failure.name.endswith(".NoSuchStep"):
            return None
        raise
    return None if record.get("ended") else record


def _now(width: int) -> list[str]:
    """Return the lines about the current load of the whole machine."""
    words = figure_words(figures.read().as_json(), time.time())
    return ["", *textwrap.wrap("now: " + "; ".join(f"{name} {text}" for name, text in words), width)]


def _cpus(mask: int) -> str:
    return format_cpulist(cpus_of(mask))


def _cpu_rows(topology: Topology) -> Iterator[dict[str, object]]:
    node_of = {cpu: node.number for node in topology.nodes for cpu in cpus_of(node.mask)}
    board_of = {cpu: board.number for board in topology.boards for cpu in cpus_of(board.mask)}
    for socket in topology.sockets:
        for core in socket.cores:
            for cpu in core.cpus:
                yield {
                    "cpu": cpu,
                    "abstract": topology.abstract_of[cpu],
                    "core": core.number,
                    "socket": socket.number,
                    "board": board_of.get(cpu),
                    "node": node_of.get(cpu),
                    "usable": bool(topology.usable >> cpu & 1),
                }


def _job_rows(occupied: Occupation) -> Iterator[dict[str, object]]:
    for job in occupied.jobs:
        steps = [
            {
                "step": step.number,
                "name": step.name,
                "ntasks": step.ntasks,
                "tasks": [{"task": task, "cpus": _cpus(mask)} for task, mask in sorted(step.pins.items())],
            }
            for step in job.steps
        ]
        yield {
            "job": job.number,
            "user": job.user,
            "cpus": _cpus(job.mask),
            "devices": list(job.devices),
            "steps": steps,
        }
