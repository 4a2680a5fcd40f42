"""Calling plugins: each call is timed, traced and bounded in time, and every exception of a plugin is caught here.

The daemon, each stepd and each task call plugins through a PluginCaller of their own. A hook fails when it returns
anything but 0 or None, raises anything (SystemExit too), overruns its time, or leaves a thread behind where a fork is
still to come.
"""

import _signal
import os
import time

from nodectl.kernel import _kernel
from nodectl.plugin_api import PluginError, take_errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol, TypeVar

    from nodectl.model.launch_order import Hook
    from nodectl.plugin_host.tracing.progress import Progress, ProgressReporter
    from nodectl.plugin_host.tracing.recorder import Recorder

    _T = TypeVar("_T")

    class CompiledHook(Protocol):
        """A hook of compiled plugins, with a loop in C over the plugins (`nodectl/spank/ready_stack.py`)."""

        @property
        def walk(self) -> Callable[..., tuple[int, int, object] | None]:
            """The function to call the plugins with.

            It returns None when all went well; else the place of the last call, when the call began, and its result.
            """

        def plugin_name(self, place: int) -> str:
            """Return the name of the plugin at this place."""


FAILED = -1
_INTERRUPTS = 3
_end_process = os._exit  # in the command, plugins find another function under the name os._exit
_NEARLY = 0.98  # of the time limit: a clock that has run for less than a hundredth of it goes on for the next hook
_DEADLINE = 4.0  # seconds after the first interrupt: for a process that ignores it, or is stopped
UNTIL_GONE = (0.0, 0.001, 0.01, 0.1, 0.0)  # pauses while a joined thread disappears
_OURS = os.path.dirname(os.path.dirname(__file__))
_PLUGINS = os.path.join(_OURS, "plugins", "")
LEFT_THREAD = "left a thread running; tasks are still to be forked"


class Overrun(BaseException):
    """The interruption of a hook after its time. No Exception: a plugin's broad `except` should not swallow it."""


class _Clock:
    """A timer to raise Overrun in the running code after `seconds`, and again every second. 0: no timer.

    With `last_words`, the process ends after them if the code swallows Overrun repeatedly, and without them if nothing
    interrupts the code. During a walk the timer runs on from one hook to the next.
    """

    __slots__ = ("_handler", "_last_words", "_late", "_running", "_started", "times", "walks")

    def __init__(self, seconds: float, last_words: "Callable[[], object] | None") -> None:
        self.times = (seconds, seconds + _DEADLINE if last_words else 0.0)  # as for _kernel.set_clock
        self._last_words = last_words
        self._running = False
        self._started = 0.0
        self._late = 0
        self.walks = 0
        self._handler = self._overrun

    def __enter__(self) -> None:
        if self.times[0]:
            self._late = 0
            self._started = time.monotonic()
            self._running = True
            if _signal.getsignal(_signal.SIGALRM) is not self._handler:  # the first time, or a plugin took it
                _signal.signal(_signal.SIGALRM, self._handler)
            _kernel.set_clock(*self.times)

    def __exit__(self, *_: object) -> None:
        self._running = False
        if self._late or not self.walks:
            _kernel.stop_clock()

    def _overrun(self, *_: object) -> None:
        if not self._running:
            return  # another alarm, or ours while no plugin runs
        if _kernel.successor_elsewhere():
            _kernel.stop_clock()
            return  # the hook's child is the task, and it waits for that
        if time.monotonic() - self._started < _NEARLY * self.times[0]:
            return  # a plugin, or a process that a plugin left behind, has sent the signal
        self._late += 1
        if self._last_words is not None and self._late > _INTERRUPTS:
            self._last_words()
            _end_process(1)
        raise Overrun(f"took longer than {self.times[0]:g} s")


