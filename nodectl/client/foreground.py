"""A command in the foreground of the user's terminal, in a separate process group, like in a shell.

This process waits meanwhile. Python's own signal handlers only note that a signal came.
"""

import errno
import os
import signal
import termios
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from nodectl.client.command import Program
from nodectl.client.signals import FORWARDED
from nodectl.kernel.signals import send_group_of_child

_RESET = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE,
          signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD, signal.SIGCONT, signal.SIGXFSZ)  # fmt: skip


class Foreground:
    """A command from fork to end. `status` is the exit status as of a shell, None before."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.status: int | None = None
        self._terminal = _terminal()
        self._modes = termios.tcgetattr(self._terminal) if self._terminal is not None else None
        ignored = {number for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN}
        if self._terminal is not None:
            # This process is in the background once it has given the terminal away.
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        # What is sent to it before it has let go of this process's handlers waits until it has.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _become(argv, environment, self._terminal, ignored, blocked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        with suppress(OSError):  # it has done so itself, or is a program by now
            os.setpgid(self.pid, self.pid)

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group; continue a stopped command for SIGHUP and SIGTERM."""
        send_group_of_child(self.pid, number)
        if number in (signal.SIGHUP, signal.SIGTERM):
            send_group_of_child(self.pid, signal.SIGCONT)

    def look(self) -> bool:
        """Check the command after a SIGCHLD: return True when ended.

        Where the command was stopped (Ctrl-Z), stop this process with it.
        """
        if self.status is not None:
            return True
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return False
        if os.WIFSTOPPED(status):
            self._stop()
            return False
        self.status = os.waitstatus_to_exitcode(status)
        if self.status < 0:
            self.status = 128 - self.status
        self._take_back()
        return True

    def _stop(self) -> None:
        if self._terminal is None:
            return  # another process has stopped the command, on purpose
        modes = termios.tcgetattr(self._terminal)
        self._take_back()
        signal.raise_signal(signal.SIGSTOP)
        # The user has typed fg, or a process has sent SIGCONT.
        if os.tcgetpgrp(self._terminal) == os.getpgrp():
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, modes)
            os.tcsetpgrp(self._terminal, self.pid)
        send_group_of_child(self.pid, signal.SIGCONT)

    def _take_back(self) -> None:
        """Take the terminal back, and restore the modes."""
        if self._terminal is None or self._modes is None:
            return
        with suppress(OSError, termios.error):
            if os.tcgetpgrp(self._terminal) == self.pid:
                os.tcsetpgrp(self._terminal, os.getpgrp())
                termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._modes)


def _terminal() -> int | None:
    """Return 0 if standard input is a terminal with this process in the foreground, else None."""
    try:
        return 0 if os.tcgetpgrp(0) == os.getpgrp() else None
    except OSError:
        return None


def _become(
    argv: Sequence[str], environment: Mapping[str, str], terminal: int | None, ignored: set[signal.Signals],
    blocked: Iterable[int],
) -> NoReturn:  # fmt: skip
    """Become the program in the child; exit with a shell's status if the program is not found."""
    status = 126
    try:
        os.setpgid(0, 0)
        if terminal is not None:
            os.tcsetpgrp(terminal, os.getpid())
        signal.set_wakeup_fd(-1)
        for number in _RESET:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.execvpe(argv[0], list(argv), dict(environment))
    except OSError as error:
        status = 127 if error.errno == errno.ENOENT else 126
        what = f'Unable to exec command "{argv[0]}"' if Program.is_slurms() else argv[0]
        os.write(2, f"{Program.name}: error: {what}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(status)
