"""The plugins of the node, shared by all steps: task plugins, process tracking, job containers and more.

Loaded and initialised once, by the forkserver (and, for the daemon's row of the launch, by the daemon); a stepd and its
tasks find them in their memory. Task plugins are called in configured order and stop at the first failure. A job keeps
the plugin that made its container, even if the configuration changes.
"""

import itertools
import os
import time

from nodectl import messages, plugin_api
from nodectl.plugin_host import BUILTIN_DIR
from nodectl.plugin_host.caller import LEFT_THREAD, OK, UNTIL_GONE, Outcome, PluginCaller
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import Plugin, PluginRefused, compile_plugin, find, load
from nodectl.plugin_host.tracing.recorder import Recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from nodectl.model.launch_order import Hook
    from nodectl.model.step import Step
    from nodectl.plugin_host.compiled import Open

_END_SECONDS = 2.0  # of a fini(): the next daemon waits for the end of this process


class NodePlugins:
    """The node's plugins. `stacks`: the plugins of each kind in calling order.

    `earlier`: container plugins by type, for jobs that began under another configuration, or the reason why a plugin
    cannot be used. `are_ours`: all plugins of `stacks` came with nodectl.
    """

    __slots__ = ("_ended", "are_ours", "earlier", "stacks")

    def __init__(
        self, stacks: "Mapping[str, Sequence[Plugin]]", earlier: "Mapping[str, Plugin | PluginRefused]"
    ) -> None:
        self.stacks = stacks
        self.earlier = earlier
        self.are_ours = all(plugin.path.startswith(f"{BUILTIN_DIR}/") for stack in stacks.values() for plugin in stack)
        self._ended = False

    @property
    def proctrack(self) -> Plugin:
        """The plugin for process tracking."""
        return self.stacks["proctrack"][0]

    @property
    def container(self) -> Plugin:
        """The plugin for job containers."""
        return self.stacks["job_container"][0]

    def end(self) -> None:
        """Call fini() in each plugin, once, the last loaded first. The process ends, or goes on without plugins."""
        if not self._ended:
            self._ended = True
            earlier = [plugin for plugin in self.earlier.values() if isinstance(plugin, Plugin)]
            _end([*itertools.chain(*self.stacks.values()), *earlier])

    def for_job(self, step: "Step") -> "NodePlugins":
        """Return the plugins with the container plugin of the step's job. Raises PluginRefused."""
        return self.with_container(step.container_plugin)

    def with_mpi(self, plugin_type: str) -> "NodePlugins":
        """Return the plugins with only the given MPI plugin. Raises PluginRefused."""
        found = [plugin for plugin in self.stacks["mpi"] if plugin.type == plugin_type]
        if not found:
            raise PluginRefused(plugin_type, None, "it is no MPI plugin of this node any more")
        return NodePlugins({**self.stacks, "mpi": found}, self.earlier)

    def with_container(self, plugin_type: str) -> "NodePlugins":
        """Return the plugins with the given container plugin. Raises PluginRefused."""
        if plugin_type == self.container.type:
            return self
        plugin = self.earlier[plugin_type]
        if isinstance(plugin, PluginRefused):
            raise plugin.with_traceback(None)
        return NodePlugins({**self.stacks, "job_container": (plugin,)}, self.earlier)

    def has(self, row: "Hook") -> bool:
        """Return True if a plugin of the row's kind has the row's function."""
        return any(row.call in plugin.hooks for plugin in self.stacks[row.kind])

    def call(
        self, caller: "PluginCaller", row: "Hook", arguments: "Sequence[object]", task: "int | None" = None
    ) -> Outcome:
        """Call the row's function in each plugin of the kind until the first failure; return the failure."""
        for place, plugin in enumerate(self.stacks[row.kind]):
            if row.call not in plugin.hooks:
                continue
            outcome = call_one(caller, row, place, plugin, arguments, task)
            if outcome is not OK:
                return outcome
        return OK

    def name(self, kind: str, place: int) -> str:
        """Return the title of the plugin at `place` of the kind's stack, for messages about a process ended there."""
        stack = self.stacks.get(kind, ())
        return stack[place].title if place < len(stack) else ""


def call_one(
    caller: "PluginCaller", row: "Hook", place: int, plugin: Plugin, arguments: "Sequence[object]",
    task: "int | None" = None,
) -> Outcome:  # fmt: skip
    """Call the function of the plugin at this place of the stack."""
    messages.speaker(plugin.type)
    return caller.call(row, plugin.type, plugin.hooks[row.call], arguments, task=task, place=place, title=plugin.title)


