"""A stack of SPANK plugins in a process: loading plugins, calling a hook in each plugin, handling failures.

The command that a user runs has one stack (local context), each stepd has one (remote), shared by its tasks after the
fork. Hooks run in file order. The first failure of a required plugin ends the walk; an optional plugin's failure is
noted in the trace, gives the user one warning, and costs nothing else.
"""

import os

from nodectl import messages
from nodectl.model import launch_order
from nodectl.plugin_host.caller import OK, Outcome, Overrun
from nodectl.plugin_host.loader import PluginRefused, Source
from nodectl.spank import spank_h
from nodectl.spank.handle import FORWARDED, Spank, forwarding_name
from nodectl.spank.plugin_file import DeferredSource, open_source
from nodectl.spank.python_plugin import load_python
from nodectl.spank.spank_h import SpankOption
from nodectl.spank.stacked_plugin import StackedPlugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Protocol

    from nodectl.model.launch_order import Hook
    from nodectl.model.plugstack_entry import Entry
    from nodectl.model.step import Task
    from nodectl.plugin_host.caller import PluginCaller
    from nodectl.spank.native import NativePlugin
    from nodectl.spank.plugin_file import OpenSource
    from nodectl.spank.python_plugin import PythonPlugin
    from nodectl.spank.ready_stack import ReadyStack

    class Caller(Protocol):
        """A caller of hooks."""

        @property
        def call(self) -> Callable[..., Outcome]:
            """The function to call a hook with; see `PluginCaller.call`."""

    class Probe(Protocol):
        """The interface of the probe (`nodectl/spank/probe.py`) for a stack."""

        def beside(self, caller: PluginCaller, handle: Spank) -> Caller:
            """Return a recording caller."""

        def enter(self, hook: str, plugin: str, handle: Spank, task: int | None) -> None:
            """Record the start of loading a plugin."""

        def leave(self, outcome: Outcome) -> None:
            """Record the end of loading."""


_CARRIERS = (FORWARDED, f"SPANK_{FORWARDED}")  # prefixes of variables that carry options
_MODES = {
    spank_h.ESPANK_NODE_FAILURE: "a failure of the node",
    spank_h.ESPANK_JOB_FAILURE: "a failure of the job",
}  # slurm_spank_init_failure_mode


