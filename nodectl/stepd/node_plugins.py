"""The plugins of the node that every step shares: the stack of task plugins, one for tracking, one for containers.

Loaded and initialised once, by the forkserver (and, for the daemon's row of the launch, by the daemon); a stepd and
its tasks find them in their memory. Task plugins are called in configured order and stop at the first failure.
"""

from nodectl.door import OK, Outcome
from nodectl.hooks import ROWS, functions
from nodectl.plugin import BUILTIN_DIR, Plugin, PluginRefused, compile_plugin, find, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodectl.door import Door


class NodePlugins:
    """`tasks` in calling order, `proctrack` and `container`."""

    __slots__ = ("container", "proctrack", "tasks")

    def __init__(self, tasks: "Sequence[Plugin]", proctrack: Plugin, container: Plugin) -> None:
        self.tasks = tuple(tasks)
        self.proctrack = proctrack
        self.container = container

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
    task_plugins: "Sequence[str]", proctrack: str, container: str, plugin_dirs: "Sequence[str]"
) -> NodePlugins:
    """Finds, checks, loads and initialises the configured plugins. Raises PluginRefused with one line."""
    dirs = (*plugin_dirs, BUILTIN_DIR) if BUILTIN_DIR not in plugin_dirs else tuple(plugin_dirs)
    return NodePlugins(
        [_load(plugin_type, dirs) for plugin_type in task_plugins],
        _load(proctrack, dirs),
        _load(container, dirs),
    )


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
