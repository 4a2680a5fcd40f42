"""Loading of a select plugin outside of the daemon, for planning commands, and the caller for the plugin.

As the user of the command; the plugin's body and its init() are bounded in time as in the daemon.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from nodectl import plugin_api
from nodectl.plugin_host import BUILTIN_DIR
from nodectl.plugin_host.caller import Overrun, PluginCaller
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import Plugin, PluginRefused, compile_plugin, find, load
from nodectl.plugin_host.tracing.recorder import Recorder


def caller_of(seconds: float, last_words: Callable[[], object] | None = None) -> PluginCaller:
    """Return a caller of a select plugin. Each call may take `seconds`, 0 for any time."""
    return PluginCaller(Recorder(-1, "daemon"), None, 0, seconds, single_threaded=False, last_words=last_words)


def load_plugin(name: str, plugin_dirs: Sequence[str] = (), caller: PluginCaller | None = None) -> Plugin:
    """Load the plugin of this type (select/linear) or in this file, and call its init(). Raises PluginRefused.

    `unload` calls its fini().
    """
    caller = caller or caller_of(0)
    plugin_api.allow_threads(True)
    path = name if name.endswith(".py") or os.path.isfile(name) else find(name, (*plugin_dirs, BUILTIN_DIR))
    source = compile_plugin(path)
    try:
        plugin = caller.within_time(lambda: load(source, KINDS["select"], Plugin))
    except Overrun as error:
        raise PluginRefused(path, None, f"its body {error}") from None
    outcome = caller.silent(plugin.hooks.get("init", _nothing), ())
    if not outcome:
        raise PluginRefused(path, None, f"init(): {outcome.why}")
    return plugin


def unload(plugin: Plugin, caller: PluginCaller) -> str:
    """Call fini(). Return "" or the reason of a failure."""
    fini = plugin.hooks.get("fini")
    return "" if fini is None else caller.silent(fini, ()).why


def _nothing() -> None:
    """Stand in for a missing init()."""
