"""`nodectl bind`: print the layout of a `nodectl run` with the same options, without running anything.

Needs neither root nor a service: it reads the configuration and the machine, or takes the machine it is given.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodectl.client.command import BadOption, BadUsage, Failed, GlobalOptions
from nodectl.client.configuration import configured
from nodectl.client.option_lines import option_lines, status_lines
from nodectl.client.render import layout
from nodectl.client.render.terminal import put
from nodectl.client.run_options import (
    NO_ARGUMENT,
    OPTIONS,
    Option,
    Parsed,
    RunParser,
    layout_options,
)
from nodectl.client.srun.manners import settle
from nodectl.client.srun.names import silent_in_layout
from nodectl.client.srun.options import parser
from nodectl.model.config import Config
from nodectl.model.cpu_list import cpus_of, mask_of_list
from nodectl.model.number import whole
from nodectl.model.words import printable
from nodectl.placement.binding import devices, job, node, step
from nodectl.placement.binding.allocation import Allocation
from nodectl.placement.binding.answer import Answer, add_devices, layout_answer, refusal, without_reasons
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import LayoutRequest, Settings
from nodectl.placement.machine import detected_devices, spec, topology
from nodectl.placement.machine.declared_devices import Device, declared
from nodectl.placement.machine.topology import Topology
from nodectl.plugin_host.loader import PluginRefused
from nodectl.selection import planning

USAGE = "nodectl bind [OPTIONS] [OPTIONS OF RUN] [-- PROGRAM]"
ABOUT = "Tell the layout that a run with these options would get, and run nothing."
_MOST_NODES = 4096
_LONGEST_FILE = 1 << 17  # longer than any hostfile accepted
_LAYOUT = [option for option in OPTIONS if option.long in ("ntasks", "cpus-per-task", "cpu-bind")]
_MACHINE, _ALLOCATED, _BUSY, _NODES = "machine", "allocated", "busy", "machines"


def main(settings: GlobalOptions, words: Sequence[str]) -> int:
    """Print the answer. Return 0, or the exit status of a refusal after printing the reason."""
    try:
        parsed = _parser().parse(words)
        if parsed.values.get("help"):
            print(_help())
            return 0
        settle(parsed)
        answer = answer_of(parsed, configured(settings.config))
    except (BadOption, Failed, NoLayout, PluginRefused, ValueError, OSError) as error:
        return _refuse(error, as_json="--json" in words)
    explain = "explain" in parsed.values
    if "json" in parsed.values:
        print(json.dumps(answer if explain else without_reasons(answer)))
    else:
        put(layout.lines_of(answer, explain=explain))
    return 0


def _refuse(error: Exception, *, as_json: bool) -> int:
    reason = _reason(error)
    if as_json:
        print(json.dumps(refusal(reason)))
    else:
        print(f"nodectl: error: {printable(reason)}", file=sys.stderr)
        if isinstance(error, BadUsage):
            print("Try 'nodectl bind --help' for more information.", file=sys.stderr)
    return error.status if isinstance(error, BadOption | Failed) else 1


def answer_of(parsed: Parsed, config: Config) -> Answer:
    """Return the answer to a command line. Raises NoLayout, ValueError, OSError."""
    values = parsed.values
    try_out = _MACHINE in values
    # On this machine, a job of `nodectl run` while no other job runs.
    as_run = not {_MACHINE, _ALLOCATED, _BUSY, _NODES} & values.keys()
    machine, settings = _machine(values.get(_MACHINE), config)
    machines = (machine,) * int(str(values.get(_NODES, 1)))
    names = () if try_out or len(machines) > 1 else (config.node_name,)
    if as_run and "exclusive" in values and "ntasks" not in values:
        each = values.get("cpus_per_task")
        values |= {"ntasks": max(1, machine.online.bit_count() // int(str(each)))} if each else {"whole": "1"}
    request = request_of(values, os.environ, _hostfile())
    asked = devices.wanted(_texts(values), request.ntasks or 1)
    gpus: list[Device] = []
    if _ALLOCATED in values:
        masks = _masks(_ALLOCATED, str(values[_ALLOCATED]), machines)
        allocation = Allocation.of_masks(machines, masks, names)
    elif not as_run:
        busy = _masks(_BUSY, str(values.get(_BUSY, "")), machines)
        taken = [busy.get(index, 0) for index in range(len(machines))]
        allocation = replace(planning.allocate(machines, request, taken, settings, names), own=True)
    else:
        if (request.ntasks or 1) > config.max_tasks_per_node:
            raise NoLayout(f"--ntasks: {request.ntasks} is more than max_tasks_per_node = {config.max_tasks_per_node}")
        job.check_node(machine, request, settings, config.node_name)
        known = detected_devices.of(config.gres, sharing=config.gpu_sharing) if asked.count else ()
        if asked.is_share:
            devices.hold(known, asked, {}, machine.online, machine)  # raises a better reason than the plugin's
        allocation, gpus = planning.of_run(machine, request, config, settings, asked, known)
    if asked.count and not gpus:
        gpus = _held(config, asked, machine, allocation, try_out=try_out)
    if gpus:
        allocation = _near(allocation, gpus, asked, request, machine)
    if as_run:
        placed = node.lay_out(machine, allocation.nodes[0].cpus, request, settings, config.node_name)
    else:
        placed = step.place(machines, allocation, request, settings)
    answer = layout_answer(placed, {grant.node: (grant.name, grant.cpus) for grant in allocation.nodes})
    if gpus:
        add_devices(answer, devices.of_tasks(gpus, asked, [place.mask for place in placed.tasks], machine))
        answer["env"].update(devices.step_environment(gpus, _texts(values)))
    return answer


def _own() -> tuple[Option, ...]:
    return (
        Option(_MACHINE, "", "SPEC|FILE", "2s:4c:2t:2n, or a file: lscpu -J -e=CPU,NODE,SOCKET,CORE,CACHE", str),
        Option(_ALLOCATED, "", "CPULIST", "what the job holds; with ';' between them, a list a machine", str),
        Option(_BUSY, "", "CPULIST", "what others hold when the step makes a job of its own", str),
        Option("nodes", "", "N", "how many such machines; srun's --nodes is -N here", _machines, dest=_NODES),
        Option("explain", "", "", "the rule behind each task's mask", _yes, has_arg=NO_ARGUMENT),
        Option("json", "", "", "print one JSON object", _yes, has_arg=NO_ARGUMENT),
    )


def _parser() -> RunParser:
    """Return a parser of the command's own options, of run's, and of srun's options without effect on layout.

    srun's options may stand in a job script whose words are given to this command.
    """
    others = [Option(long, short, "", "", str, dest="", has_arg=has_arg) for long, short, has_arg in silent_in_layout()]
    return parser(own=(*others, *_own()))


def _yes(_: str) -> bool:
    return True


def options() -> list[Option]:
    """Return all options of the command."""
    return _parser().all_options()


def _help() -> str:
    lines = [f"Usage: {USAGE}", "", ABOUT]
    for title, options in groups().items():
        lines += ["", *([f"{title}:"] if title else []), *option_lines(options)]
    lines += status_lines("bind")
    return "\n".join(lines)


def groups() -> dict[str, tuple[Option, ...]]:
    """Return the options below group titles; the first group has no title."""
    return {"": _own(), "Layout and binding, as of nodectl run": (*_LAYOUT, *layout_options())}


def _machines(text: str) -> int:
    number = whole(text, _MOST_NODES)
    if not number:
        raise ValueError(f'Invalid number of machines "{text[:20]}", from 1 to {_MOST_NODES}')
    return number


def _machine(given: object, config: Config) -> tuple[Topology, Settings]:
    """Return the requested machine, and the settings for this machine. Raises ValueError, OSError."""
    machine = topology.read(allowed=os.sched_getaffinity(0)) if given is None else spec.named(str(given))
    settings = node.settings_of(config, machine)
    if given is None and not node.whole(machine, settings):  # a fenced login, which has what jobs do not
        machine = replace(machine, usable=machine.online)
    return node.with_boards(machine, config.boards), settings


def _hostfile() -> str:
    path = os.environ.get("SLURM_HOSTFILE")
    if not path:
        return ""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read(_LONGEST_FILE)


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _masks(option: str, text: str, machines: Sequence[Topology]) -> dict[int, int]:
    """Return CPU lists as masks by index of the machine: a list for all machines, or for each.

    Raises NoLayout, ValueError.
    """
    lists = text.split(";")
    if len(lists) not in (1, len(machines)):
        raise NoLayout(f"--{option}: {len(lists)} lists for {len(machines)} machines")
    masks = {}
    for index, machine in enumerate(machines):
        mask = mask_of_list(lists[index % len(lists)])
        outside = mask & ~machine.online
        if outside:
            raise NoLayout(f"--{option}: CPU {cpus_of(outside)[0]} is not on this machine")
        if mask:
            masks[index] = mask
    if option == _ALLOCATED and not masks:
        raise NoLayout("--allocated: no CPU")
    return masks


def _held(
    config: Config, asked: devices.Wanted, machine: Topology, allocation: Allocation, *, try_out: bool
) -> list[Device]:
    if len(allocation.nodes) > 1:
        raise NoLayout("GPUs can be tried on one machine")
    known = declared(config.gres)[0] if try_out else detected_devices.of(config.gres)
    return devices.hold(known, asked, {}, allocation.nodes[0].cpus, machine)


def _near(
    allocation: Allocation, gpus: Sequence[Device], asked: devices.Wanted, request: LayoutRequest, machine: Topology
) -> Allocation:
    """Return the allocation without the CPUs far from the devices, if the near CPUs are enough."""
    grant = allocation.nodes[0]
    need = (request.ntasks or 1) * (request.cpus_per_task or 1)
    cpus = devices.cpus_near(gpus, grant.cpus, asked, need, machine)
    nearer = replace(grant, cpus=cpus, cpu_count=min(grant.cpu_count, cpus.bit_count()))
    return replace(allocation, nodes=(nearer,))


def _reason(error: Exception) -> str:
    """Return the error in a line, with the name of the file if there is a file."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
