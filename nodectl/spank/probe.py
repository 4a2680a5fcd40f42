"""The probe: records the actions of SPANK plugins, hook by hook, and can replace the result of a hook by a failure.

`nodectl spank try` asks for it by a variable in the environment of the processes that it starts; they start the probe
before they load any plugin (`probe_variable.start_probe`). The probe replaces the functions of `nodectl.spank` by
functions that note each call, so a process without a probe pays nothing. Compiled plugins call the same functions.

A line of the log is one JSON object, written with one write(2) at the end of the file: {"what": "enter" | "call" |
"leave", "id": one number for all lines of one hook, "pid", "t": monotonic ns, ...}. An "enter" without its "leave" is a
hook that did not return. Runs wherever plugins run; the log is opened before privileges are dropped.
"""

import os
import sys

from nodectl import spank
from nodectl.kernel import _kernel, trust
from nodectl.model.wire import lean_json
from nodectl.plugin_host.tracing.recorder import now
from nodectl.spank.handle import Spank
from nodectl.spank.spank_h import SpankError, SpankOption
from nodectl.spank.stack import Stack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nodectl.model.launch_order import Hook
    from nodectl.plugin_host.caller import Outcome, PluginCaller

_LARGEST = 1 << 20
_LONGEST_TEXT = 300
_MOST_VALUES = 16
_HOST = "nodectl.spank._spank_host"


def start(path: str) -> None:
    """Start the probe in this process and in all later forks. Raises OSError, trust.Untrusted.

    `path`: the probe's instructions, a JSON object with "log", the file to append to, "fail", rows [context or -1,
    hook, value], and perhaps "stdout": the start of the name of a file for each process's standard output, which a
    service's processes would lose; the pid follows.
    """
    description = lean_json.load_object(trust.read(path, _LARGEST))
    fails = {(int(context), str(hook)): int(value) for context, hook, value in description["fail"]}  # type: ignore[attr-defined]
    probe = Probe(os.open(str(description["log"]), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), fails)
    Stack.probe = probe
    if "stdout" in description:
        probe.take_stdout(str(description["stdout"]))
    for name, value in list(vars(spank).items()):
        if callable(value) and name.startswith(("spank_", "slurm_")):
            setattr(spank, name, probe.noting(name, value))


