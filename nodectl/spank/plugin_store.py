"""The forkserver's store of SPANK plugins: Python plugins compiled, native plugins opened, ready for each stepd.

Nothing of a Python plugin runs here. Opening a native plugin runs its constructors, as dlopen(3) does; a child tries
this first, so a constructor that crashes, exits or hangs costs the plugin and nothing else. A plugin that leaves a
thread (the runtime of Go) is opened by each stepd itself: the forkserver could not fork with that thread. An opened
library cannot be replaced: when its file changes, the process that holds it must restart.
"""

import _signal
import os
import select

import prctl

from nodectl.kernel import _kernel, pseudo_file, signals
from nodectl.model.plugstack_entry import entry_from_list
from nodectl.plugin_host.loader import PluginRefused, compile_plugin
from nodectl.spank.plugin_file import DeferredSource, is_native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

    from nodectl.plugin_host.loader import Source
    from nodectl.spank.native import NativeSource
    from nodectl.spank.ready_stack import ReadyStack

_MOST = 512
_TRIAL_SECONDS = 10
_GRACE = 5
_LONGEST_WORD = 4096
_FINE, _THREADED = "fine", "threads"


class PluginStore:
    """Plugins by path, read again when size, times, file, owner or mode of a file change. `ready`: see make_ready.

    `rows`, the stack's lines, stay the same object while no line and no file of a line changes.
    """

    __slots__ = ("_known", "_opened", "ready", "rows")

    def __init__(self) -> None:
        self.ready: ReadyStack | None = None
        self.rows: list[list[object]] | None = None
        self._known: dict[str, tuple[bytes, Source | NativeSource | DeferredSource | PluginRefused]] = {}
        self._opened: dict[str, bytes] = {}

    def refresh(self, paths: "Iterable[str]") -> bool:
        """Read the new and changed files. Return False if an open native plugin has changed: this process must restart.

        The store keeps the reason of a refused plugin for the stepd to report.
        """
        for path in paths:
            stamp = _kernel.stamp(path)
            if not stamp:
                self._known.pop(path, None)
                self.rows = None
                continue
            known = self._known.get(path)
            if known is not None and known[0] == stamp:
                continue
            if path in self._opened:
                return False
            self.rows = None
            if len(self._known) >= _MOST:
                self._known = {path: self._known[path] for path in self._opened if path in self._known}
            try:
                self._known[path] = (stamp, self._open(path, stamp) if is_native(path) else compile_plugin(path))
            except PluginRefused as refused:
                self._known[path] = (stamp, refused)
        return True

    def make_ready(self, rows: "list[list[object]]") -> None:
        """Prepare the stack of the lines, in the form of a Step's JSON, for the coming stepds, as `ready`."""
        if rows == self.rows:
            return
        entries = [entry_from_list(row) for row in rows]
        self.rows, self.ready = rows, None
        if all(is_native(entry.path) for entry in entries):
            from nodectl.spank.ready_stack import ready_stack  # only where native plugins are stacked

            self.ready = ready_stack(entries, self.__getitem__)

    def _open(self, path: str, stamp: bytes) -> "NativeSource | DeferredSource":
        from nodectl.spank.native import open_native  # only where a native plugin is stacked

        if _try_in_a_child(path) == _THREADED:
            return DeferredSource(path)
        self._opened[path] = stamp
        return open_native(path)

    def __getitem__(self, path: str) -> "Source | NativeSource | DeferredSource":
        """Return the plugin of this path. Raises PluginRefused."""
        known = self._known.get(path)
        if known is None:
            raise PluginRefused(path, None, "cannot be read: no such file")
        if isinstance(known[1], PluginRefused):
            raise known[1]
        return known[1]


def _try_in_a_child(path: str) -> str:
    """Open the plugin in a child process. Return whether the plugin is fine or leaves threads. Raises PluginRefused."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    pid = os.fork()
    if pid == 0:
        _supervise(path, writer)
    os.close(writer)
    try:
        _ends(pid, _TRIAL_SECONDS + _GRACE)
        word = _read(reader)
    finally:
        os.close(reader)
    if word not in (_FINE, _THREADED):
        raise PluginRefused(path, None, word or "opening it ended the process that watched it")
    return word


def _supervise(path: str, writer: int) -> "NoReturn":
    """Fork a child to open the plugin, and kill all processes left by the plugin.

    Runs between the forkserver and that child. The plugin's processes must hold none of the service's descriptors,
    because the service's lock is one of them.
    """
    word = ""
    try:
        os.setsid()
        prctl.set_child_subreaper(1)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        os.closerange(3, writer)
        os.closerange(writer + 1, os.sysconf("SC_OPEN_MAX"))
        word = _tried(path)
    finally:
        os.write(writer, word.encode("utf-8", "replace")[:_LONGEST_WORD])
        os._exit(0)


def _tried(path: str) -> str:
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    pid = os.fork()
    if pid == 0:
        _open_and_tell(path, writer)
    os.close(writer)
    in_time = _ends(pid, _TRIAL_SECONDS)
    os.waitpid(pid, 0)
    left = _end_children()
    word = _read(reader)
    if not in_time:
        return f"opening it took longer than {_TRIAL_SECONDS} s"
    if not word:
        return "opening it ended the process: a constructor crashed or exited"
    return "opening it leaves a process running" if left and word in (_FINE, _THREADED) else word


def _open_and_tell(path: str, writer: int) -> "NoReturn":
    from nodectl.spank.native import open_native  # the forkserver has imported it

    word = ""
    try:
        open_native(path)
        word = _FINE if os.stat("/proc/self/task").st_nlink == 3 else _THREADED  # 2 + one thread
    except PluginRefused as refused:
        word = refused.reason
    except BaseException as error:  # the top of a process
        word = f"{type(error).__name__}: {error}"
    finally:
        os.write(writer, word.encode("utf-8", "replace")[:_LONGEST_WORD])
        os._exit(0)


def _end_children() -> bool:
    """Kill every child and every orphan of a child. Return True if there was any."""
    listing = f"/proc/self/task/{os.getpid()}/children"
    found = False
    while children := pseudo_file.read(listing).split():
        found = True
        for child in map(int, children):
            signals.send_child(child, signals.KILL)
            os.waitpid(child, 0)
    return found


def _ends(pid: int, seconds: float) -> bool:
    """Wait for a child's end without collecting the child. Kill a late child and return False."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True  # the forkserver ignores SIGCHLD: the kernel collects its children
    poll = select.poll()
    poll.register(process, select.POLLIN)
    ended = bool(poll.poll(seconds * 1000))
    if not ended:
        signals.send(process, signals.KILL)
    os.close(process)
    return ended


def _read(reader: int) -> str:
    try:
        return os.read(reader, _LONGEST_WORD).decode("utf-8", "replace")
    except BlockingIOError:  # no word, and some process holds the pipe
        return ""
