"""Child processes of the user's, which open paths or close descriptors in the place of the stepd.

The maker of a file decides how long an open, a write or a close takes, for ever on a file system of the user's own. So
the stepd does none of these, and waits for a child only while it serves everything else. The descriptors to close were
sent by other processes of the user's.

Forked by the stepd, as root; they enter the job's container and become the user first of all.
"""

import _signal
import os
import time

from nodectl.kernel import signals
from nodectl.kernel.closing import close_all_but
from nodectl.launch.stepd.run import LaunchFailed
from nodectl.launch.task import users_process
from nodectl.model.states import RUNNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from nodectl.launch.stepd.reaper import Reaper
    from nodectl.launch.stepd.run import Run


def start(run: "Run", act: "Callable[[], None]", keep: "Iterable[int]" = ()) -> int:
    """Fork a process which runs `act` as the step's user, in the job's container, with only the descriptors `keep`.

    Returns its pid, which the reaper collects. Raises OSError.
    """
    pid = run.spawn()
    if pid == 0:
        try:
            _signal.set_wakeup_fd(-1)  # its descriptor is closed here, and may be another file's then
            if users_process.become(run.step, enter=run.enter_container):
                close_all_but(keep)
                act()
        finally:
            os._exit(0)
    run.step.helpers.add(pid)
    return pid


def let_go(run: "Run", fds: "list[int]") -> None:
    """Close sockets that may hold descriptors of the user's. A child closes them last, as the user.

    Raises OSError where no child can be forked: they stay open then, until the stepd itself ends as the user.
    """
    if not fds:
        return
    run.fds.of_user += fds
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = run.spawn()
        if pid == 0:
            _be_last(run, reader, writer)
        run.step.helpers.add(pid)
        for fd in fds:
            run.fds.of_user.remove(fd)
            os.close(fd)
    finally:
        os.close(reader)
        os.close(writer)


def _be_last(run: "Run", reader: int, writer: int) -> "NoReturn":
    """Wait in the child until the stepd has closed the sockets, then become the user and exit.

    A child that became the user earlier could be ended by the user.
    """
    try:
        _signal.set_wakeup_fd(-1)
        os.close(writer)
        os.read(reader, 1)
        users_process.become(run.step)
    finally:
        os._exit(0)


def act_as_user(run: "Run", reaper: "Reaper", act: "Callable[[], None]") -> None:
    """Run `act` as the step's user and wait for the end, serving the step meanwhile.

    A failure of `act` is not reported. Raises LaunchFailed when the step has to end, and OSError where no process can
    be forked.
    """
    pid = start(run, act)
    reaper.gone.discard(pid)  # left by an earlier process with this pid
    while pid not in reaper.gone and run.state == RUNNING:
        reaper.turn(reaper.patience())
    if pid not in reaper.gone:
        signals.send_child(pid, signals.KILL)
        raise LaunchFailed(run.reason)


def wait_a_while(reaper: "Reaper", pid: int, seconds: float) -> None:
    """Wait for a helper, unless the step is killed; then kill the helper and stop waiting."""
    end = time.monotonic() + seconds
    while pid not in reaper.gone and (now := time.monotonic()) < end:
        late = reaper.termination.late
        if late is not None and late[1] <= now:
            break
        reaper.turn(end - now if late is None else min(end, late[1]) - now)
    if pid not in reaper.gone:
        signals.send_child(pid, signals.KILL)
