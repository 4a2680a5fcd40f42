"""Loading a select plugin outside of the daemon, for commands that plan, and the caller for it.

As whoever runs the command; the plugin's body and its init() are bounded in time as in the daemon.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from nodectl import plugin_api
from nodectl.plugin_host import BUILTIN_DIR
from nodectl.plugin_host.caller import Overrun, PluginCaller
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import Plugin, PluginRefused, compile_plugin, find, load
from nodectl.tracing.recorder import Recorder


def caller_of(seconds: float, last_words: Callable[[], object] | None = None) -> PluginCaller:
    """Who calls a select plugin: each call may take so many seconds, 0 for any time."""
    return PluginCaller(Recorder(-1, "daemon"), None, 0, seconds, single_threaded=False, last_words=last_words)


def load_plugin(name: str, plugin_dirs: Sequence[str] = (), caller: PluginCaller | None = None) -> Plugin:
    """The plugin of this type (select/linear), or in this file; its init() has been called, and `unload` calls its
    fini(). Raises PluginRefused.
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
    """Calls fini(); why it failed, "" where it did not."""
    fini = plugin.hooks.get("fini")
    return "" if fini is None else caller.silent(fini, ()).why


def _nothing() -> None:
    """The init() of a plugin that has none."""