class Host:
    """The process for loading plugins. `forks`: the process forks children, so no thread may be left.

    `last_words` receives the reason before a function that nothing interrupts ends the process. `compiled` opens a
    plugin that is a shared object.
    """

    __slots__ = ("compiled", "forks", "last_words", "seconds")

    def __init__(
        self, seconds: float, last_words: "Callable[[str], object]", *, forks: bool, compiled: "Open | None" = None
    ) -> None:
        self.seconds = seconds  # time limit of each plugin's body and init(), 0 for none
        self.last_words = last_words
        self.forks = forks
        self.compiled = compiled


def load_node_plugins(
    wanted: "Mapping[str, Sequence[str]]",
    plugin_dirs: "Sequence[str]",
    host: Host,
    earlier: "Iterable[str]" = (),
) -> NodePlugins:
    """Find, check, load and initialise the `wanted` types of each kind, and the container types in use from `earlier`.

    Raises PluginRefused with one line after calling fini() of the plugins loaded so far; a refused plugin of `earlier`
    raises nothing.
    """
    dirs = (*plugin_dirs, BUILTIN_DIR) if BUILTIN_DIR not in plugin_dirs else tuple(plugin_dirs)
    plugin_api.allow_threads(not host.forks)
    stacks: dict[str, list[Plugin]] = {kind: [] for kind in wanted}
    try:
        for kind, types in wanted.items():
            for plugin_type in types:
                stacks[kind].append(_load(plugin_type, dirs, host))
        before = {plugin_type: _load_or_not(plugin_type, dirs, host) for plugin_type in earlier}
    except PluginRefused:
        _end([*itertools.chain(*stacks.values())])
        raise
    return NodePlugins({kind: tuple(stack) for kind, stack in stacks.items()}, before)


def _load_or_not(plugin_type: str, dirs: "Sequence[str]", host: Host) -> "Plugin | PluginRefused":
    """Load the plugin, or return the refusal. Raises PluginRefused if threads are left in a forking process."""
    try:
        return _load(plugin_type, dirs, host)
    except PluginRefused as refused:
        if host.forks and _has_threads():
            raise
        return refused


def _load(plugin_type: str, dirs: "Sequence[str]", host: Host) -> Plugin:
    path = find(plugin_type, dirs)
    late = f"{path}: it took longer than {host.seconds:g} s to begin, and nothing interrupted it"
    caller = PluginCaller(
        Recorder(-1, ""), None, 0, host.seconds, single_threaded=False, last_words=lambda: host.last_words(late)
    )
    messages.speaker(plugin_type)
    plugin = caller.within_time(_opener(path, plugin_type, host))
    for warning in () if host.forks else plugin.warnings:  # reported once, by the daemon
        messages.tell("plugin-warning", f"{warning}; it is never called")
    outcome = caller.silent(plugin.hooks.get("init", _nothing), ())
    if host.forks and _has_threads():
        if outcome:
            _end([plugin])
        raise PluginRefused(path, None, f"init() {LEFT_THREAD} (nodectl.plugin_api.may_have_threads)")
    if not outcome:
        raise PluginRefused(path, None, f"init(): {outcome.why}")
    return plugin


def _opener(path: str, plugin_type: str, host: Host) -> "Callable[[], Plugin]":
    """Return a function to load the plugin. Raises PluginRefused, now or in the function."""
    if not path.endswith(".so"):
        source = compile_plugin(path)
        return lambda: load(source, KINDS[plugin_type.partition("/")[0]], Plugin)
    compiled = host.compiled
    if compiled is None:
        raise PluginRefused(path, None, "compiled plugins are not loaded here")
    return lambda: compiled(path)


def _nothing() -> None:
    """Do nothing: the init() of a plugin without an init()."""


def _has_threads() -> bool:
    """Return True if the process has several threads; a joined thread may take a moment to disappear."""
    for pause in UNTIL_GONE:
        if len(os.listdir("/proc/self/task")) == 1:
            return False
        time.sleep(pause)
    return True


def _end(plugins: "Sequence[Plugin]") -> None:
    """Call fini() in each plugin, the last loaded first, and report failures on stderr.

    A fini() that does not return, not even when interrupted, ends the process at once.
    """
    caller = PluginCaller(Recorder(-1, ""), None, 0, _END_SECONDS, single_threaded=False, last_words=_nothing)
    for plugin in reversed(plugins):
        fini = plugin.hooks.get("fini")
        messages.speaker(plugin.type)
        if fini is not None and not (outcome := caller.silent(fini, ())):
            messages.tell("plugin-end-failed", f"plugin {plugin.title}: fini(): {outcome.why}")
