"""The start of the relays, which copy a step's streams, and the socket for viewers of the streams.

The daemon has made the socket: a viewer that comes before the relays waits there. Runs in the stepd, as root; the
relays run as the user.
"""

import os

from nodectl.launch.streams import relay
from nodectl.launch.task import users_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.launch.stepd.run import Run
    from nodectl.launch.streams.stdio import Copy


def start_relays(run: "Run") -> None:
    """Fork the relays, where there are streams to copy. Raises LaunchFailed."""
    listener = run.fds.views
    try:
        if run.streams.inputs:
            _start_relay(run, run.streams.inputs, -1, awaited=False)
        if run.streams.outputs:
            _start_relay(run, run.streams.outputs, listener, awaited=True)
        if run.streams.terminal >= 0:
            _start_copying(run, listener)
    except OSError as error:
        raise run.failed(f"fork a process that copies streams: {error.strerror}") from error
    finally:
        _close_views(run)  # the relay alone has it: viewers learn of its end


def _start_relay(run: "Run", copies: "list[Copy]", listener: int, *, awaited: bool) -> None:
    """Fork a relay, which joins the job's container first if a file is to be opened. Raises OSError."""
    enter = run.enter_container if any(copy.path for copy in copies) else None
    pid = run.spawn()
    if pid == 0:
        relay.main(copies, run.client_streams, lambda: users_process.become(run.step, enter=enter), listener)
    run.step.helpers.add(pid)
    run.relays.add(pid, awaited=awaited)


def _start_copying(run: "Run", listener: int) -> None:
    """Fork the copier between the terminal of --pty and the client. Raises OSError."""
    from nodectl.launch.streams import terminal  # imported already: it made the terminal

    leash, run.relays.leash = os.pipe2(os.O_CLOEXEC)
    pid = run.spawn()
    if pid == 0:
        terminal.main(
            run.step,
            run.streams.terminal,
            run.client_streams,
            lambda: users_process.become(run.step),
            leash,
            listener,
        )
    os.close(leash)
    run.step.helpers.add(pid)
    run.relays.add(pid, awaited=True)


def _close_views(run: "Run") -> None:
    if run.fds.views >= 0:
        run.private.remove(run.fds.views)
        os.close(run.fds.views)
        run.fds.views = -1


def forget(run: "Run") -> None:
    """Remove the viewers' socket after the end of the relays, or of a step without relays."""
    if not run.step.has_viewers:
        return
    _close_views(run)
    try:
        os.unlink(run.seen_at)
    except OSError:
        pass  # a daemon that took this stepd for dead has removed it
