"""The directories of a user's own node: `nodectl --user`. Paths of the XDG base directory specification.

Lean: commands import it at every step of such a node. Runs in the daemon and in commands, as that user.
"""

import posix as os  # the half in C: the other one is a millisecond of each step

_OTHERS_WRITE = 0o022
_KIND, _DIRECTORY = 0o170000, 0o040000
_NO_HOME = "/nonexistent"  # of a uid without an account


class NotOurs(Exception):
    """A socket directory possibly owned by another user; str() is a line."""


def configuration() -> str:
    """Return the path of the node's configuration, which need not exist."""
    return f"{_base('XDG_CONFIG_HOME', '.config')}/nodectl/nodectl.toml"


def is_own(path: "str | None") -> bool:
    """Return True for the configuration of the user's own node. Root's node is the machine's."""
    return path is not None and os.geteuid() != 0 and path == configuration()


def state_dir() -> str:
    """Return the directory of files to outlive a restart of the machine."""
    return f"{_base('XDG_STATE_HOME', '.local/state')}/nodectl"


def runtime_dir() -> str:
    """Return the directory of the node's socket: owned by this user alone, or missing. Raises NotOurs."""
    given = _variable("XDG_RUNTIME_DIR")
    path = f"{given}/nodectl" if given.startswith("/") else f"/tmp/nodectl-{os.geteuid()}"
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return path
    except OSError as error:
        raise NotOurs(f"{path}: {error.strerror}") from None
    look_at(path, status)
    return path


def must_be_ours(path: str) -> None:
    """Check the directory's owner: this user, and no access for others to write. Raises NotOurs.

    No other user can replace such a directory, even in a directory like /tmp. Before the directory exists any user may
    make it first, so a process that makes it must call this function afterwards.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        raise NotOurs(f"{path}: {error.strerror}") from None
    look_at(path, status)


def look_at(path: str, status: os.stat_result) -> None:
    """Check lstat(2)'s result for the directory as `must_be_ours` does. Raises NotOurs."""
    if status.st_mode & _KIND != _DIRECTORY or status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
        raise NotOurs(f"{path} is not a directory of uid {os.geteuid()} alone: name another one by XDG_RUNTIME_DIR")


def _base(variable: str, below_home: str) -> str:
    given = _variable(variable)
    if given.startswith("/"):
        return given
    home = _variable("HOME")
    if not home.startswith("/"):
        import pwd  # rarely needed: HOME is set for nearly every user

        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            home = _NO_HOME
    return f"{home}/{below_home}"


def _variable(name: str) -> str:
    return os.environ.get(name.encode("ascii"), b"").decode("utf-8", "surrogateescape")
