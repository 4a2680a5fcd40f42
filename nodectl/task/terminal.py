"""The terminal of a step with --pty: a pseudo-terminal that the stepd makes (`make`), and the process that copies
between it and the step's client (`main`), as the step's user.

The client has a socket in the place of its streams, and puts its own terminal into raw mode: nobody here touches that
one. What it has not read is kept as long as it likes, with the program waiting as it would at a pipe that nobody reads.
When the client has gone, the terminal hangs up.
"""

import fcntl
import os
import select
import stat
import termios
import time

from nodectl.kernel.closing import close_all_but
from nodectl.kernel.identity import BEGAN_AS
from nodectl.task import client_streams, users_process
from nodectl.task.viewers import Viewers
from nodectl.wire import terminal_packets as packets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from nodectl.model.step import Step
    from nodectl.task.viewers import Viewer

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
    """In the stepd: the two ends of a new terminal. The program's belongs to the step's user, as a login's does, and
    has the size of the client's. Raises OSError.
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


def main(step: "Step", ours: int, streams: int, leash: int, listener: int) -> "NoReturn":
    """The whole life of the process, forked like a pump (`pump.main`). It ends when the stepd has closed `leash`,
    since nothing of the step runs any more, and the client has read everything. On `listener` there are
    those who attach; -1 for none.
    """
    status = 1
    try:
        users_process.become(step)
        client, *_ = client_streams.take(streams, stay=False)
        close_all_but((ours, client, leash, listener))
        _Copier(ours, Viewers(client, listener, packets.winsize(step.pty[1:])), leash).run()
        status = 0
    finally:
        os._exit(status)


class _Copier:
    """The loop. `ours` is -1 when the terminal has given all."""

    def __init__(self, ours: int, viewers: Viewers, leash: int) -> None:
        self._ours = ours
        self._viewers = viewers
        self._leash = leash
        self._window = viewers.window()
        self._input = bytearray()
        self._end_again = 0.0  # when who reads the input is told again that it has ended
        self._look_again = 0.0  # when somebody may have opened the program's end, which nobody has

    def run(self) -> None:
        """Until all is done. The terminal hangs up by the end of the process, or when its client has gone."""
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
            if wanted:  # else one whose other end nobody has would wake us all the time
                poll.register(self._ours, wanted)
        return poll.poll(max(0.0, min(waits)) * 1000 + 1 if waits else None)

    def _attend(self, mask: int) -> None:
        if mask & select.POLLOUT:
            self._type()
        if mask & ~select.POLLOUT and self._viewers.have_room():
            self._read()

    def _read(self) -> bool:
        """Passes on what there is, in pieces of some size. False where there is no more."""
        found = []
        try:
            for _ in range(_MOST_AT_ONCE):
                found.append(os.read(self._ours, _CHUNK))
        except BlockingIOError:
            pass
        except OSError:  # EIO: nobody has the other end. Hung up now, a program that is about to end would be killed
            self._look_again = time.monotonic() + _LOOK_AGAIN
        if found:
            self._viewers.show(packets.OUT, b"".join(found))
        return len(found) == _MOST_AT_ONCE

    def _drain(self) -> None:
        """The step is over: there is no more than what there is."""
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
        """What a viewer has sent. Its size the viewers know."""
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
        """The kernel tells the program's foreground (SIGWINCH)."""
        size = self._viewers.window()
        if size != self._window and size and self._ours >= 0:
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)
            self._window = size

    def _tell_end(self) -> None:
        """The client has no more input: the terminal's end-of-file key, and again as long as somebody may read, since
        each end is only one reader's, and who switches modes loses it.
        """
        if self._ours < 0:
            return
        self._end_again = time.monotonic() + _END_AGAIN
        if self._viewers.others_type():
            return
        key = termios.tcgetattr(self._ours)[_CC][termios.VEOF]
        self._input += key if isinstance(key, bytes) else bytes((key,))
        self._type()
