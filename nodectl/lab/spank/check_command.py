"""`nodectl spank check`: find the faults of a plugin without running the plugin."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from nodectl.client.command import Failed, complain
from nodectl.client.configuration import configured
from nodectl.client.render.table import pairs
from nodectl.client.render.terminal import put, wants_colour
from nodectl.client.run_options import OPTIONS, layout_options, waiting_options
from nodectl.client.srun.names import names
from nodectl.client.srun.options import FURTHER
from nodectl.model.plugstack_entry import Entry
from nodectl.model.words import printable
from nodectl.spank import plugstack, versions
from nodectl.spank.contexts import called_in, short
from nodectl.spank.inspection import slurm_releases
from nodectl.spank.inspection.findings import ERROR, WARNING, Finding, Inspection
from nodectl.spank.inspection.plugin import inspect, root_refuses

_COLOURS = {ERROR: "1;31", WARNING: "33"}
_BUILT_IN = frozenset(option.long for option in (*OPTIONS, *FURTHER, *layout_options(), *waiting_options()))
_SRUNS = names() | {option.long for option in layout_options()}


def main(arguments: argparse.Namespace) -> int:
    """Print the findings. Return 0, 1 if a plugin has errors, 2 if a file cannot be read."""
    accept_configured(arguments.settings.config)
    stack, unread = configured_stack(arguments.settings.config)
    found: list[Inspection] = []
    status = 0
    for word in arguments.plugins:
        path = located(word, arguments.settings.config)
        try:
            one = inspect(path)
        except OSError as error:
            complain(f"{path}: cannot be read: {error.strerror}")
            status = 2
            continue
        check_stack(one, stack)
        if arguments.slurm:
            check_release(one, arguments.slurm)
        found.append(one)
    if unread:
        print(f"nodectl: not compared with the configured stack: {unread}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"plugins": [as_json(one, arguments.slurm) for one in found]}, indent=2))
    else:
        for place, one in enumerate(found):
            put([""] * (place > 0) + text(one, arguments.slurm, colour=wants_colour()))
    return status or int(any(one.errors for one in found))


def located(word: str, config_path: str | None) -> str:
    """Return the plugin's file: `word` itself, or the file where plugstack.conf would find a plugin of this name."""
    if "/" in word or os.path.exists(word):
        return word
    try:
        return plugstack.find(word, configured(config_path).plugin_dir) or word
    except Failed:
        return word  # `nodectl config` reports the error


def accept_configured(config_path: str | None) -> None:
    """Set the accepted plugin versions from the key spank_versions; keep the default if there is no configuration."""
    try:
        versions.accept(configured(config_path).spank_versions)
    except Failed:
        return  # as above


def configured_stack(config_path: str | None) -> tuple[list[tuple[Entry, Inspection]], str]:
    """Inspect the plugins of the configured stack. Return the inspections, and the reason for an unreadable stack."""
    try:
        config = configured(config_path)
        entries = plugstack.read(config.plugstack_config, config.plugin_dir).entries
    except (Failed, plugstack.PlugstackError) as error:
        return [], str(error)
    found = []
    for entry in entries:
        try:
            found.append((entry, inspect(entry.path)))
        except OSError:
            continue  # `nodectl spank list` reports this
    return found, ""


def check_stack(one: Inspection, stack: Sequence[tuple[Entry, Inspection]]) -> None:
    """Note clashes with the configured stack, and root's reason to refuse the file.

    A refusal is an error if the stack already has the file, else a warning.
    """
    ours = os.path.realpath(one.path)
    options = {option.name for option in one.options}
    stacked = [entry for entry, _ in stack if os.path.realpath(entry.path) == ours]
    for entry, other in stack:
        if os.path.realpath(entry.path) == ours:
            continue
        where = f"{entry.origin}: {entry.path}"
        if other.name and other.name == one.name:
            one.warn(f"{where} is called {one.name!r} too: options and messages of the two are mixed up")
        for name in sorted(options & {option.name for option in other.options}):
            one.warn(f"option --{name} is offered by {where} too: the first in the stack has it")
    for name in sorted(options & _BUILT_IN):
        one.warn(f"option --{name} is an option of `nodectl run` itself")
    for name in sorted((options & _SRUNS) - _BUILT_IN):
        one.warn(f"option --{name} is an option of srun itself: with Slurm the plugin's is never reached")
    refused = root_refuses(one.path)
    if refused and stacked:
        one.error(f"root refuses to load it from here: {refused}")
    elif refused:
        one.warn(f"root would refuse to load it from here: {refused}")


