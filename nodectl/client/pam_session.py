"""The begin of a login session, for pam_exec(8): the session joins a job of its user, stays where it is, or is refused.

Runs as root, as a child of the session's process, which waits for it. Root is never refused, and no login hangs: name
service and service have five seconds together, and then this process ends. The environment is PAM's, in which a user
may have set variables: only PAM's own are read.
"""

import contextlib
import grp
import os
import pwd
import signal

import prctl

from nodectl.client.configuration import configured
from nodectl.kernel.processes import cgroup_of
from nodectl.model.wire import framing
from nodectl.model.wire.names import NODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    from nodectl.client.command import GlobalOptions
    from nodectl.model.config import Config

_SECONDS = 5
_NO_LOGINS = ("systemd-user",)  # services of PAM whose process is the user's service manager
_ALLOWED, _REFUSED = 0, 1
_LONGEST_REPLY = 65_536


class _NoAnswer(Exception):
    """The service or the name service does not answer, or refuses; str() is a line."""


def begin(settings: "GlobalOptions") -> int:
    """Let the session join a job, as configured. Return the exit status: 0, or 1 if PAM is to refuse the session."""
    name = os.environ.get("PAM_USER", "")
    if os.environ.get("PAM_TYPE") != "open_session" or os.environ.get("PAM_SERVICE") in _NO_LOGINS or name == "root":
        return _ALLOWED
    status_when_down, asked = _ALLOWED, "the name service"

    def late(_number: int, _frame: object) -> None:
        os._exit(_without_answer(f"{asked} has not answered within {_SECONDS} s", status_when_down))

    signal.signal(signal.SIGALRM, late)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    signal.alarm(_SECONDS)
    try:
        config = configured(_path_of(settings))
        if config.login_entry == "off":
            return _ALLOWED
        status_when_down = _REFUSED if config.login_when_down == "refuse" else _ALLOWED
        uid = _uid_unless_admin(name, config.admin_group)
        if uid == 0:
            return _ALLOWED
        asked = "the service"
        return _status(_joined(config, uid), config)
    except Exception as error:  # a door: whatever fails here, the owner of the machine has decided what follows
        return _without_answer(str(error) or type(error).__name__, status_when_down)
    finally:
        signal.alarm(0)


def _without_answer(why: str, status_when_down: int) -> int:
    """Tell the user what follows. Return the exit status."""
    if cgroup_of(os.getppid()) != cgroup_of():  # born where the session was: the service has moved it
        _say("this session is in a job, and ends with it")
        return _ALLOWED
    _say(f"this session is {'refused' if status_when_down else 'in no job'}: {why}")
    return status_when_down


def _say(words: str) -> None:
    with contextlib.suppress(OSError):  # it is for the user, if anybody reads it
        os.write(1, f"nodectl: {words}\n".encode())


def _path_of(settings: "GlobalOptions") -> str | None:
    """Return the path of --config; of a variable, which may be the user's, nothing is believed."""
    return None if settings.config == os.environ.get("NODECTL_CONFIG") else settings.config


def _uid_unless_admin(name: str, admin_group: str) -> int:
    """Return the user's uid, 0 for root and for admins. Raises _NoAnswer.

    A child asks the name service, whose functions may not return for minutes, whatever signals come.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        _look_up(name, admin_group, reads, writes)
    os.close(writes)
    with open(reads, encoding="utf-8", errors="replace") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    if not told.isdecimal():
        raise _NoAnswer(told or "the look-up of the user has failed")
    return int(told)


def _look_up(name: str, admin_group: str, reads: int, writes: int) -> "NoReturn":
    """Write the uid, or what has failed, unless the parent has ended.

    PAM waits for the end of the output: nothing of it stays open here.
    """
    try:
        prctl.set_pdeathsig(signal.SIGKILL)
        os.close(reads)  # a parent that has ended before that is noticed by the write at the latest
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        user = pwd.getpwnam(name)
        told = "0" if is_admin(user, admin_group) else str(user.pw_uid)
        os.write(writes, told.encode())
    except Exception as error:  # a door: the parent knows what follows
        os.write(writes, f"look up user {name!r}: {error}".encode())
    finally:
        os._exit(0)


def is_admin(user: pwd.struct_passwd, group: str) -> bool:
    """Return True for root, and for a member of the group, named or numbered."""
    if user.pw_uid == 0:
        return True
    try:
        gid = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        return False
    return gid in os.getgrouplist(user.pw_name, user.pw_gid)


def _joined(config: "Config", uid: int) -> "Mapping[str, Any]":
    """Return the service's reply: the job, 0 for none, and why. Raises _NoAnswer, OSError, BrokenWire."""
    try:
        sock = framing.connect(config.socket)
    except OSError as error:
        raise _NoAnswer(f"no service at {config.socket}: {error.strerror}") from None
    try:
        framing.send(sock, {"method": f"{NODE}.JoinLogin", "parameters": {"uid": uid}})
        reply: Any = framing.receive(sock, framing.Inbox(_LONGEST_REPLY))
    finally:
        sock.close()
    if reply is None:
        raise _NoAnswer("the service went away before it answered")
    if "error" in reply:
        raise _NoAnswer(str(reply["parameters"].get("reason") or reply["error"]))
    found: Mapping[str, Any] = reply["parameters"]
    return found


def _status(reply: "Mapping[str, Any]", config: "Config") -> int:
    if reply["job"]:
        _say(f"this session is in job {reply['job']}, and ends with it")
    elif config.login_entry == "require":
        _say(f"this machine is for jobs: {reply['why'] or 'no job of yours runs here'}")
        return _REFUSED
    elif reply["why"]:
        _say(f"this session is in no job: {reply['why']}")
    return _ALLOWED
