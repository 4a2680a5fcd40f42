"""Calls of a select plugin: each call is timed, bounded in time and reported to `on_call`; no exception passes.

The log names a fault of the plugin's once for each function and rule. In the daemon's event loop, and in planning
commands.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nodectl import messages
from nodectl.plugin_api import PluginError, take_errno
from nodectl.plugin_host import BUILTIN_DIR
from nodectl.plugin_host.caller import OK, Outcome, PluginCaller, judged
from nodectl.plugin_host.loader import Plugin
from nodectl.selection import slurmctld
from nodectl.selection.keeper import Keeper
from nodectl.selection.slurmctld import Parameters

_F = TypeVar("_F", bound=Callable[..., object])
OnCall = Callable[[str, Sequence[object], object], object]
"""Is told each call: the function's name, its arguments, and what it returned or the text of what went wrong."""
_MOST_FAULTS = 1000
_NO_CLOCK = contextlib.nullcontext()
PREFIX = "select_p_"
_IDLE = "idle"


class PluginAnswer:
    """The result of a call.

    `there`: the plugin has the function. `fault`: it raised, hung or answered nonsense. `why`: the reason of a failure,
    in the plugin's own words where it gave some. `own`: these words are the plugin's own.
    """

    __slots__ = ("fault", "ok", "own", "there", "value", "why")

    def __init__(
        self, value: Any = None, why: str = "", *, there: bool = True, fault: bool = False, own: bool = False
    ) -> None:
        self.value = value
        self.why = why
        self.there = there
        self.fault = fault
        self.own = own
        self.ok = not why


ABSENT = PluginAnswer(there=False)
NOTHING = PluginAnswer()
_SUCCESS = PluginAnswer(0)


class PluginCalls:
    """A plugin with its caller.

    `parameters` and `now`: the configuration and the time seen by the plugin during a call.
    """

    def __init__(
        self, plugin: Plugin, caller: PluginCaller, parameters: Parameters, say: Callable[[str], object] | None,
        on_call: OnCall | None,
    ) -> None:  # fmt: skip
        self.type = plugin.type
        self.title = plugin.title
        self.parameters = parameters
        self.now = 0.0
        self.on_call = on_call
        self.faults: list[str] = []  # the first thousand, each as often as it came
        # A built-in plugin is trusted as the scheduler is: no clock runs, and its changes are not checked.
        self.is_ours = os.path.dirname(plugin.path) == os.path.join(BUILTIN_DIR, "select")
        self.keeper = Keeper(watches=not self.is_ours)
        # Functions of a built-in plugin that do nothing are called only for an observer.
        idle = _IDLE if self.is_ours and on_call is None else ""
        self._hooks = {name: function for name, function in plugin.hooks.items() if idle not in vars(function)}
        self._caller = caller
        self._say = say or _to_the_log
        self._told: set[tuple[str, str]] = set()

    def has(self, name: str) -> bool:
        """True where the plugin has the function."""
        return PREFIX + name in self._hooks

    @property
    def together(self) -> contextlib.AbstractContextManager[object]:
        """A context manager for calling several functions under the same clock, which costs less."""
        return _NO_CLOCK if self.is_ours else self._caller

    def value(self, name: str, *arguments: object) -> PluginAnswer:
        """Call a function for a value."""
        function = self._hooks.get(PREFIX + name)
        if function is None:
            return ABSENT
        slurmctld.enter(self.parameters, self.now)
        messages.speaker(self.type)
        if self.is_ours:
            answer = _ours(function, arguments)
        else:
            kept = self.keeper.before(arguments)
            answer = _answer(*self._caller.value(function, arguments))
            wrong = self.keeper.after(name, kept, succeeded=answer.ok and not answer.value) if kept else {}
            for field, words in wrong.items():
                self.fault(name, f"a job's {field}", words)
        if self.on_call is not None:
            self.on_call(PREFIX + name, arguments, answer.why or answer.value)
        if answer.fault:
            self.fault(name, "raised", answer.why)
        return answer

    def code(self, name: str, *arguments: object) -> PluginAnswer:
        """Call a function for a number: SLURM_SUCCESS or an error."""
        answer = self.value(name, *arguments)
        if answer is _SUCCESS:
            return answer
        value = answer.value
        if not answer.ok or not answer.there or value is None:
            return answer
        if not isinstance(value, int):
            return self.nonsense(name, value, "not a number")
        if not value:
            return answer
        return self._failure(int(value), f"returned {int(value)}")

    def null(self, name: str, answer: PluginAnswer) -> PluginAnswer:
        """Turn the answer NULL (None) of a function for an object into a failure."""
        if not answer.ok or not answer.there or answer.value is not None:
            return answer
        return self._failure(None, "returned NULL")

    def _failure(self, value: int | None, plainly: str) -> PluginAnswer:
        """Make the answer of a failed call: the reason is the text given to set_errno, else `plainly`."""
        code, words = take_errno()
        reason = _reason(code, words) if code else ""
        return PluginAnswer(value, reason or plainly, own=bool(reason))

    def nonsense(self, name: str, value: object, wanted: str) -> PluginAnswer:
        """Note a useless result as a fault, and return a failed answer."""
        shown = _shown(value)
        self.fault(name, "nonsense", f"returned {shown}, {wanted}")
        return PluginAnswer(None, f"returned {shown}, {wanted}", fault=True)

    def failed(self, name: str, answer: PluginAnswer) -> bool:
        """Return True for a failed call. A failure reported by the plugin itself goes to the log."""
        if not answer.ok and not answer.fault:
            self.fault(name, "failed", answer.why)
        return not answer.ok

    def fault(self, name: str, rule: str, words: str) -> str:
        """Note a rule broken by the plugin in this function. Return the line for the log, which gets each line once."""
        text = f"plugin {self.title}: {PREFIX}{name}: {words}"
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(text)
        if (name, rule) not in self._told:
            self._told.add((name, rule))
            self._say(text)
        return text


def idle(function: _F) -> _F:
    """Mark a function of a built-in plugin without any effect, called only for an observer (`on_call`)."""
    vars(function)[_IDLE] = True
    return function


def _ours(function: Callable[..., Any], arguments: Sequence[object]) -> PluginAnswer:
    """Call a function of a built-in plugin."""
    take_errno()
    try:
        value = function(*arguments)
    except Exception as error:
        return _answer(None, judged(error))
    return _SUCCESS if type(value) is int and not value else _answer(value, OK)


def _answer(value: object, outcome: Outcome) -> PluginAnswer:
    if not outcome:
        return PluginAnswer(None, outcome.why or "failed", fault=not outcome.errno, own=bool(outcome.errno))
    return NOTHING if value is None else PluginAnswer(value)


@functools.lru_cache(maxsize=64)
def _reason(code: int, words: str) -> str:
    """Return what a plugin has given to set_errno, in one line. Many jobs are refused for the same reason."""
    return " ".join(str(PluginError(code, words)).split())


def _to_the_log(text: str) -> None:
    messages.tell("select-said", text)


def _shown(value: object) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
