"""The terminal of the command, for a step whose terminal is shown there: modes, size, copying.

The data go between the terminal and the step's process which has the other end
(`nodectl/model/wire/terminal_packets.py`).
"""

import fcntl
import os
import select
import signal
import socket
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

from nodectl.model.wire import terminal_packets as packets

if TYPE_CHECKING:
    from typing import Any

_CHUNK = 4096
_WINDOW = b"\0" * packets.WINDOW_SIZE
_IFLAG, _OFLAG, _CFLAG, _LFLAG, _CC = 0, 1, 2, 3, 6  # of what tcgetattr returns
_HARMLESS = {
    signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGTTIN, signal.SIGTTOU,
    signal.SIGTSTP, signal.SIGKILL, signal.SIGSTOP,
}  # fmt: skip
_OF_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}


def window() -> bytes:
    """Return the struct winsize of the terminal among the standard streams; b"" where there is none."""
    for fd in (0, 1, 2):
        with suppress(OSError):
            return fcntl.ioctl(fd, termios.TIOCGWINSZ, _WINDOW)
    return b""


class Terminal:
    """Standard input as a terminal; without a terminal, all methods do nothing."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None
        with suppress(termios.error):
            self._before = termios.tcgetattr(0)
        self._is_raw = False

    def make_raw(self) -> None:
        """Pass on every key and show every byte unchanged. Do nothing in the background."""
        if self._before is None or not self._in_foreground():
            return
        modes = termios.tcgetattr(0)
        modes[_IFLAG] &= ~(
            termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP | termios.INLCR | termios.IGNCR
            | termios.ICRNL | termios.IXON
        )  # fmt: skip
        modes[_OFLAG] &= ~termios.OPOST
        modes[_CFLAG] = modes[_CFLAG] & ~(termios.CSIZE | termios.PARENB) | termios.CS8
        modes[_LFLAG] &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
        modes[_CC][termios.VMIN], modes[_CC][termios.VTIME] = 1, 0
        self._is_raw = True
        termios.tcsetattr(0, termios.TCSADRAIN, modes)  # keeps the keys that were typed ahead

    def restore(self) -> None:
        """Restore the terminal's modes."""
        if self._is_raw and self._before is not None:
            self._is_raw = False
            with suppress(OSError, termios.error):  # it may have gone
                if self._in_foreground():
                    termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def suspend(self) -> None:
        """Stop this process until continued, as a shell's Ctrl-Z does."""
        self.restore()
        signal.raise_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Make the terminal raw again after a stop, because the shell may have changed the modes."""
        self._is_raw = False
        self.make_raw()

    @staticmethod
    def _in_foreground() -> bool:
        try:
            return os.tcgetpgrp(0) == os.getpgrp()
        except OSError:
            return False  # it is not this session's

    def die_of(self, number: int) -> None:
        """End this process by a signal's default action."""
        self.restore()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def fatal() -> set[int]:
    """Return the signals which would end this process by default, without the signals of a fault."""
    by_default: set[int] = {number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_DFL}
    return by_default - _HARMLESS - _OF_FAULTS


class Copying:
    """The copying between standard input and output and the step. Input is read only when the step has room."""

    def __init__(self, sock: "socket.socket") -> None:
        self._sock = sock
        self._unsent = b""  # a packet for which there is no room yet
        self._shown = b""  # bytes for which there is no room yet
        self._window = window()
        self._listens = True  # to standard input
        self.is_open = True

    def register(self, poll: "select.poll") -> None:
        """Register with `poll` the descriptors to wait for now."""
        if self.is_open:
            wanted = 0 if self._shown else select.POLLIN
            poll.register(self._sock.fileno(), wanted | (select.POLLOUT if self._unsent else 0))
        if self._shown:
            poll.register(1, select.POLLOUT)
        if self._listens and self.is_open and not self._unsent:
            poll.register(0, select.POLLIN)

    def handle(self, fd: int, mask: int) -> None:
        """Handle a descriptor reported by poll(2), if this object's."""
        if fd == 0 and self._listens:
            self._read()
        elif fd == 1 and self._shown:
            self._show()
        elif self.is_open and fd == self._sock.fileno():
            if mask & select.POLLOUT:
                self._send(self._unsent)
            if mask & ~select.POLLOUT and not self._shown:
                self._receive()

    def tell_window(self) -> None:
        """Tell the step's terminal a changed window size."""
        size = window()
        if size and size != self._window and self.is_open:
            self._window = size
            with suppress(OSError):  # it hardly ever fills up, and the next one tells the same
                self._sock.send(packets.packet(packets.WINDOW, size), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def finish(self) -> None:
        """Show the output left after the step's end."""
        while self.is_open or self._shown:
            if self._shown:
                self._show()
            elif not self._receive():
                return

    def _read(self) -> None:
        try:
            data = os.read(0, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # the terminal has gone
        self._listens = bool(data)
        if self._typed(data):
            self._send(packets.packet(packets.INPUT, data))

    def _typed(self, data: bytes) -> bool:
        """Return True if the data go to the step; b"" is the end of input."""
        return True

    def _send(self, packet: bytes) -> None:
        self._unsent = packet
        try:
            self._sock.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return
        except OSError:
            self._listens = False  # earlier output is still shown
        self._unsent = b""

    def _receive(self) -> bool:
        """Read a packet and handle it. Return False where nothing has come."""
        try:
            raw = self._sock.recv(packets.HEAD + packets.LONGEST, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            raw = b""
        if not raw:
            self.close()
            return False
        self._take(*packets.split(raw))
        return True

    def _take(self, kind: bytes, task: int, data: bytes) -> None:
        if kind == packets.OUT:
            self._shown = data
            self._show()
        elif kind == packets.NOTE:
            self._shown = b"\r\nnodectl: %s\r\n" % data
            self._show()

    def _show(self) -> None:
        try:
            self._shown = self._shown[os.write(1, self._shown) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(1, select.POLLOUT)
            poll.poll()
        except OSError:
            self._shown = b""
            self.close()  # standard output has no reader any more: the terminal hangs up

    def close(self) -> None:
        """Hang up the step's terminal, if still there."""
        if self.is_open:
            self.is_open = False
            self._sock.close()
