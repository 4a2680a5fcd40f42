"""A stack of SPANK plugins in one process: loading them, calling a hook through all of them, and what a failure means.

The command that a user runs has one stack (local context), each stepd has one (remote), shared by its tasks after the
fork. Hooks run in file order. The first failure of a required plugin ends the walk; an optional plugin's failure is
noted in the trace and for who asked with
-v, and costs nothing.
"""

import os

from nodectl import messages
from nodectl.door import LEFT_THREAD, Outcome, Overrun
from nodectl.hooks import ROWS, Hook, functions
from nodectl.plugin import PluginRefused, compile_plugin, load
from nodectl.spank import SpankOption
from nodectl.spank.handle import Spank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nodectl.door import Door
    from nodectl.plugin import Plugin, Source
    from nodectl.spank.plugstack import Entry
    from nodectl.spank.witness import Witness
    from nodectl.step import Task

OK = Outcome(0)
TRIAL = "_NODECTL_TRIAL"  # in the environment of the processes of a trial: the path of its description


class StackedPlugin:
    """A loaded plugin in its place: the plugstack line, the options it offers, the ones the user gave."""

    __slots__ = ("entry", "given", "options", "place", "plugin")

    def __init__(self, entry: "Entry", plugin: "Plugin", place: int) -> None:
        self.entry = entry
        self.plugin = plugin
        self.place = place
        self.options: dict[str, SpankOption] = {}
        self.given: dict[str, str | None] = {}
        table = getattr(plugin.module, "spank_options", ())
        if isinstance(table, list | tuple):
            for option in table:
                if isinstance(option, SpankOption) and option.name:
                    self.options[option.name] = option


class Stack:
    """The plugins of one process and the handle their hooks are given."""

    __slots__ = ("_door", "handle", "plugins")

    witness: "Witness | None" = None  # of every stack of a process that is part of a trial

    def __init__(self, door: "Door", handle: Spank) -> None:
        self._door = door
        self.handle = handle
        self.plugins: list[StackedPlugin] = []

    def load(self, entries: "Iterable[Entry]", source_of: "Callable[[str], Source]" = compile_plugin) -> Outcome:
        """Loads every entry. A required plugin that cannot be used is the failure returned; an optional one is
        skipped.
        """
        for place, entry in enumerate(entries):
            if self.witness is not None:
                self.witness.enter("load", entry.path, self.handle, None)
            outcome = self._load(entry, place, source_of)
            if self.witness is not None:
                self.witness.leave(outcome)
            if outcome:
                continue
            outcome.why = f"{entry.origin}: {'required' if entry.required else 'optional'} plugin {outcome.why}"
            if entry.required or outcome.fatal:
                return outcome
            messages.verbose(f"{outcome.why}; skipped")
        return OK

    def _load(self, entry: "Entry", place: int, source_of: "Callable[[str], Source]") -> Outcome:
        if entry.missing:
            return Outcome(-1, f"{entry.path}: no such file in plugin_dir")
        try:
            source = source_of(entry.path)
            plugin = self._door.within_time(lambda: load(source, kind="spank", hooks=functions("spank")))
        except PluginRefused as refused:
            return Outcome(-1, str(refused))
        except Overrun as overrun:
            return Outcome(-1, f"{entry.path}: {overrun}")
        started = plugin.hooks.get("init")
        if started is not None:
            outcome = self._door.silent(started, ())
            if not outcome:
                return Outcome(outcome.rc, f"{plugin.path}: init(): {outcome.why}")
        if self._door.left_thread():
            return Outcome(-1, f"{plugin.path}: {LEFT_THREAD}", fatal=True)
        self.plugins.append(StackedPlugin(entry, plugin, place))
        return OK

    def through(self, door: "Door") -> None:
        """After a fork: calls of this process go through its own door."""
        self._door = door

    def name(self, place: int) -> str:
        """Which plugin stands at this place of the stack."""
        return next((stacked.plugin.name for stacked in self.plugins if stacked.place == place), "")

    def has(self, call: str) -> bool:
        """True when any plugin of the stack defines the hook."""
        return any(call in stacked.plugin.hooks for stacked in self.plugins)

    def call(self, call: str, task: "Task | None" = None, row: "Hook | None" = None) -> Outcome:
        """Calls the hook in every plugin that has it. The failure of a required plugin is returned, naming plugin and
        hook.
        """
        row = row or ROWS[call]
        for stacked in self.plugins:
            function = stacked.plugin.hooks.get(call)
            if function is None:
                continue
            argv = list(stacked.entry.argv)
            outcome = self._enter(stacked, row, function, (self.handle, len(argv), argv), task)
            if outcome:
                continue
            if stacked.entry.required or outcome.fatal:
                return outcome
            messages.verbose(f"optional {outcome.why}")
        return OK

    def _enter(
        self, stacked: StackedPlugin, row: Hook, function: "Callable[..., object]", arguments: "tuple[object, ...]",
        task: "Task | None",
    ) -> Outcome:  # fmt: skip
        handle = self.handle
        handle.hook, handle.plugin, handle.task = row.call, stacked, task
        door = self._door if self.witness is None else self.witness.beside(self._door, handle)
        try:
            return door.call(
                row,
                stacked.plugin.name,
                function,
                arguments,
                task=None if task is None else task.local_id,
                place=stacked.place,
            )
        finally:
            handle.hook, handle.plugin, handle.task = "", None, None

    def process_options(self, given: "Iterable[list[str]]") -> None:
        """Remote side: hands each option the user gave to its plugin's callback. Unknown ones are ignored with a word.

        A callback that fails is logged only: the command has checked the value already, where it could be refused.
        """
        for plugin_name, option_name, value in given:
            for stacked in self.plugins:
                if stacked.plugin.name == plugin_name and option_name in stacked.options:
                    outcome = self.process_option(stacked, stacked.options[option_name], value, remote=True)
                    if not outcome:
                        messages.error(outcome.why)
                    break
            else:
                messages.verbose(f"option {option_name} of plugin {plugin_name} is unknown here")

    def process_option(
        self, stacked: StackedPlugin, option: SpankOption, value: "str | None", *, remote: bool
    ) -> Outcome:
        """Notes the value and calls the option's callback with it."""
        stacked.given[option.name] = value
        if option.cb is None:
            return OK
        argument = None if option.has_arg == 0 or value == "" else value
        return self._enter(stacked, ROWS["option"], option.cb, (option.val, argument, int(remote)), None)


def local_row(call: str) -> Hook:
    """A row for a hook in the command's own process, as the user who runs it."""
    return Hook(call, "spank", "command", "user", "step", 3, "the command fails, exit status 1")


def witness_if_tried() -> None:
    """In a process of `nodectl spank try`, before any plugin is loaded: what plugins do is written down from now on."""
    if path := os.environ.get(TRIAL):
        from nodectl.spank import witness  # only for trials

        witness.start(path)


def tried() -> dict[str, str]:
    """What a process of a trial puts into the environment of the next one."""
    return {TRIAL: os.environ[TRIAL]} if TRIAL in os.environ else {}
