"""The plugins of a configuration: plugins called at a launch, in calling order, and unused plugins of the directories.

Reads the files; executes nothing of any plugin.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodectl.model.config import Config
from nodectl.plugin_host import kinds, plugin_facts
from nodectl.plugin_host.loader import PluginRefused, find, suffixes_of
from nodectl.plugin_host.plugin_facts import Facts
from nodectl.spank import plugstack, versions
from nodectl.spank.plugin_file import is_native


@dataclass(frozen=True, slots=True)
class Listed:
    """A plugin of the list. `role` is "configured", "available", or of SPANK plugins "required" or "optional"."""

    kind: str
    type: str
    role: str
    facts: Facts
    origin: str = ""
    argv: tuple[str, ...] = ()
    missing: bool = False


def unusable(listed: Listed) -> bool:
    """Return True for a plugin whose absence or faults stop a step: a configured or required plugin."""
    return listed.role in ("configured", "required") and (listed.missing or bool(listed.facts.problems))


def node_plugins(config: Config) -> Iterator[Listed]:
    """Yield the node's plugins: the configured plugins in calling order, then the unused plugins in the directories."""
    for kind, wanted in kinds.configured(config).items():
        for plugin_type in wanted:
            try:
                path = find(plugin_type, config.plugin_dir)
            except PluginRefused as refused:
                facts = Facts(plugin_type, problems=(str(refused),))
                yield Listed(kind, plugin_type, "configured", facts, missing=True)
                continue
            yield Listed(kind, plugin_type, "configured", plugin_facts.read(path, kind))
        for name, path in _files(config.plugin_dir, kind):
            facts = plugin_facts.read(path, kind)
            if f"{kind}/{name}" not in wanted and not facts.is_helper:
                yield Listed(kind, f"{kind}/{name}", "available", facts)


def spank_plugins(config: Config, stack: plugstack.Plugstack) -> Iterator[Listed]:
    """Yield the SPANK stack in calling order, then the unused plugins in the directories' `spank` folders."""
    versions.accept(config.spank_versions)
    for entry in stack.entries:
        facts = Facts(entry.path) if entry.missing else _spank_facts(entry.path)
        role = "required" if entry.required else "optional"
        yield Listed("spank", "spank", role, facts, entry.origin, entry.argv, entry.missing)
    stacked = {os.path.realpath(entry.path) for entry in stack.entries}
    for _, path in _files(config.plugin_dir, "spank"):
        if os.path.realpath(path) not in stacked:
            yield Listed("spank", "spank", "available", _spank_facts(path))


def _spank_facts(path: str) -> Facts:
    if not is_native(path):
        return plugin_facts.read(path, "spank")
    from nodectl.spank.inspection import plugin as inspection  # brings the reader of ELF files

    try:
        found = inspection.inspect(path)
    except OSError as error:
        return Facts(path, problems=(f"{path}: cannot be read: {error.strerror}",))
    refused = inspection.root_refuses(path)
    return Facts(
        path,
        type=found.type,
        name=found.name,
        version=found.version,
        hooks=tuple(found.hooks),
        options=tuple(option.name for option in found.options),
        problems=(*found.errors, *([f"{path}: {refused}"] if refused else [])),
    )


def _files(directories: Iterable[str], folder: str) -> Iterator[tuple[str, str]]:
    """Yield name and path of every plugin file, once for each name: the first directory wins, as at load."""
    suffixes = (".py", ".so") if folder == "spank" else suffixes_of(folder)
    found: dict[str, str] = {}
    for directory in directories:
        try:
            names = sorted(os.listdir(os.path.join(directory, folder)))
        except OSError:
            continue
        for name in names:
            stem, suffix = os.path.splitext(name)
            if suffix in suffixes and not stem.startswith(("_", ".")):
                found.setdefault(stem, os.path.join(directory, folder, name))
    yield from found.items()
