"""The forkserver's store of SPANK plugins: Python ones compiled, native ones opened, so that a stepd finds them ready.

Of a Python plugin nothing runs here. Opening a native one runs its constructors, as dlopen(3) does; a child tries
that first, so that a constructor which crashes, exits, hangs or leaves a thread behind costs the plugin and nothing
else. An opened library cannot be exchanged: when its file changes, the process that holds it has to begin anew.
"""

import _signal
import os
import select

import prctl

from nodectl import _kernel, kernel_file
from nodectl.plugin import PluginRefused, compile_plugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from nodectl.plugin import Source
    from nodectl.spank.native import NativeSource

_MOST = 512
_TRIAL_SECONDS = 10
_LONGEST_WORD = 4096


def is_native(path: str) -> bool:
    """True for what is loaded as a shared object: everything that is not called *.py."""
    return not path.endswith(".py")


class Sources:
    """Plugins by path, looked at again when size, times, file, owner or mode have changed."""

    __slots__ = ("_known", "_opened")

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, Source | NativeSource | PluginRefused]] = {}
        self._opened: dict[str, bytes] = {}

    def refresh(self, paths: "Iterable[str]") -> bool:
        """Reads what is new or has changed. False: a native plugin that is open has changed, this process must begin
        anew. What is wrong with a plugin is kept for the stepd to report.
        """
        for path in paths:
            stamp = _kernel.stamp(path)
            if not stamp:
                self._known.pop(path, None)
                continue
            known = self._known.get(path)
            if known is not None and known[0] == stamp:
                continue
            if path in self._opened:
                return False
            if len(self._known) >= _MOST:
                self._known = {path: self._known[path] for path in self._opened if path in self._known}
            try:
                self._known[path] = (stamp, self._open(path, stamp) if is_native(path) else compile_plugin(path))
            except PluginRefused as refused:
                self._known[path] = (stamp, refused)
        return True

    def _open(self, path: str, stamp: bytes) -> "NativeSource":
        from nodectl.spank.native import open_native  # only where a native plugin is stacked

        _try_in_a_child(path)
        self._opened[path] = stamp
        return open_native(path)

    def __getitem__(self, path: str) -> "Source | NativeSource":
        """Raises PluginRefused."""
        known = self._known.get(path)
        if known is None:
            raise PluginRefused(path, None, "cannot be read: no such file")
        if isinstance(known[1], PluginRefused):
            raise known[1]
        return known[1]


def _try_in_a_child(path: str) -> None:
    """Opens the plugin in a process of its own. Raises PluginRefused with what came of it."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    pid = os.fork()
    if pid == 0:
        _open_and_tell(path, writer)
    os.close(writer)
    try:
        _wait_for(pid, path)
        word = os.read(reader, _LONGEST_WORD).decode("utf-8", "replace")
    except BlockingIOError:  # no word, and some child of the plugin holds the pipe
        word = ""
    finally:
        os.close(reader)
        _kill(os.killpg, pid)
    if not word:
        raise PluginRefused(path, None, "opening it ended the process: a constructor crashed or exited")
    if word != "fine":
        raise PluginRefused(path, None, word)


def _wait_for(pid: int, path: str) -> None:
    """Until the child has ended, which nobody needs to collect: the forkserver ignores SIGCHLD."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        if not poll.poll(_TRIAL_SECONDS * 1000):
            _signal.pidfd_send_signal(process, _signal.SIGKILL)
            raise PluginRefused(path, None, f"opening it took longer than {_TRIAL_SECONDS} s")
    finally:
        os.close(process)


def _open_and_tell(path: str, writer: int) -> "NoReturn":
    from nodectl.spank.native import open_native  # the parent has imported it

    # Whatever the plugin starts must hold none of this service's descriptors: its lock is one.
    os.setsid()
    prctl.set_child_subreaper(1)
    os.closerange(3, writer)
    os.closerange(writer + 1, os.sysconf("SC_OPEN_MAX"))
    try:
        open_native(path)
        word = "fine"
        if os.stat("/proc/self/task").st_nlink != 3:  # 2 + one thread
            word = "opening it leaves a thread running; nothing can be forked safely after that"
        if _kill_children():
            word = "opening it leaves a process running"
    except PluginRefused as refused:
        word = refused.reason
    except BaseException as error:  # the top of a process
        word = f"{type(error).__name__}: {error}"
    finally:
        os.write(writer, word.encode("utf-8", "replace")[:_LONGEST_WORD])
        os._exit(0)


def _kill_children() -> bool:
    """True when there was a child, or an orphan of a child's."""
    pid = os.getpid()
    children = kernel_file.read(f"/proc/self/task/{pid}/children").split()
    for child in children:
        _kill(os.kill, int(child))
    return bool(children)


def _kill(how: "Callable[[int, int], None]", number: int) -> None:
    try:
        how(number, _signal.SIGKILL)
    except ProcessLookupError:
        pass  # the common case: nothing is left
