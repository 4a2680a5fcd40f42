"""The plugins of the node that every step shares: the stack of task plugins, one for tracking, one for containers.

Loaded and initialised once, by the forkserver (and, for the daemon's row of the launch, by the daemon); a stepd and
its tasks find them in their memory. Task plugins are called in configured order and stop at the first failure. A job
keeps the plugin that made its container, whatever the configuration says since.
"""

import sys

from nodectl.container import plugin_of
from nodectl.door import OK, Door, Outcome
from nodectl.hooks import ROWS, functions
from nodectl.plugin import BUILTIN_DIR, Plugin, PluginRefused, compile_plugin, find, load
from nodectl.recorder import Recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nodectl.step import Step

_END_SECONDS = 2.0  # of a fini(): the next daemon waits for the end of this process


class NodePlugins:
    """`tasks` in calling order, `proctrack` and `container`; `earlier` are further ones for containers, by their types:
    those of jobs that began under another configuration, or why one of them cannot be used.
    """

    __slots__ = ("container", "earlier", "proctrack", "tasks")

    def __init__(
        self,
        tasks: "Sequence[Plugin]",
        proctrack: Plugin,
        container: Plugin,
        earlier: "Mapping[str, Plugin | PluginRefused]",
    ) -> None:
        self.tasks = tuple(tasks)
        self.proctrack = proctrack
        self.container = container
        self.earlier = earlier

    def end(self) -> None:
        """Calls fini() in each plugin, the last loaded first: this process ends, or goes on without them. What fails is
        said on stderr; one that does not return, not even when interrupted, ends the process at once.
        """
        door = Door(Recorder(-1, ""), None, 0, _END_SECONDS, single_threaded=False, last_words=lambda: None)
        earlier = [plugin for plugin in self.earlier.values() if isinstance(plugin, Plugin)]
        for plugin in reversed((*self.tasks, self.proctrack, self.container, *earlier)):
            fini = plugin.hooks.get("fini")
            if fini is not None and not (outcome := door.silent(fini, ())):
                print(f"nodectl: plugin {plugin.type}: fini(): {outcome.why}", file=sys.stderr)

    def for_job(self, step: "Step") -> "NodePlugins":
        """These, with the plugin that made the container of the step's job. Raises PluginRefused."""
        return self.with_container(plugin_of(step))

    def with_container(self, plugin_type: str) -> "NodePlugins":
        """These, with that plugin for containers. Raises PluginRefused."""
        if plugin_type == self.container.type:
            return self
        plugin = self.earlier[plugin_type]
        if isinstance(plugin, PluginRefused):
            raise plugin.with_traceback(None)
        return NodePlugins(self.tasks, self.proctrack, plugin, self.earlier)

    def call_tasks(self, door: "Door", call: str, arguments: "Sequence[object]", task: "int | None" = None) -> Outcome:
        """Calls a task_p_* hook in each plugin that has it, up to the first failure, which is returned."""
        for place, plugin in enumerate(self.tasks):
            function = plugin.hooks.get(call)
            if function is None:
                continue
            outcome = door.call(ROWS[call], plugin.type, function, arguments, task=task, place=place)
            if not outcome:
                return outcome
        return OK

    def call_proctrack(
        self, door: "Door", call: str, arguments: "Sequence[object]", task: "int | None" = None
    ) -> Outcome:
        """Calls a proctrack_p_* hook."""
        return door.call(ROWS[call], self.proctrack.type, self.proctrack.hooks[call], arguments, task=task)

    def call_container(
        self, door: "Door", call: str, arguments: "Sequence[object]", task: "int | None" = None
    ) -> Outcome:
        """Calls a container_p_* hook, where the plugin has it."""
        function = self.container.hooks.get(call)
        if function is None:
            return OK
        return door.call(ROWS[call], self.container.type, function, arguments, task=task)

    def name(self, kind: str, place: int) -> str:
        """Which plugin of a kind stands at `place` of its stack, for messages about a process that left inside it."""
        if kind in ("proctrack", "job_container"):
            return self.proctrack.type if kind == "proctrack" else self.container.type
        return self.tasks[place].type if kind == "task" and place < len(self.tasks) else ""


def load_node_plugins(
    task_plugins: "Sequence[str]",
    proctrack: str,
    container: str,
    plugin_dirs: "Sequence[str]",
    earlier: "Iterable[str]" = (),
) -> NodePlugins:
    """Finds, checks, loads and initialises the configured plugins, and those types for containers that are in use from
    earlier. Raises PluginRefused with one line, but not for these.
    """
    dirs = (*plugin_dirs, BUILTIN_DIR) if BUILTIN_DIR not in plugin_dirs else tuple(plugin_dirs)
    return NodePlugins(
        [_load(plugin_type, dirs) for plugin_type in task_plugins],
        _load(proctrack, dirs),
        _load(container, dirs),
        {plugin_type: _load_or_not(plugin_type, dirs) for plugin_type in earlier},
    )


def _load_or_not(plugin_type: str, dirs: "Sequence[str]") -> "Plugin | PluginRefused":
    try:
        return _load(plugin_type, dirs)
    except PluginRefused as refused:
        return refused


def _load(plugin_type: str, dirs: "Sequence[str]") -> Plugin:
    kind = plugin_type.partition("/")[0]
    plugin = load(compile_plugin(find(plugin_type, dirs)), kind=kind, hooks=functions(kind))
    init = plugin.hooks.get("init")
    if init is None:
        return plugin
    try:
        rc = init()
    except Exception as error:  # a door to plugin code: at load, before there is a recorder
        raise PluginRefused(plugin.path, None, f"init(): {error}") from error
    if rc not in (0, None):
        raise PluginRefused(plugin.path, None, f"init() returned {rc!r}")
    return plugin
