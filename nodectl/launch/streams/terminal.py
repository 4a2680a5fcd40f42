"""The terminal of a step with --pty: the stepd makes it (`make`), and a process copies to and from the client (`main`).

The process runs as the step's user. The client has a socket in the place of its streams, and puts its own terminal into
raw mode: nodectl's processes never touch that terminal. Output that the client has not read is kept without a time
limit, with the program waiting as it would at a pipe without a reader. When the client has gone, the terminal hangs up.
"""

import fcntl
import os
import select
import stat
import termios
import time

from nodectl.kernel.closing import close_all_but
from nodectl.kernel.identity import BEGAN_AS
from nodectl.launch.streams import client_streams
from nodectl.launch.streams.viewers import Viewers
from nodectl.model.wire import terminal_packets as packets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from nodectl.launch.streams.viewers import Viewer
    from nodectl.model.step import Step

_TTY_GROUP = 5  # the group "tty", the same everywhere
_MODE = stat.S_IRUSR | stat.S_IWUSR | stat.S_IWGRP
_IUTF8 = 0o40000  # which Python's termios does not name
_CHUNK = 4096  # what a terminal gives at once
_MOST_AT_ONCE = 8  # of these
_MOST_INPUT = 65536  # bytes that the program has not read yet
_END_AGAIN = 1.0  # seconds
_LOOK_AGAIN = 0.1
_CC = 6  # of what tcgetattr returns


def make(step: "Step") -> tuple[int, int]:
    """Make a terminal, in the stepd. Returns both ends. Raises OSError.

    The program's end belongs to the step's user, as a login's does, and has the size of the client's terminal.
    """
    ours, theirs = os.openpty()
    settings = termios.tcgetattr(theirs)
    settings[0] |= _IUTF8
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    if BEGAN_AS == 0:  # else it is this user's already, with the group that the system gives terminals
        os.fchown(theirs, step.uid, _TTY_GROUP)
    os.fchmod(theirs, _MODE)
    _, *size = step.pty
    fcntl.ioctl(ours, termios.TIOCSWINSZ, packets.winsize(size))
    os.set_blocking(ours, False)
    return ours, theirs


def main(
    step: "Step", ours: int, streams: int, become_user: "Callable[[], bool]", leash: int, listener: int
) -> "NoReturn":
    """Run the whole life of the copying process, forked like a relay (`relay.main`).

    It ends when the stepd has closed `leash`, since nothing of the step runs any more, and the client has read
    everything. Viewers attach at `listener`; -1 for none.
    """
    status = 1
    try:
        become_user()
        client, *_ = client_streams.take(streams, stay=False)
        close_all_but((ours, client, leash, listener))
        _Copier(ours, Viewers(client, listener, packets.winsize(step.pty[1:])), leash).run()
        status = 0
    finally:
        os._exit(status)


class _Copier:
    """The copying loop. `ours` is -1 after the end of the terminal's output."""

    def __init__(self, ours: int, viewers: Viewers, leash: int) -> None:
        self._ours = ours
        self._viewers = viewers
        self._leash = leash
        self._window = viewers.window()
        self._input = bytearray()
        self._end_again = 0.0  # when to press the end-of-file key again
        self._look_again = 0.0  # when to look whether a process has opened the program's end

    def run(self) -> None:
        """Copy until all is done. The terminal hangs up with the end of the process, or when the client has gone."""
        while self._viewers.client_is_there and (self._ours >= 0 or self._viewers.unread):
            for fd, mask in self._wait():
                if fd == self._ours:
                    self._attend(mask)
                elif fd == self._leash:
                    self._drain()
                else:
                    for viewer, kind, data in self._viewers.serve():
                        self._obey(viewer, kind, data)
                    self._resize()
            if self._end_again and time.monotonic() >= self._end_again:
                self._tell_end()
        self._viewers.farewell()

    def _wait(self) -> list[tuple[int, int]]:
        poll = select.poll()
        self._viewers.hear(on=len(self._input) < _MOST_INPUT)
        poll.register(self._viewers.fd, select.POLLIN)
        now = time.monotonic()
        waits = [at - now for at in (self._end_again, self._look_again) if at]
        waits += [] if self._viewers.patience is None else [self._viewers.patience]
        if self._ours >= 0:
            poll.register(self._leash, 0)
        if self._ours >= 0 and now >= self._look_again:
            self._look_again = 0.0
            wanted = (select.POLLOUT if self._input else 0) | (select.POLLIN if self._viewers.have_room() else 0)
            if wanted:  # else a terminal without a process at the other end would wake us all the time
                poll.register(self._ours, wanted)
        return poll.poll(max(0.0, min(waits)) * 1000 + 1 if waits else None)

    def _attend(self, mask: int) -> None:
        if mask & select.POLLOUT:
            self._type()
        if mask & ~select.POLLOUT and self._viewers.have_room():
            self._read()

    def _read(self) -> bool:
        """Pass on the available output, in pieces of limited size. Returns False where there is no more."""
        found = []
        try:
            for _ in range(_MOST_AT_ONCE):
                found.append(os.read(self._ours, _CHUNK))
        except BlockingIOError:
            pass
        except OSError:  # EIO: the other end is closed. A hang-up now would kill a program that is about to end
            self._look_again = time.monotonic() + _LOOK_AGAIN
        if found:
            self._viewers.show(packets.OUT, b"".join(found))
        return len(found) == _MOST_AT_ONCE

    def _drain(self) -> None:
        """Pass on the rest of the output at the end of the step, and close the terminal."""
        while self._ours >= 0 and self._read():
            pass
        self._close()

    def _close(self) -> None:
        if self._ours >= 0:
            os.close(self._ours)
        self._ours = -1
        self._end_again = self._look_again = 0.0
        self._input.clear()

    def _obey(self, viewer: "Viewer", kind: bytes, data: bytes) -> None:
        """Handle a packet from a viewer. `Viewers` handles window sizes itself."""
        if self._ours < 0 or kind != packets.INPUT:
            return
        if data:
            self._input += data
            self._type()
        elif viewer.is_client:
            self._tell_end()

    def _type(self) -> None:
        try:
            del self._input[: os.write(self._ours, self._input)]
        except BlockingIOError:
            return
        except OSError:
            self._input.clear()

    def _resize(self) -> None:
        """Set the window size. The kernel sends SIGWINCH to the program's foreground."""
        size = self._viewers.window()
        if size != self._window and size and self._ours >= 0:
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)
            self._window = size

    def _tell_end(self) -> None:
        """Press the end-of-file key when the client's input has ended, and again while a process may read.

        Each key press ends only one read, and a reader that switches modes loses it. No press while other viewers may
        type.
        """
        if self._ours < 0:
            return
        self._end_again = time.monotonic() + _END_AGAIN
        if self._viewers.others_type():
            return
        key = termios.tcgetattr(self._ours)[_CC][termios.VEOF]
        self._input += key if isinstance(key, bytes) else bytes((key,))
        self._type()
