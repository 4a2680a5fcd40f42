"""SPANK's local and allocator contexts: the plugins in the process of the command, as the user running the command.

Hooks: init, the callbacks of the options the user gave, init_post_opt, local_user_init (the job exists, nothing is
launched; not in the allocator context, of `nodectl submit` and `alloc`), exit. A required plugin that fails here
refuses the command. As with srun, `run` does not call exit then unless all options had been read; as with sbatch and
salloc, `submit` and `alloc` call it wherever init has succeeded.
"""

import os
import posix
import sys

from nodectl import messages
from nodectl.client.command import USAGE, BadOption, Failed, Program
from nodectl.client.job_options import ALLOC, SUBMIT
from nodectl.client.run_options import OPTIONS, PluginOption, layout_options, waiting_options
from nodectl.model import launch_order
from nodectl.model.plugstack_entry import entry_from_list
from nodectl.model.step import Step
from nodectl.plugin_host.caller import Outcome, PluginCaller
from nodectl.plugin_host.tracing.recorder import Recorder
from nodectl.spank import S_CTX_ALLOCATOR, S_CTX_LOCAL, probe_variable, versions
from nodectl.spank.handle import Spank, forwarding_name
from nodectl.spank.plugin_file import is_native
from nodectl.spank.stack import Stack
from nodectl.spank.stacked_plugin import StackedPlugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from nodectl.client.session import Session
    from nodectl.model.launch_order import Hook
    from nodectl.plugin_host.loader import Plugin
    from nodectl.spank import SpankOption
    from nodectl.spank.native import NativePlugin

    _T = TypeVar("_T")

_PRESET = "SLURM_SPANK_"


def open_stack(
    session: "Session", hello: "Mapping[str, object]", words: "Sequence[str]", context: int = S_CTX_LOCAL
) -> "LocalStack":
    """Return the plugins described by `hello`, for a command with these words.

    If one of them is compiled, this executes the command again first, with the host of compiled plugins.
    """
    if any(is_native(row["path"]) and not row["missing"] for row in hello["stack"]):  # type: ignore[attr-defined]
        from nodectl.client import reexec

        reexec.with_native_host(session.private)
    # The plugins exist before the options are parsed, so -v is counted in the words.
    verbose = sum(word.count("v") if word.strip("v") == "-" else int(word == "--verbose") for word in words)
    return LocalStack(hello, verbose=verbose, context=context)


class _CommandCaller(PluginCaller):
    """The caller of plugins in the process of the command.

    A plugin which calls os._exit would end the command with a status of its own, often 0, without running anything: the
    call fails instead. `nodectl/spank/c/guard.c` does this for compiled plugins.
    """

    __slots__ = ("_end_process", "_inside")

    def __init__(self, timeout: float, last_words: "Callable[[], object]") -> None:
        super().__init__(Recorder(-1, "command"), None, 0, timeout, single_threaded=False, last_words=last_words)
        self._inside = 0  # the pid of this process while a plugin runs in it; a plugin's child may end as it likes
        self._end_process = os._exit
        os._exit = posix._exit = self._exit  # type: ignore[assignment]  # both return never

    def _exit(self, status: int) -> None:
        if self._inside == os.getpid():
            raise SystemExit(f"called os._exit({status})")
        self._end_process(status)

    def silent(self, function: "Callable[..., object]", arguments: "Sequence[object]") -> Outcome:
        """See PluginCaller."""
        self._inside = os.getpid()
        try:
            return super().silent(function, arguments)
        finally:
            self._inside = 0

    def within_time(self, function: "Callable[[], _T]") -> "_T":
        """See PluginCaller."""
        self._inside = os.getpid()
        try:
            return super().within_time(function)
        finally:
            self._inside = 0


