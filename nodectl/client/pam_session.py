"""The begin of a login session, for pam_exec(8): the session joins a job of its user, stays where it is, or is refused.

Runs as root, as a child of the session's process, which waits for it. Root is never refused, and no login hangs: the
service has five seconds. The environment is PAM's, in which a user may have set variables: only PAM's own are read.
"""

import grp
import os
import pwd
import signal

from nodectl.client.configuration import configured
from nodectl.model.wire import framing
from nodectl.model.wire.names import NODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from nodectl.client.command import GlobalOptions
    from nodectl.model.config import Config

_SECONDS = 5
_NO_LOGINS = ("systemd-user",)  # services of PAM whose process is the user's service manager
_ALLOWED, _REFUSED = 0, 1
_LONGEST_REPLY = 65_536


class _NoAnswer(Exception):
    """The service does not answer, or refuses; str() is a line."""


def begin(settings: "GlobalOptions") -> int:
    """Let the session join a job, as configured. Return the exit status: 0, or 1 if PAM is to refuse the session."""
    name = os.environ.get("PAM_USER", "")
    if os.environ.get("PAM_TYPE") != "open_session" or os.environ.get("PAM_SERVICE") in _NO_LOGINS or name == "root":
        return _ALLOWED
    status_when_down = _ALLOWED
    signal.signal(signal.SIGALRM, _late)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    signal.alarm(_SECONDS)
    try:
        user = pwd.getpwnam(name)
        if user.pw_uid == 0:  # before anything that may fail
            return _ALLOWED
        config = configured(_path_of(settings))
        if config.login_entry == "off" or is_admin(user, config.admin_group):
            return _ALLOWED
        status_when_down = _REFUSED if config.login_when_down == "refuse" else _ALLOWED
        return _status(_joined(config, user.pw_uid), config)
    except Exception as error:  # a door: whatever fails here, the owner of the machine has decided what follows
        follows = "refused" if status_when_down else "in no job"
        print(f"nodectl: this session is {follows}: {str(error) or type(error).__name__}", flush=True)
        return status_when_down
    finally:
        signal.alarm(0)


def _late(_number: int, _frame: object) -> None:
    raise _NoAnswer(f"the service has not answered within {_SECONDS} s")


def _path_of(settings: "GlobalOptions") -> str | None:
    """Return the path of --config; of a variable, which may be the user's, nothing is believed."""
    return None if settings.config == os.environ.get("NODECTL_CONFIG") else settings.config


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
        print(f"nodectl: this session is in job {reply['job']}, and ends with it")
    elif config.login_entry == "require":
        print(f"nodectl: this machine is for jobs: {reply['why']}")
        return _REFUSED
    return _ALLOWED