class Outcome:
    """The result of a call: rc 0 is success; `why` is the failure on a line, "" after success."""

    __slots__ = ("errno", "rc", "why")

    def __init__(self, rc: int, why: str = "", errno: int = 0) -> None:
        self.rc = rc
        self.why = why
        self.errno = errno

    def __bool__(self) -> bool:
        """Return True for success."""
        return self.rc == 0


OK = Outcome(0)


class PluginCaller:
    """The caller of plugins for a process; reports the position to `progress`, in this `slot`.

    Without `progress` a plugin that cannot be interrupted keeps running, unless there are `last_words` to say before
    the process ends.
    """

    __slots__ = ("_clock", "_progress", "_recorder", "_slot", "_successors", "_threads", "threaded")

    def __init__(  # what differs between processes
        self, recorder: "Recorder", progress: "ProgressReporter | None", slot: int, timeout: float, *,
        single_threaded: bool, last_words: "Callable[[], object] | None" = None,
        successors: "tuple[memoryview, int] | None" = None,
    ) -> None:  # fmt: skip
        self._recorder = recorder
        self._progress = progress
        self._slot = slot
        self._successors = successors  # in a task: a child may come out of a hook in its parent's place
        self._clock = _Clock(timeout, last_words or (None if progress is None else _nothing))
        # Open, because a plugin may give the process another root, without a /proc.
        self._threads = os.open("/proc/self/task", os.O_PATH | os.O_CLOEXEC) if single_threaded else -1
        self.threaded = False  # a plugin has a thread here: a fork has to go through libc

    def __enter__(self) -> None:
        """Start a walk through several plugins, cheaper than separate calls."""
        self._clock.walks += 1

    def __exit__(self, *_: object) -> None:
        self._clock.walks -= 1
        if not self._clock.walks:
            _kernel.stop_clock()

    def call(  # the five facts of a trace line and what to call
        self,
        hook: "Hook",
        plugin: str,
        function: "Callable[..., object]",
        arguments: "Sequence[object]",
        *,
        task: "int | None" = None,
        place: int = 0,
        title: str = "",
    ) -> Outcome:
        """Call `function(*arguments)` and catch all exceptions of the plugin.

        `title`: the plugin's name for people, where it is longer than the name in the trace.
        """
        if self._progress is not None:
            self._progress.enter(self._slot, hook, place)
        started = self._recorder.begin(hook)
        return self._over(hook, plugin, started, self.silent(function, arguments), task, title)

    def walk(
        self, hook: "Hook", compiled: "CompiledHook", handle: object, begin: int, *, task: "int | None"
    ) -> "tuple[int, Outcome] | None":
        """Call compiled plugins in order as `call` would, from place `begin` on. Only in a stepd and its tasks.

        Return None when all went well to the end; else the place of the last call and its outcome: a failure, or a
        result to be examined.
        """
        progress: Progress = self._progress  # type: ignore[assignment]  # a stepd has one
        self._recorder.begin(hook)  # each call's time is taken in C
        take_errno()
        with self._clock:
            stopped = compiled.walk(
                begin, handle, *progress.where(self._slot, hook), self._recorder.fd, *self._recorder.around(hook, task),
                *self._clock.times, self._threads,
            )  # fmt: skip
        if stopped is None:
            return None
        place, started, value = stopped
        return place, self._over(hook, compiled.plugin_name(place), started, judged(value), task)

    def _over(  # the facts of a trace line
        self, hook: "Hook", plugin: str, started: int, outcome: Outcome, task: "int | None", title: str = ""
    ) -> Outcome:
        """Record a returned call."""
        if self.left_thread():
            outcome = Outcome(FAILED, LEFT_THREAD)
        self._recorder.write(hook, started, plugin=plugin, task=task, rc=outcome.rc, note=outcome.why)
        if outcome.why:
            outcome.why = f"plugin {title or plugin}: {hook.call}: {outcome.why}"
        return outcome

    def enter(self, hook: "Hook", place: int) -> None:
        """Report the start of an action without a hook, on behalf of the plugin at this place."""
        if self._progress is not None:
            self._progress.enter(self._slot, hook, place)

    def silent(self, function: "Callable[..., object]", arguments: "Sequence[object]") -> Outcome:
        """Call a function as `call` does, without a line in the trace: for a plugin's own init() and fini()."""
        pid = os.getpid()
        take_errno()
        if self._successors is not None:
            _kernel.successor_expect(*self._successors)
        value: object
        try:
            with self._clock:
                value = function(*arguments)
        except BaseException as error:  # no exception of a plugin may pass
            value = error
        outcome = judged(value)
        if self._successors is None or not outcome:
            _end_child_of(pid)
        if self._successors is not None and not _kernel.successor_is():
            _end_child_of(pid)
            _kernel.successor_await()
        return outcome

    def value(self, function: "Callable[..., object]", arguments: "Sequence[object]") -> "tuple[object, Outcome]":
        """Call a function as `silent` does; return the value, for the caller to judge, and the outcome."""
        pid = os.getpid()
        take_errno()
        try:
            with self._clock:
                return function(*arguments), OK
        except BaseException as error:  # no exception of a plugin may pass
            return None, judged(error)
        finally:
            _end_child_of(pid)

    def within_time(self, function: "Callable[[], _T]") -> "_T":
        """Run `function` under the clock of hooks. Raises Overrun, and the exceptions of `function`."""
        pid = os.getpid()
        try:
            with self._clock:
                return function()
        finally:
            _end_child_of(pid)

    def left_thread(self) -> bool:
        """Return True if a plugin left a thread where a fork is to come. A joined thread may take a moment to
        disappear.
        """
        if self._threads < 0:
            return False
        for pause in UNTIL_GONE:
            if self.one_thread():
                return False
            time.sleep(pause)
        os.close(self._threads)
        self._threads = -1  # reported once: the plugins called afterwards did not cause it
        self.threaded = True
        return True

    def descriptors(self) -> list[int]:
        """Return the caller's open descriptors: a child of the process has a separate caller."""
        return [self._threads] if self._threads >= 0 else []

    def one_thread(self) -> bool:
        """Return True if the process has a single thread or is not watched."""
        return self._threads < 0 or _kernel.entries(self._threads) == 1


