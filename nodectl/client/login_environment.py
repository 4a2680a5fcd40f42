"""The environment of a user's login, for a batch script without the environment of the submitting shell.

A login shell of the user's, started by the command as that user, reads its profiles and prints its environment.
Profiles may print, hang, and leave processes behind: the environment stands between two marks, and there is a deadline.
"""

import os
import pwd
import secrets
import select
import subprocess
import time
from collections.abc import Callable, Mapping

from nodectl.kernel import signals

DEADLINE = 8.0  # seconds; sbatch's
_PATH = "/usr/local/bin:/usr/bin:/bin"
_MOST = 4 << 20  # bytes
_CHUNK = 64 << 10
_OF_SHELL = ("_", "OLDPWD", "PWD", "SHLVL", "TERM")


def with_login(environment: Mapping[str, str], say: Callable[[str], None], seconds: float = DEADLINE) -> dict[str, str]:
    """Return `environment` with additions from the login of this process's user.

    If the login shell does not print its environment within `seconds`, add HOME, USER, LOGNAME, SHELL and a PATH, and
    warn through `say`.
    """
    known = _of_account()
    try:
        login = _told_by_shell(known, seconds)
    except OSError as error:
        why = error.strerror or str(error)
        say(f"the login shell {known['SHELL']} of {known['USER']} told no environment: {why}; HOME and PATH are set")
        login = {}
    return {**known, **login, **environment}


def _of_account() -> dict[str, str]:
    uid = os.getuid()
    try:
        found = pwd.getpwuid(uid)
        name, home, shell = found.pw_name, found.pw_dir, found.pw_shell
    except KeyError:
        name, home, shell = str(uid), "/", ""
    path = _PATH if uid else f"/usr/local/sbin:{_PATH}:/usr/sbin:/sbin"
    return {"HOME": home, "USER": name, "LOGNAME": name, "SHELL": shell or "/bin/sh", "PATH": path}


def _told_by_shell(start: Mapping[str, str], seconds: float) -> dict[str, str]:
    """Return the environment made from `start` by the shell's profiles. Raises OSError."""
    shell, mark = start["SHELL"], secrets.token_hex()
    home = start["HOME"] if os.access(start["HOME"], os.X_OK) else "/"
    with subprocess.Popen(
        [f"-{os.path.basename(shell)}", "-c", f"echo {mark}; env -0; echo {mark}"],
        executable=shell,
        env={**start, "TERM": "dumb"},
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a profile that asks has no terminal to ask
    ) as process:
        assert process.stdout is not None  # noqa: S101  # it is a pipe
        told = b""
        try:
            told = _between(process.stdout.fileno(), f"{mark}\n".encode(), time.monotonic() + seconds)
        finally:
            if told:
                process.kill()  # what its profiles have started may go on, as an agent does
            else:
                signals.send_group_of_child(process.pid, signals.KILL)
    words = told.decode("utf-8", "surrogateescape").split("\0")
    pairs = (word.partition("=") for word in words)
    return {name: value for name, equals, value in pairs if equals and name not in _OF_SHELL}


def _between(fd: int, mark: bytes, deadline: float) -> bytes:
    """Return the data between two marks. Raises OSError."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    text = b""
    while text.count(mark) < 2:  # the one before it and the one behind it
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError("it took too long (--get-user-env=SECONDS gives it more time)")
        data = os.read(fd, _CHUNK)
        if not data:
            raise OSError("it ended before")
        text += data
        if len(text) > _MOST:
            raise OSError("it printed too much")
    return text.split(mark)[1]