class Probe:
    """The probe of a process. `fails`: the results to return instead of a hook's own, by context (-1: any) and hook."""

    __slots__ = ("_count", "_fails", "_fd", "_id", "_inside", "_stdout")

    def __init__(self, fd: int, fails: "Mapping[tuple[int, str], int]") -> None:
        self._fd = fd
        self._fails = fails
        self._count = 0
        self._id = ""
        self._inside = False
        self._stdout: tuple[str, int, int] | None = None  # the name, whose pid, the inode

    def take_stdout(self, path: str) -> None:
        """Give this process a separate standard output. Raises OSError."""
        pid = os.getpid()
        fd = os.open(f"{path}.{pid}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(fd, 1)
        os.close(fd)
        self._stdout = path, pid, os.fstat(1).st_ino

    def part_from_parent(self) -> None:
        """Give a fork a separate standard output in place of the parent's."""
        if self._stdout is None or self._stdout[1] == os.getpid() or written()[:1] != self._stdout[2:]:
            return
        try:
            self.take_stdout(self._stdout[0])
        except OSError:
            pass  # a plugin has given the process another root

    def beside(self, caller: "PluginCaller", handle: Spank) -> "ProbingCaller":
        """Return a recording caller."""
        return ProbingCaller(self, caller, handle)

    def enter(
        self, hook: str, plugin: str, handle: Spank, task: "int | None", arguments: "Sequence[object]" = ()
    ) -> None:
        """Record the start of a hook, of an option's callback or of loading a plugin ("load")."""
        self._count += 1
        self._id = f"{os.getpid()}.{self._count}"
        who = _kernel.identity()
        given = [_short(value) for value in arguments if not isinstance(value, Spank)]
        head = {"context": handle.context, "hook": hook, "plugin": plugin, "task": task, "arguments": given}
        self._write("enter", lean_json.dumps(head)[1:-1] + "," + who)

    def leave(self, outcome: "Outcome", **more: object) -> None:
        """Record the return of the hook."""
        self._write("leave", lean_json.dumps({"rc": outcome.rc, "why": outcome.why, **more})[1:-1])
        self._id = ""

    def replacement(self, context: int, hook: str) -> "int | None":
        """Return the result to use instead of the hook's own result, or None."""
        return self._fails.get((context, hook), self._fails.get((-1, hook)))

    def noting(self, name: str, function: "Callable[..., object]") -> "Callable[..., object]":
        """Return a wrapper of a `nodectl.spank` function; the wrapper records arguments and results."""

        def noted(*arguments: object, **named: object) -> object:
            if self._inside:  # one function of the interface calls another
                return function(*arguments, **named)
            self._inside = True
            given = [_short(value) for value in (*arguments, *named.values()) if not isinstance(value, Spank)]
            try:
                result = function(*arguments, **named)
            except SpankError as error:
                self._call(name, given, None, error.code)
                raise
            except Exception as error:
                self._call(name, given, f"{type(error).__name__}: {error}"[:_LONGEST_TEXT], -1)
                raise
            finally:
                self._inside = False
            self._call(name, given, _short(result), 0)
            return result

        noted.__name__, noted.__doc__, noted.__module__ = name, function.__doc__, spank.__name__
        return noted

    def _call(self, name: str, given: "Sequence[object]", result: object, error: int) -> None:
        row = {"call": name, "arguments": given, "result": result, "error": error}
        self._write("call", lean_json.dumps(row)[1:-1])

    def _write(self, what: str, rest: str) -> None:
        line = f'{{"what":"{what}","id":"{self._id}","pid":{os.getpid()},"t":{now()},{rest}}}\n'
        try:
            os.write(self._fd, line.encode("ascii"))
        except OSError:
            pass  # a plugin has closed the log's descriptor: no failure of its hook


class ProbingCaller:
    """A wrapper of a `PluginCaller`; the wrapper records each call."""

    __slots__ = ("_caller", "_handle", "_probe", "_returned")

    def __init__(self, probe: Probe, caller: "PluginCaller", handle: Spank) -> None:
        self._probe = probe
        self._caller = caller
        self._handle = handle
        self._returned: object = None

    def call(
        self,
        hook: "Hook",
        plugin: str,
        function: "Callable[..., object]",
        arguments: "Sequence[object]",
        *,
        task: "int | None" = None,
        place: int = 0,
    ) -> "Outcome":
        """Call the hook as `PluginCaller.call` does, and record the call."""
        before = environment(self._handle)
        self._probe.part_from_parent()
        family, stdout = children(), written()
        value = self._probe.replacement(self._handle.context, hook.call)
        self._probe.enter(hook.call, plugin, self._handle, task, arguments)
        called = function if value is None else self._replaced(function, value)
        outcome = self._caller.call(hook, plugin, called, arguments, task=task, place=place)
        more: dict[str, object] = {"changes": changes(before, environment(self._handle))}
        more["children"] = sorted(children() - family)
        now_written = written()
        if now_written[:1] == stdout[:1] and now_written[1:] > stdout[1:]:
            more["stdout"] = [*stdout, now_written[1]]
        if value is not None:
            more["returned"] = _short(self._returned)
        self._probe.leave(outcome, **more)
        return outcome

    def _replaced(self, function: "Callable[..., object]", value: int) -> "Callable[..., object]":
        def replaced(*arguments: object) -> int:
            self._returned = function(*arguments)
            return value

        return replaced


def children() -> set[int]:
    """Return the pids of this thread's children; none if a plugin has changed the root to a tree without /proc."""
    try:
        fd = os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return set()
    try:
        return {int(pid) for pid in os.read(fd, _LARGEST).split()}
    finally:
        os.close(fd)


def written() -> "tuple[int, ...]":
    """Return the inode and the size of standard output's file; () without standard output."""
    try:
        status = os.fstat(1)
    except OSError:
        return ()
    return status.st_ino, status.st_size


def environment(handle: Spank) -> dict[str, str]:
    """Return the environment open to changes by a hook.

    This is the job's environment in the remote context; elsewhere the process's own, and the variables for prolog and
    epilog.
    """
    if handle.context == spank.S_CTX_REMOTE:
        return dict(handle.job_environment())
    host = sys.modules.get(_HOST)  # a compiled plugin calls setenv(3), which Python's os.environ does not see
    own = os.environ if host is None else host.environ()
    return {**own, **{f"SPANK_{name}": value for name, value in handle.job_control.items()}}


def changes(before: "Mapping[str, str]", after: "Mapping[str, str]") -> dict[str, object]:
    """Return the difference of two environments: "added" and "changed" by name with the new value, "removed" names."""
    return {
        "added": {name: _short(value) for name, value in after.items() if name not in before},
        "changed": {name: _short(value) for name, value in after.items() if before.get(name, value) != value},
        "removed": [name for name in before if name not in after],
    }


def _short(value: object) -> object:
    """Return a value for the log: numbers unchanged, long texts cut, a short name for any other object."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}..."
    if isinstance(value, SpankOption):
        return f"--{value.name}"
    if isinstance(value, dict):
        return f"{len(value)} variables"
    if isinstance(value, list | tuple):
        return [_short(one) for one in value[:_MOST_VALUES]] + ["..."] * (len(value) > _MOST_VALUES)
    return f"<{type(value).__name__}>"
