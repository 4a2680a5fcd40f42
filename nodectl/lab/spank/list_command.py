"""`nodectl spank list`: print the stack as loaded in each context."""

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.configuration import configured
from nodectl.client.render.terminal import put, wants_colour
from nodectl.model.plugstack_entry import Entry
from nodectl.model.words import printable
from nodectl.spank import plugstack, versions
from nodectl.spank.contexts import CONTEXTS, Context, short
from nodectl.spank.inspection.findings import Inspection, Offered
from nodectl.spank.inspection.plugin import inspect, root_refuses
from nodectl.spank.inspection.slurm_releases import spell

Row = Mapping[str, Any]


def main(arguments: argparse.Namespace) -> int:
    """Print the stack. Return 0, or 1 if a required plugin cannot be used."""
    config = configured(arguments.settings.config)
    versions.accept(config.spank_versions)
    path = arguments.plugstack or config.plugstack_config
    try:
        stack = plugstack.read(path, config.plugin_dir)
    except plugstack.PlugstackError as error:
        raise Failed(str(error)) from None
    rows = [_row(place, entry) for place, entry in enumerate(stack.entries, 1)]
    wanted = [context for context in CONTEXTS if arguments.context in (None, context.name)]
    found = {context.name: [in_context(context, row) for row in rows] for context in wanted}
    if arguments.json:
        document = {"plugstack": os.path.abspath(path), "contexts": found, "warnings": list(stack.warnings)}
        print(json.dumps(document, indent=2))
    else:
        put(text(path, wanted, found, stack.warnings, colour=wants_colour()))
    return int(any(row["required"] and row["problems"] for row in rows))


def _row(place: int, entry: Entry) -> dict[str, Any]:
    """Return a line of the stack with the inspection of the plugin."""
    row: dict[str, Any] = {
        "place": place,
        "required": entry.required,
        "path": entry.path,
        "argv": list(entry.argv),
        "origin": entry.origin,
    }
    found, problems = look(entry)
    found = found or Inspection(entry.path, "")
    return {
        **row,
        "kind": found.kind,
        "name": found.name,
        "version": spell(found.version),
        "hooks": found.hooks,
        "offered": found.options,
        "problems": problems,
    }


def look(entry: Entry) -> tuple[Inspection | None, list[str]]:
    """Inspect the plugin of a line. Return the inspection (None without a file) and the reasons against use."""
    if entry.missing:
        return None, [f"{entry.path}: no such file in plugin_dir"]
    try:
        found = inspect(entry.path)
    except OSError as error:
        return None, [f"{entry.path}: cannot be read: {error.strerror}"]
    refused = root_refuses(entry.path)
    return found, found.errors + ([f"{entry.path}: root refuses it: {refused}"] if refused else [])


def in_context(context: Context, row: Row) -> dict[str, Any]:
    """Return a line of the stack for a context: the hooks called and the options offered in the context."""
    offered: Sequence[Offered] = row["offered"]
    here = [option for option in offered if context.static_options or not option.static]
    return {
        **{name: value for name, value in row.items() if name != "offered"},
        "hooks": [hook for hook in context.calls if hook in row["hooks"]],
        "options": [option.name for option in here],
    }


def text(
    path: str, contexts: Sequence[Context], found: Mapping[str, Sequence[Row]], warnings: Sequence[str], *, colour: bool
) -> list[str]:
    """Return the stack as lines for the terminal: the plugins once, then the hooks and options for each context."""
    rows = next(iter(found.values()), ())
    lines = [f"{printable(path)}: {_count(len(rows))}"]
    for row in rows:
        lines += [printable(line) for line in _described(row)]
    for context in contexts if rows else ():
        heading = f"{context.name}:"
        lines += ["", f"\x1b[1m{heading}\x1b[0m {context.process}" if colour else f"{heading} {context.process}"]
        names = [row["name"] or os.path.basename(row["path"]) for row in found[context.name]]
        wide = max(map(len, names))
        for name, row in zip(names, found[context.name], strict=True):
            lines.append(printable(f"  {row['place']}  {name:{wide}}  {_in_short(row)}"))
    problems = [problem for row in rows for problem in row["problems"]]
    said = [f"problem: {problem}" for problem in problems] + [f"warning: {warning}" for warning in warnings]
    return [*lines, *[""] * bool(said), *map(printable, said)]


def _described(row: Row) -> Iterator[str]:
    name = " ".join(word for word in (row["name"], row["version"]) if word)
    role = "required" if row["required"] else "optional"
    yield "  ".join(word for word in (f"  {row['place']}", role, name, f"({row['origin']})") if word)
    yield f"     {' '.join((row['path'], *row['argv']))}"


def _in_short(row: Row) -> str:
    if row["problems"]:
        return "cannot be used, see below"
    calls = ", ".join(map(short, row["hooks"])) or "no hook"
    return "; ".join((calls, *(f"--{name}" for name in row["options"])))


def _count(plugins: int) -> str:
    return "no plugins" if not plugins else f"{plugins} plugin{'s' if plugins > 1 else ''}, in calling order"
