"""The courier: a process executed by the daemon. It sends the notices of one user in one way, in order.

It runs as root, with one thread, and outlives the daemon; `order_file.py` says how the next daemon learns what it has
told. For each notice it forks a process which becomes the job's user, or the administrator's `notify_user`, and then
sendmail or a command. Whatever is slow is killed, with all that it has started. All look-ups come before the forks.
"""

import contextlib
import os
import pwd
import select
import time
from collections.abc import Callable, Mapping
from typing import Any

from nodectl.kernel import _kernel, signals, trust
from nodectl.launch.cgroup.tree import Group
from nodectl.launch.confine import confinement, scripts
from nodectl.launch.confine.confinement import Confinement
from nodectl.launch.task import users_process
from nodectl.model import notice
from nodectl.model.confinement_level import NONE
from nodectl.model.step import Step
from nodectl.service.daemon.history.notice import Notice
from nodectl.service.daemon.notices import order_file, wording
from nodectl.service.daemon.notices.ways import COMMAND, FAILED, LATE, MAIL, NOT_BEGUN, UNKNOWN_USER, UNTRUSTED

REPORT, ORDER, PROGRAMS = 3, 4, 5  # descriptors: unused, the order's file, the filters that confine
_SHELL = "/bin/sh"
_NONE = "/nonexistent"  # a key that is not set any more; or a home, so that ~/.msmtprc runs nothing for a confined job
_PATH = "/usr/local/bin:/usr/bin:/bin"
_DYING = 5.0  # seconds
_PAUSE, _TRIES = 0.01, 100  # seconds, until the last process has left the cgroup


def main(_arguments: Mapping[str, object]) -> None:
    """Send the notices of the order, and end."""
    for fd in (REPORT, ORDER, PROGRAMS):
        os.set_inheritable(fd, False)
    _kernel.default_signals()
    os.setsid()
    os.chdir("/")
    order: Any = order_file.order_of(ORDER)
    group = Group(order["group"]) if order["group"] else None
    for place, row in enumerate(order["notices"]):
        order_file.note(ORDER, place, _guarded(Notice(*row), order, group))
    if group is not None:
        _remove(group)
    os._exit(0)


def _guarded(told: Notice, order: Mapping[str, Any], group: Group | None) -> int:
    """Send a notice, as `_tell`. An error never stops the user's further notices."""
    try:
        return _tell(told, order, group)
    except Exception:  # a door; nothing is printed, since that imports
        return FAILED


def _tell(told: Notice, order: Mapping[str, Any], group: Group | None) -> int:
    """Send a notice. Return the wait status, or a number of `ways.py`."""
    told = told._replace(event=told.record.get("event", told.event))
    if not told.event:
        return 0  # the array ended in a way for which no notice was asked
    level = str(told.record["secure"]) if told.way == COMMAND else NONE
    try:
        user = pwd.getpwuid(told.uid) if told.way in (MAIL, COMMAND) or os.geteuid() else _of_site(order)
        confinement.load(PROGRAMS, level)
        argv = _argv(told, order)
        if told.way != COMMAND:
            trust.check(argv[0])
    except (KeyError, ValueError):
        return UNKNOWN_USER
    except (OSError, trust.Untrusted):
        return UNTRUSTED
    text = wording.text(told, order["node"]).encode("utf-8", "replace")
    if told.way == MAIL:
        text = wording.mail(told, argv[3:], order["node"])
    step = _step_of(told, user, level, order)
    return _run(argv, text, step, group, float(order["seconds"]), delivers=told.way == MAIL)


def _of_site(order: Mapping[str, Any]) -> pwd.struct_passwd:
    """Return the account of `notify_user`. Raises KeyError for a missing account, and for root's."""
    user = pwd.getpwnam(order["notify_user"])
    if not user.pw_uid:
        raise KeyError(user.pw_name)
    return user


def _argv(told: Notice, order: Mapping[str, Any]) -> list[str]:
    """Return program and arguments. Raises ValueError for a wrong address."""
    if told.way == MAIL:
        return [order["sendmail"] or _NONE, "-i", "--", *notice.addresses(told.record["to"])]
    return [_SHELL, "-c", told.record["command"]] if told.way == COMMAND else [order["notify_command"] or _NONE]


def _step_of(told: Notice, user: pwd.struct_passwd, level: str, order: Mapping[str, Any]) -> Step:
    """Return a step as which the process is confined, with its variables."""
    gids = os.getgrouplist(user.pw_name, user.pw_gid)
    environment = {
        "PATH": _PATH,
        "LANG": "C.UTF-8",
        "HOME": user.pw_dir if told.way != MAIL or told.record["secure"] == NONE else _NONE,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": _SHELL,
        **wording.variables(told, order["node"]),
    }
    return Step.from_json(
        {"job_id": told.job, "uid": user.pw_uid, "gid": user.pw_gid, "gids": gids, "umask": 0o022, "secure": level,
         "hard_limits": order["hard_limits"], "environment": environment,
         "cwd": told.record["work_dir"] if told.way == COMMAND else "/"}
    )  # fmt: skip


def _run(
    argv: list[str], text: bytes, step: Step, group: Group | None, seconds: float, *, delivers: bool = False
) -> int:
    """Run a program with the input `text`, for at most `seconds`. Return the wait status, LATE, or NOT_BEGUN.

    Processes that it leaves behind are killed. With `delivers` they have the rest of the time, because some sendmails
    deliver a mail in the background. A process that does not die, as in a system call on a hanging file system, is left
    to init.
    """
    until = time.monotonic() + seconds
    confined = Confinement(step, step.environment)

    def become() -> bool:
        return users_process.become(step, confined, group=group, signs_in=True)

    try:
        pid = _start(argv, text, step, become, confined)
    except OSError:  # no process, memory or descriptor is left
        return NOT_BEGUN
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    late = not poll.poll(seconds * 1000)
    delivers = delivers and not late
    while delivers and group is not None and group.populated() and time.monotonic() < until:
        time.sleep(_PAUSE)
    if group is not None or not delivers:
        signals.send_group_of_child(pid, signals.KILL)
    if group is not None:
        group.kill_all()
    dies = bool(poll.poll(_DYING * 1000))
    os.close(pidfd)
    status = os.waitpid(pid, 0)[1] if dies else 0
    return LATE if late else status


def _start(argv: list[str], text: bytes, step: Step, become: Callable[[], bool], confined: Confinement) -> int:
    """Start a program with the input `text`. Return the pid. Raises OSError; then nothing has begun."""
    with contextlib.ExitStack() as opened:
        source = os.memfd_create("notice")
        opened.callback(os.close, source)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        opened.callback(os.close, null)
        os.write(source, text)
        os.lseek(source, 0, os.SEEK_SET)
        return scripts.start_as(
            argv[0], step.environment, step.cwd, errors=null, become=become, confinement=confined, words=argv[1:],
            source=source,
        )  # fmt: skip


def _remove(group: Group) -> None:
    for _ in range(_TRIES):
        group.kill_all()
        if group.remove():
            Group(os.path.dirname(group.full_path)).remove()  # unless others are there
            return
        time.sleep(_PAUSE)