def _end_child_of(pid: int) -> None:
    """End a child forked by the plugin and returned from the hook, because a second stepd must not run on."""
    if os.getpid() != pid:
        os._exit(1)


def judged(value: object) -> Outcome:
    """Return the outcome of a plugin's result or exception."""
    if value is None:
        return OK
    if isinstance(value, Overrun):
        return Outcome(FAILED, str(value))
    if isinstance(value, PluginError):
        return Outcome(FAILED, _words(value), value.code)
    if isinstance(value, BaseException):
        return Outcome(FAILED, _describe(value))
    if not isinstance(value, int):
        return Outcome(FAILED, f"returned {value!r}, not a number")
    number = int(value)
    if not number:
        return OK
    code, message = take_errno()
    reason = f": {_words(PluginError(code, message))}" if code else ""
    return Outcome(number, f"returned {number}{reason}", code)


def _nothing() -> None:
    """Do nothing: the last words of a process with shared progress."""


def _words(error: BaseException) -> str:
    """Return the exception's text on a line, "" if the plugin's exception class fails to give a text."""
    try:
        return " ".join(str(error).split())[:300]
    except Exception:  # no exception of a plugin may pass, as above
        return ""


def _describe(error: BaseException) -> str:
    """Return "ValueError: no such thing (line 12)" with the innermost line outside of nodectl's code, if any."""
    text = _words(error)
    line = 0
    trail = error.__traceback__ and error.__traceback__.tb_next  # the first is this file's
    while trail is not None:
        path = trail.tb_frame.f_code.co_filename
        if not path.startswith(("<", _OURS)) or path.startswith(_PLUGINS):
            line = trail.tb_lineno
        trail = trail.tb_next
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{words} (line {line})" if line else words  # compiled plugins have none
