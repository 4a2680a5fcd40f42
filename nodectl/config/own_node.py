"""Where a node of a user's own has its files: `nodectl --user`. Paths of the XDG base directory specification.

Lean: commands import it at every step of such a node. Runs in the daemon and in commands, as that user.
"""

import posix as os  # the half in C: the other one is a millisecond of each step

_OTHERS_WRITE = 0o022
_KIND, _DIRECTORY = 0o170000, 0o040000


class NotOurs(Exception):
    """The directory in which the socket is to be may be somebody else's; str() is one line."""


def configuration() -> str:
    """The path of its configuration, which need not exist."""
    return f"{_base('XDG_CONFIG_HOME', '.config')}/nodectl/nodectl.toml"


def is_own(path: "str | None") -> bool:
    """Whether a configuration is that of the user's own node. Root's is the machine's."""
    return path is not None and os.geteuid() != 0 and path == configuration()


def state_dir() -> str:
    """What outlives a restart of the machine."""
    return f"{_base('XDG_STATE_HOME', '.local/state')}/nodectl"


def runtime_dir() -> str:
    """The directory of its socket: this user's alone, or still to be made. Raises NotOurs."""
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
    """What is there is this user's directory: in one like /tmp nobody else can put another in its place from then on.
    Until it is made anybody may be quicker, so who makes it asks here behind that. Raises NotOurs.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        raise NotOurs(f"{path}: {error.strerror}") from None
    look_at(path, status)


def look_at(path: str, status: os.stat_result) -> None:
    """Likewise, by what lstat(2) said of it. Raises NotOurs."""
    if status.st_mode & _KIND != _DIRECTORY or status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
        raise NotOurs(f"{path} is not a directory of uid {os.geteuid()} alone: name another one by XDG_RUNTIME_DIR")


def _base(variable: str, below_home: str) -> str:
    given = _variable(variable)
    if given.startswith("/"):
        return given
    home = _variable("HOME")
    if not home.startswith("/"):
        import pwd  # hardly anybody has no HOME

        home = pwd.getpwuid(os.geteuid()).pw_dir
    return f"{home}/{below_home}"


def _variable(name: str) -> str:
    return os.environ.get(name.encode("ascii"), b"").decode("utf-8", "surrogateescape")
