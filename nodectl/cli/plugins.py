"""`nodectl plugins`: list the plugins called at a launch, further plugins of the directories, and the order of calls.

Reads the configuration and the files itself: needs neither a service nor root, and executes nothing of any plugin.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from nodectl.cli.plugin_list import Listed, node_plugins, spank_plugins, unusable
from nodectl.client.command import Failed
from nodectl.client.configuration import configured
from nodectl.client.render.table import table
from nodectl.client.render.terminal import put
from nodectl.model.launch_order import BATCH_HOOKS, HOOKS, LOCAL_HOOKS, OCCASIONS, SLURMD_HOOKS, SUSPENSION_HOOKS
from nodectl.model.words import printable
from nodectl.plugin_host import BUILTIN_DIR, INCLUDE_DIR
from nodectl.plugin_host.kinds import DAEMON, KINDS, STEP
from nodectl.spank import plugstack

HOOK_HEADER = ("#", "CALL", "KIND", "PROCESS", "IDENTITY", "PER", "FAILURE COSTS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl plugins` to the parser."""
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--hooks", action="store_true", help="print the order of a launch instead: every call, where and as whom"
    )
    instead.add_argument(
        "--include",
        action="store_true",
        help='print the directory of slurm/spank.h instead: cc -shared -fPIC -I"$(nodectl plugins --include)" x.c',
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = "Plugins are read, not run. What is shown is what the next start of the service finds."


def main(arguments: argparse.Namespace) -> int:
    """Print the list. Return 0, or 1 if a configured plugin cannot be used."""
    if arguments.include:
        print(json.dumps({"include": INCLUDE_DIR}) if arguments.json else INCLUDE_DIR)
        return 0
    if arguments.hooks:
        if arguments.json:
            print(json.dumps(hooks_as_json(), indent=2))
        else:
            put(hooks_table())
        return 0
    config = configured(arguments.settings.config)
    try:
        stack = plugstack.read(config.plugstack_config, config.plugin_dir)
    except plugstack.PlugstackError as error:
        raise Failed(str(error)) from None
    listed = [*node_plugins(config), *spank_plugins(config, stack)]
    if arguments.json:
        print(json.dumps({"plugins": [asdict(one) for one in listed], "warnings": stack.warnings}, indent=2))
    else:
        put(listing(listed, config.plugstack_config, stack.warnings))
    return int(any(unusable(one) for one in listed))


def listing(listed: Sequence[Listed], plugstack_config: str, warnings: Sequence[str]) -> list[str]:
    """Return the list as lines for the terminal."""
    lines = []
    for kind in (kind for kind in KINDS.values() if kind.key or kind.hosted == STEP):
        lines += [f"{kind.title}, {plugstack_config}:" if kind.hosted == STEP else f"{kind.title}:"]
        ours = [one for one in listed if one.kind == kind.name]
        for one in ours:
            lines += [f"  {line}" for line in _described(one)]
        if not any(one.role != "available" for one in ours):
            lines.append("  none in use")
        lines.append("")
    lines += [f"warning: {printable(warning)}" for warning in warnings]
    return lines if lines[-1] else lines[:-1]


def _name(one: Listed) -> str:
    """Return a plugin's name for people: a SPANK plugin's own name, else the type from the configuration."""
    if one.kind == "spank":
        return one.facts.name or os.path.basename(one.facts.path)
    return f"{one.type} ({printable(one.facts.name)})" if one.facts.name else one.type


def _described(one: Listed) -> Iterator[str]:
    facts = one.facts
    name = _name(one)
    about = name if one.kind == "spank" else one.type
    version = ".".join(map(str, facts.version))
    state = "MISSING" if one.missing else "REFUSED" if facts.problems else ""
    head = [f"{one.role:10}", name, version, "built in" if facts.path.startswith(f"{BUILTIN_DIR}/") else "", state]
    yield printable("  ".join(word for word in head if word))
    if facts.about:
        yield f"    {printable(facts.about.removeprefix(f'{about}: '))}"
    if one.origin:
        arguments = f": {' '.join(one.argv)}" if one.argv else ""
        yield f"    {printable(one.origin + arguments)}"
    if not one.missing:
        yield f"    {printable(facts.path)}"
        yield f"    hooks: {', '.join(facts.hooks) or 'none'}"
    if facts.options:
        yield f"    options: {printable(', '.join(f'--{option}' for option in facts.options))}"
    for problem in facts.problems:
        yield f"    problem: {printable(problem)}"
    for warning in facts.warnings:
        yield f"    warning: {printable(warning)}"


def hooks_table() -> list[str]:
    """Return the order of a launch, and the plugins' further functions, each with the time of the call, if any."""
    rows = [
        (place, hook.call, hook.kind, hook.process, hook.identity, hook.per, hook.costs)
        for place, hook in enumerate(HOOKS, 1)
    ]
    lines = table(HOOK_HEADER, rows, right=("#",))
    lines += ["", "SPANK's local context: in the command's own process, as its user; a failure ends the command:"]
    lines += [f"  {hook.call}" for hook in LOCAL_HOOKS]
    lines += ["", "SPANK's slurmd context: in a process beside the service, as root; a failure at its start ends it:"]
    lines += [f"  {hook.call}" for hook in SLURMD_HOOKS]
    lines += ["", "Task plugins, in the service as root, of a job that stands still, or is about to go on:"]
    lines += [f"  {hook.call:25}  a failure: {hook.costs}" for hook in SUSPENSION_HOOKS]
    lines += ["", "The same, of the step that runs a job's script, instead of task_p_slurmd_launch_request:"]
    lines += [f"  {hook.call:25}  a failure: {hook.costs}" for hook in BATCH_HOOKS]
    lines += ["", "Not rows of a launch, but called:"]
    lines += [f"  {call:27}  {when}" for call, when in OCCASIONS.items()]
    lines += ["", "Select plugins, in the service as root, when the queue decides, and as jobs begin and end:"]
    lines += [f"  {call}" for kind in KINDS.values() if kind.hosted == DAEMON for call in kind.uncalled]
    lines += ["", "Accepted in plugins, and never called:"]
    lines += [f"  {call}" for call in _never_called()]
    return lines


def _never_called() -> Iterator[str]:
    called = {*OCCASIONS, *(hook.call for hook in (*LOCAL_HOOKS, *SLURMD_HOOKS))}
    for kind in KINDS.values():
        if kind.hosted != DAEMON:
            yield from (call for call in kind.uncalled if call not in called)


def hooks_as_json() -> dict[str, object]:
    """Return the same as values; `arity` is the number of a function's parameters, 0 for a call outside plugins."""
    fields = ("call", "kind", "process", "identity", "per", "arity", "costs")
    return {
        "hooks": [
            {"place": place, **{name: getattr(hook, name) for name in fields}} for place, hook in enumerate(HOOKS, 1)
        ],
        "local": [hook.call for hook in LOCAL_HOOKS],
        "suspension": [hook.call for hook in SUSPENSION_HOOKS],
        "batch": [hook.call for hook in BATCH_HOOKS],
        "slurmd": [hook.call for hook in SLURMD_HOOKS],
        "elsewhere": {kind.name: kind.uncalled for kind in KINDS.values() if kind.uncalled},
        "occasions": dict(OCCASIONS),
        "never": list(_never_called()),
    }
