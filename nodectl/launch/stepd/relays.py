"""The start of the relays, which copy a step's streams, and the socket for viewers of the streams.

The daemon has made the socket: a viewer that comes before the relays waits there. Runs in the stepd, as root; the
relays run as the user.
"""

import os

from nodectl.launch.task import relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.launch.stepd.run import Run


def start_relays(run: "Run") -> None:
    """Fork the relays, where there are streams to copy. Raises LaunchFailed."""
    listener = run.fds.views
    try:
        for copies in (run.streams.inputs, run.streams.outputs):
            if copies:
                shown = listener if copies is run.streams.outputs else -1
                pid = run.spawn()
                if pid == 0:
                    relay.main(copies, run.client_streams, run.step, run.enter_container, shown)
                run.step.helpers.add(pid)
                run.relays.add(pid, awaited=copies is run.streams.outputs)
        if run.streams.terminal >= 0:
            _start_copying(run, listener)
    except OSError as error:
        raise run.failed(f"fork a process that copies streams: {error.strerror}") from error
    finally:
        _close_views(run)  # the relay alone has it: viewers learn of its end


def _start_copying(run: "Run", listener: int) -> None:
    """Fork the copier between the terminal of --pty and the client. Raises OSError."""
    from nodectl.launch.task import terminal  # imported already: it made the terminal

    leash, run.relays.leash = os.pipe2(os.O_CLOEXEC)
    pid = run.spawn()
    if pid == 0:
        terminal.main(run.step, run.streams.terminal, run.client_streams, leash, listener)
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
