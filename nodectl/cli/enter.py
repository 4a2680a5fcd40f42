"""`nodectl enter`: run a shell, or another program, in the container of a running job.

At a terminal the program has a pseudo-terminal of its own: a program of another user must not hold our terminal,
because it could write input there as if we had typed it. A child of this command copies between the two.
"""

import argparse
import fcntl
import os
import select
import signal
import sys
import termios
import tty

from nodectl.client.command import Failed
from nodectl.client.job_name import add_jobs, one_step, why_no_step
from nodectl.client.session import Session
from nodectl.kernel import signals

_CHUNK = 65536
_TAKEN = ("TERM", "COLORTERM", "LANG")
_WINDOW = b"\0" * 8  # struct winsize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl enter` to the parser."""
    add_jobs(parser, "the job; alone, its first step is meant", steps=True, one=True)
    parser.add_argument("program", nargs=argparse.REMAINDER, help="what to run instead of a shell, and its arguments")
    parser.usage = "nodectl enter [-h] JOB[.STEP] [PROGRAM [ARGUMENT]...]"
    parser.epilog = (
        "It runs as the job's user, with the job's environment, and ends with the step. Users enter their own jobs, "
        "root all."
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the program to the end. Return the program's exit status."""
    words = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    environment = {name: os.environ[name] for name in _TAKEN if name in os.environ}
    session = Session(arguments.settings, start_private=False)
    job, step = one_step(session, arguments.jobs)
    ends, mine = os.pipe2(os.O_CLOEXEC)  # tells that this command is no more
    terminal = PseudoTerminal(mine) if os.isatty(0) and os.isatty(1) else None
    try:
        fds = [*([terminal.theirs] * 3 if terminal else (0, 1, 2)), ends]
        reply = session.call("Enter", fds, job=job, step=step, argv=words, environment=environment)
    except Failed as failed:
        raise why_no_step(session, job, step, failed) from None
    finally:
        if terminal:
            terminal.end()
        session.close()
    return int(str(reply["status"]))


class PseudoTerminal:
    """A pseudo-terminal, and the child copying between the pseudo-terminal and ours."""

    def __init__(self, mine: int) -> None:
        """Open the pseudo-terminal and fork the copying child, which closes `mine`.

        Only this process may hold `mine`.
        """
        self._ours, self.theirs = os.openpty()
        self._before = termios.tcgetattr(0)
        _copy_size(self._ours)
        sys.stdout.flush()
        tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is not lost
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self.theirs)
            os.close(mine)
            _copy(self._ours)

    def end(self) -> None:
        """Let the child write the remaining output, and restore our terminal's settings."""
        os.close(self.theirs)
        process = os.pidfd_open(self._pid)
        if not select.select([process], [], [], 0.5)[0]:  # a process left behind holds the terminal open
            signals.send(process, signals.KILL)
        os.waitpid(self._pid, 0)
        os.close(process)
        termios.tcsetattr(0, termios.TCSADRAIN, self._before)


def _copy_size(fd: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, _WINDOW))


def _copy(ours: int) -> None:
    signal.signal(signal.SIGWINCH, lambda *_: _copy_size(ours))
    sources = {0: ours, ours: 1}
    try:
        while ours in sources:
            for source in select.select(list(sources), [], [])[0]:
                data = os.read(source, _CHUNK)
                if not data:
                    del sources[source]
                    continue
                while data:
                    data = data[os.write(sources[source], data) :]
    except OSError:
        pass  # EIO: no process holds the other end any more
    finally:
        os._exit(0)
