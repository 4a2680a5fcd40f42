"""`nodectl attach`: show the output of a running step's tasks, and type at the step's terminal.

Any number of users may attach at one time. The most recent output comes first. Leaving does not harm the step.
"""

import argparse
import os
import select
import signal
import socket
import sys
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.job_name import add_jobs, one_step, why_no_step
from nodectl.client.session import Session
from nodectl.client.terminal import Copying, Terminal, fatal
from nodectl.client.waiting import say
from nodectl.model.cpu_list import parse_cpulist
from nodectl.model.number import whole
from nodectl.model.step_number import FIRST, step_name
from nodectl.model.wire import terminal_packets as packets

_LEAVE = b"\x1d"  # Ctrl-]
_TIMES = 3
_NOBODY = -1
_MOST = 10**9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl attach` to the parser."""
    add_jobs(parser, "the step; a job's first one by default", steps=True, one=True)
    parser.add_argument("--pty", action="store_true", help="type each key at the step's terminal, in raw mode; "
                        "Ctrl-] three times leaves")  # fmt: skip
    parser.add_argument("-r", "--read-only", action="store_true", help="type nothing: standard input is not read")
    parser.add_argument("-l", "--label", action="store_true", help="begin each line with its task's number")
    parser.add_argument("--input-filter", type=_task, metavar="TASK", help="only this task gets what is typed")
    parser.add_argument("--output-filter", type=_task, metavar="TASK", help="show only this task's output")
    parser.add_argument("--error-filter", type=_task, metavar="TASK", help="show only this task's errors")
    parser.add_argument("--layout", action="store_true", help="print where the step's tasks are, and attach to nothing")
    parser.add_argument("-Q", "--quiet", action="store_true", help="say nothing about what could not be shown")
    parser.epilog = (
        "A step can be seen that `nodectl run` has started with --pty, -l or -u; what is typed goes to the terminal of "
        "--pty. Users attach to their own steps, root to all. Ctrl-C leaves, and the step goes on."
    )


def _task(text: str) -> int:
    if text == "none":
        return _NOBODY
    number = whole(text, _MOST)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no task")
    return number


def main(arguments: argparse.Namespace) -> int:
    """Show the step until the streams end or the user leaves. Return 0."""
    session = Session(arguments.settings, start_private=False)
    try:
        job, step = one_step(session, arguments.jobs)
        if arguments.layout:
            _print_layout(session.call("Show", job=job, step=step)["record"])
            return 0
        try:
            answer, fd = session.view(job, step)
        except Failed as failed:
            raise why_no_step(session, job, step, failed) from None
    finally:
        session.close()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fd)
    terminal = answer.get("terminal")
    _check(arguments, terminal, int(str(answer["ntasks"])))
    if not arguments.quiet and os.isatty(0) and os.isatty(2):
        leaves = "Ctrl-] three times" if arguments.pty else "Ctrl-C"
        what = f"job {job}" if step == FIRST else f"step {step_name(job, step)}"
        say(f"attached to {what}; {leaves} leaves, and the step goes on")
    if arguments.pty:
        return _at_terminal(Keys(sock, arguments))
    typed = terminal is not None and not arguments.read_only and arguments.input_filter in (None, terminal)
    return _follow(Lines(sock, arguments, int(str(answer["ntasks"])), types=typed))


def _check(arguments: argparse.Namespace, terminal: object, ntasks: int) -> None:
    """Check the options against the step. Raises Failed."""
    filters = (arguments.input_filter, arguments.output_filter, arguments.error_filter)
    for task in filters:
        if task is not None and task >= ntasks:
            raise Failed(f"there is no task {task}: the step has {ntasks}")
    if arguments.pty and terminal is None:
        raise Failed("--pty: the step has no terminal")
    if arguments.pty and (arguments.label or arguments.read_only or any(task is not None for task in filters)):
        raise Failed("--pty goes with no other option: it shows the terminal as it is, and types all keys")
    if arguments.input_filter not in (None, _NOBODY, terminal):
        raise Failed(f"what is typed cannot go to task {arguments.input_filter}, which has no terminal")


def _print_layout(record: Any) -> None:
    ntasks, node = int(record["ntasks"]), record["node"]
    nodes = record.get("nodes") or [{"node": node, "tasks": f"0-{ntasks - 1}"}]
    print("Job step layout:")
    print(f"  {ntasks} tasks, {len(nodes)} nodes ({node})\n")
    for number, row in enumerate(nodes):
        tasks = sorted(parse_cpulist(row["tasks"]))
        print(f"  Node {number} ({row['node']}), {len(tasks)} task(s): {' '.join(map(str, tasks))}")


class Lines(Copying):
    """The display of tasks' output, by task and line on request."""

    def __init__(self, sock: "socket.socket", arguments: argparse.Namespace, ntasks: int, *, types: bool) -> None:
        super().__init__(sock)
        self._listens = types
        self._label = arguments.label
        self._ntasks = ntasks
        self._width = len(str(ntasks - 1))
        self._only = {packets.OUT: arguments.output_filter, packets.ERR: arguments.error_filter}
        self._quiet = arguments.quiet
        self._begun: dict[tuple[bytes, int], bytes] = {}  # lines that have no end yet

    def _take(self, kind: bytes, task: int, data: bytes) -> None:
        if kind == packets.NOTE and not self._quiet:
            _write(2, b"nodectl: %s\n" % data)
        if kind not in self._only or self._only[kind] not in (None, task) or task >= self._ntasks:
            return
        if self._label:
            lines = (self._begun.pop((kind, task), b"") + data).split(b"\n")
            # Show a longer text as a line, because its end may never come.
            if len(lines[-1]) <= packets.LONGEST and (rest := lines.pop()):
                self._begun[kind, task] = rest
            data = b"".join([b"%*d: %s\n" % (self._width, task, line) for line in lines])
        if not _write(1 if kind == packets.OUT else 2, data):
            self.close()

    def finish(self) -> None:
        """Write unfinished lines with a line end."""
        for (kind, task), rest in self._begun.items():
            _write(1 if kind == packets.OUT else 2, b"%*d: %s\n" % (self._width, task, rest))


class Keys(Copying):
    """The step's terminal at the user's terminal: sends each key and shows the output."""

    def __init__(self, sock: "socket.socket", arguments: argparse.Namespace) -> None:
        super().__init__(sock)
        self._quiet = arguments.quiet
        self._leaves = 0  # how often that key was typed
        self.terminal = Terminal()
        self._window = b""

    def _take(self, kind: bytes, task: int, data: bytes) -> None:
        if kind != packets.NOTE or not self._quiet:
            super()._take(kind, task, data)

    def _typed(self, data: bytes) -> bool:
        for byte in data:
            self._leaves = self._leaves + 1 if byte == _LEAVE[0] else 0
            if self._leaves == _TIMES:
                self.close()
                return False
        return True


def _write(fd: int, data: bytes) -> bool:
    """Write all data, waiting for a slow reader while the step goes on. Return False if there is no reader any more."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # another process has made this terminal or pipe non-blocking
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
        except OSError:
            return False
    return True


def _follow(lines: Lines) -> int:
    while lines.is_open:
        poll = select.poll()
        lines.register(poll)
        for fd, mask in poll.poll():
            lines.handle(fd, mask)
    lines.finish()
    return 0


def _at_terminal(keys: Keys) -> int:
    wakes, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    deadly = fatal()
    for number in (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT, *deadly):
        signal.signal(number, lambda *_: None)
    sys.stdout.flush()
    keys.tell_window()
    keys.terminal.make_raw()
    try:
        while keys.is_open:
            poll = select.poll()
            poll.register(wakes, select.POLLIN)
            keys.register(poll)
            for fd, mask in poll.poll():
                for number in os.read(wakes, 512) if fd == wakes else ():
                    _act(keys, number, deadly)
                keys.handle(fd, mask)
        keys.finish()
    finally:
        keys.terminal.restore()
    return 0


def _act(keys: Keys, number: int, deadly: set[int]) -> None:
    if number == signal.SIGTSTP:
        keys.terminal.suspend()
    elif number == signal.SIGCONT:
        keys.terminal.resume()
    elif number in deadly:
        keys.terminal.die_of(number)
    keys.tell_window()
