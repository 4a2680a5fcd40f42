"""The plugins of the node that every step shares: the stack of task plugins, one for tracking, one for containers.

Loaded and initialised once, by the forkserver (and, for the daemon's row of the launch, by the daemon); a stepd and
its tasks find them in their memory. Task plugins are called in configured order and stop at the first failure. A job
keeps the plugin that made its container, whatever the configuration says since.
"""

import itertools
import os
import time

from nodectl import messages, plugin_api
from nodectl.model.launch_order import ROWS
from nodectl.plugin_host import BUILTIN_DIR
from nodectl.plugin_host.caller import LEFT_THREAD, OK, UNTIL_GONE, Outcome, PluginCaller
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import Plugin, PluginRefused, compile_plugin, find, load
from nodectl.tracing.recorder import Recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from nodectl.model.launch_order import Hook
    from nodectl.model.step import Step
    from nodectl.plugin_host.compiled import Open

_END_SECONDS = 2.0  # of a fini(): the next daemon waits for the end of this process


class NodePlugins:
    """`stacks`: the plugins of each kind in calling order. `earlier` are further ones for containers, by their types:
    those of jobs that began under another configuration, or why one of them cannot be used.
    """

    __slots__ = ("_ended", "earlier", "stacks")

    def __init__(
        self, stacks: "Mapping[str, Sequence[Plugin]]", earlier: "Mapping[str, Plugin | PluginRefused]"
    ) -> None:
        self.stacks = stacks
        self.earlier = earlier
        self._ended = False

    @property
    def proctrack(self) -> Plugin:
        """The one that tracks processes."""
        return self.stacks["proctrack"][0]

    @property
    def container(self) -> Plugin:
        """The one for job containers."""
        return self.stacks["job_container"][0]

    def end(self) -> None:
        """Calls fini() in each plugin, once, the last loaded first: this process ends, or goes on without them."""
        if not self._ended:
            self._ended = True
            earlier = [plugin for plugin in self.earlier.values() if isinstance(plugin, Plugin)]
            _end([*itertools.chain(*self.stacks.values()), *earlier])

    def for_job(self, step: "Step") -> "NodePlugins":
        """These, with the plugin that made the container of the step's job. Raises PluginRefused."""
        return self.with_container(step.container_plugin)

    def with_mpi(self, plugin_type: str) -> "NodePlugins":
        """These, with that MPI plugin and no other. Raises PluginRefused."""
        found = [plugin for plugin in self.stacks["mpi"] if plugin.type == plugin_type]
        if not found:
            raise PluginRefused(plugin_type, None, "it is no MPI plugin of this node any more")
        return NodePlugins({**self.stacks, "mpi": found}, self.earlier)

    def with_container(self, plugin_type: str) -> "NodePlugins":
        """These, with that plugin for containers. Raises PluginRefused."""
        if plugin_type == self.container.type:
            return self
        plugin = self.earlier[plugin_type]
        if isinstance(plugin, PluginRefused):
            raise plugin.with_traceback(None)
        return NodePlugins({**self.stacks, "job_container": (plugin,)}, self.earlier)

    def has(self, call: str) -> bool:
        """True when a plugin of the call's kind has this function."""
        return any(call in plugin.hooks for plugin in self.stacks[ROWS[call].kind])

    def call(
        self, caller: "PluginCaller", call: str, arguments: "Sequence[object]", task: "int | None" = None
    ) -> Outcome:
        """Calls the function in each plugin of its kind that has it, up to the first failure, which is returned."""
        row = ROWS[call]
        for place, plugin in enumerate(self.stacks[row.kind]):
            if call not in plugin.hooks:
                continue
            outcome = call_one(caller, row, place, plugin, arguments, task)
            if not outcome:
                return outcome
        return OK

    def name(self, kind: str, place: int) -> str:
        """Which plugin of a kind stands at `place` of its stack, for messages about a process that left inside it."""
        stack = self.stacks.get(kind, ())
        return stack[place].title if place < len(stack) else ""


def call_one(
    caller: "PluginCaller", row: "Hook", place: int, plugin: Plugin, arguments: "Sequence[object]",
    task: "int | None" = None,
) -> Outcome:  # fmt: skip
    """Calls the function of the plugin at this place of its stack, which has it."""
    messages.speaker(plugin.type)
    return caller.call(row, plugin.type, plugin.hooks[row.call], arguments, task=task, place=place, title=plugin.title)


class Host:
    """The process that loads plugins. `forks`: others are forked from it, so that no thread may be left. `last_words`
    is told what is wrong before a function that nothing interrupts ends the process. `compiled` opens a plugin that is
    a shared object.
    """

    __slots__ = ("compiled", "forks", "last_words", "seconds")

    def __init__(
        self, seconds: float, last_words: "Callable[[str], object]", *, forks: bool, compiled: "Open | None" = None
    ) -> None:
        self.seconds = seconds  # that each plugin's body and its init() may take, 0 for any time
        self.last_words = last_words
        self.forks = forks
        self.compiled = compiled


def load_node_plugins(
    wanted: "Mapping[str, Sequence[str]]",
    plugin_dirs: "Sequence[str]",
    host: Host,
    earlier: "Iterable[str]" = (),
) -> NodePlugins:
    """Finds, checks, loads and initialises plugins: of each kind the types that are `wanted`, and those types for
    containers that are in use from earlier. Raises PluginRefused with one line, when fini() of those that were loaded
    has been called; but not for `earlier`.
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
    """Raises PluginRefused for one that has spoilt the process."""
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
    for warning in () if host.forks else plugin.warnings:  # told once, by the daemon
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
    """Loads the plugin when it is called. Raises PluginRefused, now or then."""
    if not path.endswith(".so"):
        source = compile_plugin(path)
        return lambda: load(source, KINDS[plugin_type.partition("/")[0]], Plugin)
    compiled = host.compiled
    if compiled is None:
        raise PluginRefused(path, None, "compiled plugins are not loaded here")
    return lambda: compiled(path)


def _nothing() -> None:
    """The init() of a plugin that has none."""


def _has_threads() -> bool:
    """True when the process has several threads; one that was joined may take a moment to go."""
    for pause in UNTIL_GONE:
        if len(os.listdir("/proc/self/task")) == 1:
            return False
        time.sleep(pause)
    return True


def _end(plugins: "Sequence[Plugin]") -> None:
    """Calls fini() in each, the last loaded first. What fails is said on stderr; one that does not return, not even
    when interrupted, ends the process at once.
    """
    caller = PluginCaller(Recorder(-1, ""), None, 0, _END_SECONDS, single_threaded=False, last_words=_nothing)
    for plugin in reversed(plugins):
        fini = plugin.hooks.get("fini")
        messages.speaker(plugin.type)
        if fini is not None and not (outcome := caller.silent(fini, ())):
            messages.tell("plugin-end-failed", f"plugin {plugin.title}: fini(): {outcome.why}")