class LocalStack:
    """The plugin stack described by `hello`, loaded and initialised. Raises Failed when a required plugin refuses."""

    def __init__(self, hello: "Mapping[str, object]", *, verbose: int, context: int) -> None:
        probe_variable.start_probe()
        os.environ.pop(probe_variable.NAME, None)  # no business of the tasks'
        messages.listen(self._print, level=messages.INFO + min(verbose, 4))
        self.warned: set[str] = set()
        caller = _CommandCaller(float(str(hello["hook_timeout"])), self._give_up)
        self._stack = Stack(caller, Spank(context))
        self._knows_options = False
        self._node = hello.get("node")
        versions.accept(str(hello.get("spank_versions", versions.DEFAULT)))
        entries = [
            entry_from_list([row[name] for name in ("path", "argv", "required", "origin", "missing")])
            for row in hello["stack"]  # type: ignore[attr-defined]
        ]
        try:
            self._require(self._stack.load(entries))
            self._call(launch_order.LOCAL_SPANK_INIT)
        except Failed:
            self._stack.end()
            raise
        self._calls_exit = context == S_CTX_ALLOCATOR
        self._offers = self._merged()

    def _print(self, line: str) -> None:
        is_unasked = Program.quiet and line.startswith(messages.WARNING)
        if not is_unasked and messages.is_news(line, self.warned):
            print(line, file=sys.stderr)

    def _give_up(self) -> None:
        """Report a plugin which has ignored every interruption; the command ends."""
        handle = self._stack.handle
        where = f"plugin {handle.plugin.plugin.name}: {handle.hook}" if handle.plugin else "loading a plugin"
        messages.error(f"{where}: ran over its time and could not be interrupted")

    def _require(self, outcome: Outcome) -> None:
        if not outcome:
            raise Failed(outcome.why)

    def _call(self, row: "Hook") -> None:
        self._require(self._stack.call(row))

    def options(self) -> list[PluginOption]:
        """Return the plugins' options, for the parser and the help."""
        return self._offers

    def _merged(self) -> list[PluginOption]:
        """Return the options of all plugins.

        If two plugins have an option of the same name, the first plugin's wins; nodectl's own names stay nodectl's.
        """
        own = {option.long for option in (*OPTIONS, *layout_options(), *waiting_options())}
        if self._stack.handle.context == S_CTX_ALLOCATOR:
            own |= {row[0] for row in (*SUBMIT, *ALLOC)}
        found: dict[str, tuple[Plugin | NativePlugin, PluginOption]] = {}
        for stacked, option in self._stack.offered():
            plugin = stacked.plugin.name
            if option.name in own:
                messages.error(f'option "{option.name}" of plugin {plugin} is disabled: nodectl run has one of its own')
            elif option.name in found:
                both = " and ".join(f"{one.name} ({one.path})" for one in (found[option.name][0], stacked.plugin))
                messages.info(f'option "{option.name}" provided by both {both}')
            else:
                preset = _PRESET + forwarding_name(plugin, option.name)
                found[option.name] = stacked.plugin, PluginOption(option, self._taker(stacked, option), preset)
        return [offer for _, offer in found.values()]

    def _taker(self, stacked: StackedPlugin, option: "SpankOption") -> "Callable[[str | None], object]":
        def take(argument: str | None) -> None:
            outcome = self._stack.process_option(stacked, option, argument, remote=False)
            if not outcome:
                shown = "" if argument is None else f" argument: {argument}"
                raise BadOption(f"Invalid --{option.name}{shown} ({outcome.why})", USAGE)

        return take

    def presets(self) -> None:
        """Set the options given in the environment, before the options of the command line. Raises BadOption."""
        for option in self._offers:
            value = os.environ.get(option.preset)
            if value is not None:
                option.take_argument(value if option.has_arg else None)

    def after_options(self) -> None:
        """Call init_post_opt, once, because a command may launch further steps.

        With --quiet, plugins are heard from then on only where something went wrong.
        """
        if self._knows_options:
            return
        self._knows_options = True
        self._stack.publish()
        self._call(launch_order.LOCAL_SPANK_INIT_POST_OPT)
        self._calls_exit = True
        if Program.quiet:
            messages.listen(self._print, level=messages.ERROR)

    def before_launch(self, request: "Mapping[str, object]", reserved: "Mapping[str, object]") -> None:
        """Call local_user_init, with the job about to be launched."""
        blank: dict[str, object] = dict.fromkeys(Step.FIELDS)
        self._stack.handle.step = Step(
            **{
                **blank,
                **{name: value for name, value in request.items() if name in Step.FIELDS},
                "node_name": self._node,
                "job_id": reserved["job"],
                "step_id": reserved["step"],
                "uid": os.getuid(),
                "gid": os.getgid(),
                "gids": os.getgroups(),
                "allocation": 0,
                "cpu_masks": [],
            }
        )
        try:
            self._call(launch_order.SPANK_LOCAL_USER_INIT)
        finally:
            self._stack.handle.step = None

    def given(self) -> list[list[str]]:
        """Return the options given by the user, for the step."""
        return self._stack.given()

    def job_control(self) -> dict[str, str]:
        """Return the variables set by the plugins for prolog and epilog, under the plugins' names."""
        return self._stack.handle.job_control

    def for_commands_within(self) -> dict[str, str]:
        """Return variables for the commands within the job: all variables of the job's prolog.

        They hold the options given by the user, which a command there takes as its own.
        """
        return {f"{_PRESET}{name}": value for name, value in self.job_control().items()}

    def close(self) -> None:
        """Call exit, then every fini(). Report a failure and go on."""
        if self._calls_exit:
            outcome = self._stack.call(launch_order.LOCAL_SPANK_EXIT)
            if not outcome:
                messages.error(outcome.why)
        self._stack.end()