class Stack:
    """The plugins of a process and the handle for the plugins' hooks. `only`: the hooks to call; None for all."""

    __slots__ = ("_caller", "_only", "_ready", "handle", "plugins")

    probe: "Probe | None" = None  # of every stack in a process of a probe run

    def __init__(self, caller: "PluginCaller", handle: Spank, only: "frozenset[Hook] | None" = None) -> None:
        self._caller = caller
        self._only = only
        self._ready: ReadyStack | None = None
        self.handle = handle
        self.plugins: list[StackedPlugin] = []

    def load(
        self, entries: "Iterable[Entry]", open_source: "OpenSource" = open_source, ready: "ReadyStack | None" = None
    ) -> Outcome:
        """Load every entry. Return the failure of the first unusable required plugin; skip unusable optional plugins.

        `ready`: the same entries, as the forkserver has made them ready.
        """
        if ready is not None:
            self._ready, self.plugins = ready, ready.plugins
            return OK
        for place, entry in enumerate(entries):
            if self.probe is not None:
                self.probe.enter("load", entry.path, self.handle, None)
            outcome = self._load(entry, place, open_source)
            if self.probe is not None:
                self.probe.leave(outcome)
            if outcome:
                continue
            kind = "required" if entry.required else "optional"
            outcome.why = messages.printable(f"{entry.origin}: {kind} plugin {outcome.why}")
            if entry.required:
                return outcome
            messages.warning(f"{outcome.why}; skipped")
        return OK

    def _load(self, entry: "Entry", place: int, open_source: "OpenSource") -> Outcome:
        if entry.missing:
            return Outcome(-1, f"{entry.path}: no such file in plugin_dir")
        self._caller.enter(launch_order.LOADING, place)
        try:
            source = open_source(entry.path)
            if isinstance(source, Source):
                plugin: PythonPlugin | NativePlugin = self._caller.within_time(lambda: load_python(source))
            else:
                plugin = source.plugin if not isinstance(source, DeferredSource) else self._open(source)
        except PluginRefused as refused:
            return Outcome(-1, str(refused))
        except Overrun as overrun:
            return Outcome(-1, f"{entry.path}: {overrun}")
        started = plugin.hooks.get("init")
        if started is not None:
            outcome = self._caller.silent(started, ())
            if not outcome:
                return Outcome(outcome.rc, f"{plugin.path}: init(): {outcome.why}")
        # plugins.txt: a plugin may make a thread in init() and end it in fini().
        if started is not None or isinstance(source, Source | DeferredSource):
            self._caller.left_thread()
        for warning in plugin.warnings:
            messages.warning(messages.printable(f"{entry.origin}: plugin {warning}; it is not called"))
        stacked = StackedPlugin(entry, plugin, place)
        # The manual: a table is not supported in the allocator's commands.
        if self.handle.context != spank_h.S_CTX_ALLOCATOR:
            stacked.offer_table()
        self.plugins.append(stacked)
        return OK

    def _open(self, source: DeferredSource) -> "NativePlugin":
        """Open a plugin after the fork, where opening before the fork failed. Raises PluginRefused and Overrun."""
        from nodectl.spank.native import open_native  # the forkserver has imported it

        return self._caller.within_time(lambda: open_native(source.path)).plugin

    def end(self) -> None:
        """Call each plugin's fini() at the end of the process; report a failure, which costs nothing else."""
        loaded = self.plugins if self._ready is None else self._ready.with_fini
        for stacked in loaded:
            last = stacked.plugin.hooks.get("fini")
            if last is None:
                continue
            outcome = self._caller.silent(last, ())
            if not outcome:
                messages.warning(
                    messages.printable(f"plugin {stacked.plugin.name}: fini(): {outcome.why} ({stacked.plugin.path})")
                )
        self.plugins, self._ready = [], None

    def through(self, caller: "PluginCaller") -> None:
        """Use this process's own caller after a fork."""
        self._caller = caller

    def name(self, place: int) -> str:
        """Return the name of the plugin at this place of the stack."""
        return next((stacked.plugin.name for stacked in self.plugins if stacked.place == place), "")

    def requires(self, place: int) -> bool:
        """Return True for a required plugin at this place of the stack."""
        return any(stacked.entry.required for stacked in self.plugins if stacked.place == place)

    def has(self, row: "Hook") -> bool:
        """Return True if any plugin of the stack defines the hook and this process calls the hook."""
        if not self.plugins or (self._only is not None and row not in self._only):
            return False
        if self._ready is not None:
            return row.call in self._ready.hooks
        return any(row.call in stacked.plugin.hooks for stacked in self.plugins)

    def call(self, row: "Hook", task: "Task | None" = None) -> Outcome:
        """Call the hook in every plugin with this hook. Return the failure of a required plugin, naming plugin and
        hook.
        """
        if self._only is not None and row not in self._only:
            return OK
        with self._caller:
            if self._ready is not None:
                return self._call_compiled(self._ready, row, task)
            for stacked in self.plugins:
                function = stacked.plugin.hooks.get(row.call)
                if function is None:
                    continue
                argv = list(stacked.entry.argv)
                outcome = self._enter(stacked, row, function, (self.handle, len(argv), argv), task)
                if not outcome and self._ends_walk(stacked, row, outcome):
                    return outcome
        return OK

    def _call_compiled(self, ready: "ReadyStack", row: "Hook", task: "Task | None") -> Outcome:
        compiled = ready.hooks.get(row.call)
        if compiled is None:
            return OK
        handle, begin = self.handle, 0
        handle.hook, handle.task = row.call, task
        try:
            number = None if task is None else task.number
            while (stopped := self._caller.walk(row, compiled, handle, begin, task=number)) is not None:
                place, outcome = stopped
                if not outcome and self._ends_walk(compiled.members[place], row, outcome):
                    return outcome
                begin = place + 1
        finally:
            handle.hook, handle.plugin, handle.task = "", None, None
        return OK

    @staticmethod
    def _ends_walk(stacked: StackedPlugin, row: "Hook", outcome: Outcome) -> bool:
        """Handle a plugin's failure. Return True to skip the remaining plugins."""
        mode = stacked.plugin.init_failure_mode if row.call == launch_order.SPANK_INIT.call else 0
        if mode:
            outcome.rc = mode
            outcome.why += f"; the plugin calls it {_MODES.get(mode, f'failure {mode}')}"
        outcome.why = f"{outcome.why} ({stacked.plugin.path})"
        if stacked.entry.required:
            return True
        messages.warning(messages.printable(f"optional {outcome.why}"))
        return False

    def _enter(
        self, stacked: StackedPlugin, row: "Hook", function: "Callable[..., object]", arguments: "tuple[object, ...]",
        task: "Task | None",
    ) -> Outcome:  # fmt: skip
        handle = self.handle
        handle.hook, handle.plugin, handle.task = row.call, stacked, task
        caller = self._caller if self.probe is None else self.probe.beside(self._caller, handle)
        try:
            return caller.call(
                row,
                stacked.plugin.name,
                function,
                arguments,
                task=None if task is None else task.number,
                place=stacked.place,
            )
        finally:
            handle.hook, handle.plugin, handle.task = "", None, None

    def process_options(self, given: "Iterable[list[str]]") -> Outcome:
        """Call the callback of each option given by the user, once, on the remote side.

        The step's options come first, as [plugin, option] or [plugin, option, argument], then further options in the
        job's environment; the variables that carry options do not reach the tasks. A verbose message names each unknown
        option, which is ignored. Return the first failure of a required plugin's callback and call no further callback.
        """
        for plugin_name, option_name, *argument in given:
            for stacked, option in self.offered():
                if (stacked.plugin.name, option.name) == (plugin_name, option_name):
                    outcome = self._process_remote(stacked, option, argument[0] if argument else None)
                    if not outcome:
                        return outcome
                    break
            else:
                messages.verbose(f"option {option_name} of plugin {plugin_name} is unknown here")
        environment = self.handle.job_environment()
        carrying = [name for name in environment if name.startswith(_CARRIERS)]
        for stacked, option in self.offered() if carrying else ():
            value = environment.get(forwarding_name(stacked.plugin.name, option.name))
            if value is not None and option.name not in stacked.given:
                outcome = self._process_remote(stacked, option, value)
                if not outcome:
                    return outcome
        for name in carrying:
            environment.pop(name, None)
        return OK

    def _process_remote(self, stacked: StackedPlugin, option: SpankOption, argument: "str | None") -> Outcome:
        outcome = self.process_option(stacked, option, argument, remote=True)
        return OK if outcome or not self._ends_walk(stacked, launch_order.OPTION, outcome) else outcome

    def process_option(
        self, stacked: StackedPlugin, option: SpankOption, argument: "str | None", *, remote: bool
    ) -> Outcome:
        """Store the argument, None without one, and call the option's callback.

        In the stepd a missing argument is "": Slurm's options travel there as variables, which have a value.
        """
        argument = "" if remote and argument is None else argument
        stacked.given[option.name] = argument
        if option.cb is None:
            return OK
        arguments = option.val, argument, int(remote)
        outcome = self._enter(
            stacked, launch_order.OPTION if remote else launch_order.LOCAL_OPTION, option.cb, arguments, None
        )
        if not outcome:
            outcome.why = outcome.why.replace(": option: ", f": option {option.name}: ", 1)
        return outcome

    def offered(self) -> "Iterator[tuple[StackedPlugin, SpankOption]]":
        """Yield every option of every plugin, in the order of the stack."""
        for stacked in self.plugins:
            for option in stacked.options.values():
                yield stacked, option

    def given(self) -> list[list[str]]:
        """Return the given options as sent to the step: [plugin, option] or [plugin, option, argument]."""
        found = []
        for stacked, option in self.offered():
            if option.name in stacked.given:
                argument = stacked.given[option.name]
                found.append([stacked.plugin.name, option.name, *([] if argument is None else [argument])])
        return found

    def publish(self) -> None:
        """Put the given options into the environment and the job-control environment, before init_post_opt in the
        command.

        The environment is for commands started from here, the job-control environment for prolog and epilog.
        """
        for plugin_name, option_name, *argument in self.given():
            name = forwarding_name(plugin_name, option_name)
            value = argument[0] if argument else ""
            os.environ[name] = self.handle.job_control[name] = value
