"""A stack of compiled plugins only, prepared in the forkserver for every coming stepd.

Most of a stepd's work for each plugin of its stack is memory that it touches, and touched memory is copied
(docs/decisions/0007). So the forkserver builds the stack once, and C calls the plugins of each hook one after the
other.
"""

from nodectl.model.wire.lean_json import quoted
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import PluginRefused, Source
from nodectl.plugin_host.tracing.progress import MOST_PLUGINS
from nodectl.spank import _spank_host
from nodectl.spank.plugin_file import DeferredSource
from nodectl.spank.spank_h import SpankError
from nodectl.spank.stacked_plugin import StackedPlugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodectl.model.plugstack_entry import Entry
    from nodectl.spank.plugin_file import OpenSource


class StackHook:
    """A hook of a stack and the plugins with this hook, in order. `walk`: see `_spank_host.compiled_hook`."""

    __slots__ = ("members", "walk")

    def __init__(self, call: str, members: list[StackedPlugin]) -> None:
        self.members = members
        self.walk = _spank_host.compiled_hook(
            [
                (one.plugin.hooks[call], one.entry.argv, quoted(one.plugin.name), one, min(one.place, MOST_PLUGINS))
                for one in members
            ]
        )

    def plugin_name(self, place: int) -> str:
        """Return the name of the plugin at this place."""
        return self.members[place].plugin.name


class ReadyStack:
    """The plugins of a stack, and all hooks of the plugins."""

    __slots__ = ("hooks", "plugins", "with_fini")

    def __init__(self, plugins: list[StackedPlugin]) -> None:
        self.plugins = plugins
        self.with_fini = [one for one in plugins if "fini" in one.plugin.hooks]
        calls = {call: [one for one in plugins if call in one.plugin.hooks] for call in KINDS["spank"].functions}
        self.hooks = {call: StackHook(call, members) for call, members in calls.items() if members}


def ready_stack(entries: "Iterable[Entry]", open_source: "OpenSource") -> ReadyStack | None:
    """Return the ready stack, or None for a stack with more than compiled plugins to load.

    None means: Python to execute, an init() to call, or a message to report.
    """
    plugins = []
    for place, entry in enumerate(entries):
        try:
            source = open_source(entry.path)
        except PluginRefused:
            return None
        if isinstance(source, Source | DeferredSource) or "init" in source.plugin.hooks or entry.missing:
            return None
        stacked = StackedPlugin(entry, source.plugin, place)
        for option in source.plugin.options:
            if option.name in stacked.options:
                return None
            try:
                stacked.offer(option)
            except SpankError:
                return None
        plugins.append(stacked)
    return ReadyStack(plugins)