def check_release(one: Inspection, release: str) -> None:
    """Note the faults of a compiled plugin with this release of Slurm."""
    if one.kind != "native":
        one.warn(f"Slurm {release} loads shared objects only; this is one file of Python")
        return
    for name in one.needs:
        if slurm_releases.has_function(release, name) is False:
            one.error(f"needs {name}, which Slurm {release} does not provide")
        elif name.startswith("slurm_") and slurm_releases.has_function(release, name) is None:
            one.warn(f"needs {name}, which is not SPANK's: libslurm's functions may change with every release")
    for hook in one.hooks:
        if slurm_releases.has_hook(release, hook) is False:
            one.error(f"{hook} is not called by Slurm {release}")
        elif slurm_releases.has_hook(release, hook) is None:
            one.warn(f"{hook} is in no document of Slurm {release}")
    if one.version and slurm_releases.release_of(one.version) != release:
        one.warn(f"has to be compiled again for Slurm {release}: major and minor number must match")


def as_json(one: Inspection, release: str | None) -> Mapping[str, Any]:
    """Return the inspection as values for JSON."""
    found = asdict(one)
    if release:
        found["slurm"] = {
            "release": release,
            "functions": {n: slurm_releases.has_function(release, n) for n in one.needs},
        }
    return found


def text(one: Inspection, release: str | None, *, colour: bool) -> list[str]:
    """Return the inspection as lines for the terminal."""
    return [
        printable(one.path) + (f": {printable(one.about)}" if one.about else ""),
        *(f"  {line}" for line in pairs(_facts(one, release))),
        *(f"  {_painted(finding, colour)}" for finding in one.findings),
        *([] if one.findings else ["  no errors, no warnings"]),
    ]


def _facts(one: Inspection, release: str | None) -> Iterator[tuple[str, str]]:
    yield "kind", one.kind
    if one.name:
        yield "name", one.name
    if one.version:
        yield "version", _version(one)
    if (news := slurm_releases.news(release or slurm_releases.release_of(one.version))) if one.version else []:
        yield "new", f"since 22.05: {', '.join(news)}"
    for hook in one.hooks:
        yield "hook", f"{short(hook)}, called in: {', '.join(called_in(hook)) or 'no context'}"
    for option in one.options:
        arginfo = f"={option.arginfo}" if option.arginfo else ""
        where = "spank_options, not in the allocator context" if option.static else "spank_option_register"
        yield "option", f"--{option.name}{arginfo} ({where})"
    for name, provider in one.needs.items():
        if one.kind == "native" and name.startswith(("spank_", "slurm_")):
            yield "calls", f"{name}: {_providers(name, provider, release)}"
    for library, path in one.libraries.items():
        yield "library", f"{library} -> {path or 'not here'}"
    if one.bound:
        yield "bound", one.bound


def _version(one: Inspection) -> str:
    spelt = slurm_releases.spell(one.version)
    if one.kind != "native":
        return f"{spelt} of nodectl.spank"
    release = slurm_releases.release_of(one.version)
    also = f"nodectl and Slurm {release}" if versions.is_accepted(one.version) else f"Slurm {release}"
    return f"{spelt}: for {also}, whichever micro release"


def _providers(name: str, provider: str, release: str | None) -> str:
    said = [provider or ("nobody" if slurm_releases.is_documented(name) else "not nodectl")]
    if release:
        has = slurm_releases.has_function(release, name)
        said.append(f"Slurm {release}: {'not documented' if has is None else 'yes' if has else 'no'}")
    elif provider != "nodectl" and slurm_releases.is_documented(name):
        said.append("documented by Slurm")
    return ", ".join(said)


def _painted(finding: Finding, colour: bool) -> str:
    level = f"\x1b[{_COLOURS[finding.level]}m{finding.level}\x1b[0m" if colour else finding.level
    return f"{level}: {printable(finding.text)}"
