"""proctrack/pgid: a step's processes are those of its tasks' process group.

The simplest tracker, and a leaky one: it does not find a program that calls setsid(2) or setpgid(2). The container id
is the number of the group. One process only leads the group, so the group exists before the first task and as long as
the stepd wants it.
"""

import _signal
import errno
import os
import select

from nodectl.kernel import _namespace, pseudo_file, signals
from nodectl.kernel.closing import close_all_but
from nodectl.model.step import Step
from nodectl.plugin_api import PluginError

plugin_type = "proctrack/pgid"
plugin_name = "process tracking by process group"
plugin_version = (22, 5, 8)

_ROUNDS = 600


class _State:
    group = 0
    leader = -1  # pidfd


def proctrack_p_create(step: Step) -> int:
    """Fork the leader of a new process group, which the step's tasks then join."""
    stepd = os.pidfd_open(os.getpid())
    ready, told = os.pipe2(os.O_CLOEXEC)
    try:
        pid = _namespace.fork_aside(0, -1)  # no child of ours: a wait for the step's children does not return it
        if pid == 0:
            _lead(stepd, told)
        os.close(told)
        told = -1
        if not os.read(ready, 1):
            raise PluginError(errno.ECHILD, "the leader of the process group died")
        _State.leader = os.pidfd_open(pid)
    finally:
        for fd in (stepd, ready, told):
            if fd >= 0:
                os.close(fd)
    _State.group = step.container_id = step.process_group = pid
    return 0


def _lead(stepd: int, told: int) -> None:
    """Lead the process group until the stepd ends or the leader is killed; close all descriptors except the stepd."""
    try:
        os.setpgid(0, 0)
        _signal.pthread_sigmask(_signal.SIG_BLOCK, range(1, _signal.NSIG))
        os.write(told, b"1")
        close_all_but((stepd,))
        poll = select.poll()
        poll.register(stepd, select.POLLIN)
        poll.poll()
    finally:
        os._exit(0)


def proctrack_p_add(step: Step, pid: int) -> int:
    """Do nothing: the step's tasks join the process group themselves."""
    return 0


def proctrack_p_signal(cont_id: int, signal: int) -> int:
    """Signal every member of the group; with SIGKILL also each new member."""
    signals.send_each(lambda: proctrack_p_get_pids(cont_id), signal, lambda pid: _is_member(pid, cont_id))
    return 0


def proctrack_p_wait(cont_id: int) -> int:
    """Kill and wait until the group is empty."""
    left = signals.kill_each(
        lambda: proctrack_p_get_pids(cont_id), lambda pid: _is_member(pid, cont_id), rounds=_ROUNDS
    )
    if left:
        raise PluginError(errno.ETIMEDOUT, f"processes {left} do not die")
    return 0


def proctrack_p_destroy(cont_id: int) -> int:
    """Kill the group's leader and forget the group."""
    if _State.leader >= 0:
        signals.send(_State.leader, signals.KILL)
        os.close(_State.leader)
    _State.group, _State.leader = 0, -1
    return 0


def proctrack_p_find(pid: int) -> int:
    """Return the group if the process is a member, else 0."""
    return _State.group if _is_member(pid, _State.group) else 0


def proctrack_p_has_pid(cont_id: int, pid: int) -> int:
    """Return 1 if the process is in the group, else 0."""
    return int(cont_id != 0 and proctrack_p_find(pid) == cont_id)


def proctrack_p_get_pids(cont_id: int) -> list[int]:
    """Return the pids of the group's living members, without the leader and zombies."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _is_member(int(name), cont_id)]


def _is_member(pid: int, group: int) -> bool:
    """Return True for a living member of the group in the stepd's session.

    After the leader's end another group may get the same number; that group has another session.
    """
    try:
        fields = pseudo_file.read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    except OSError:
        return False
    state, _, its_group, session = fields[:4]
    return int(its_group) == group != pid and int(session) == os.getsid(0) and state not in (b"Z", b"X")
