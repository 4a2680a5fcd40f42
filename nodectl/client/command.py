"""Common parts of all commands: global options, errors, messages.

Lean: `nodectl run` imports this module for every step.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

LAUNCHED = "_NODECTL_LAUNCHED"  # in the environment of a command that goes on from where the quick way has come to
_COERCED = (b"C.UTF-8", b"C.utf8", b"UTF-8")
_CHUNK = 65536
NO_PROGRAM = "No command given to execute."
USAGE = 255  # srun's exit status where getopt_long(3) refuses a word


class _Environment:
    decoded: "dict[str, str] | None" = None


def environ() -> "MutableMapping[str, str]":
    """Return os.environ where os is imported, because plugins may change os.environ; until then a copy.

    Importing os costs a tenth of the time which a step costs its command.
    """
    imported = sys.modules.get("os")
    if imported is not None:
        return imported.environ  # type: ignore[no-any-return]  # a module
    if _Environment.decoded is None:
        coding = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
        _Environment.decoded = {n.decode(*coding): value.decode(*coding) for n, value in posix.environ.items()}
    return _Environment.decoded


def undo_coercion() -> None:
    """Undo Python's setting of LC_CTYPE, made where no locale was found (PEP 538).

    LC_CTYPE is the user's, and goes to the tasks; the original value comes from /proc/self/environ.
    """
    if posix.environ.get(b"LC_CTYPE") not in _COERCED:
        return
    try:
        fd = posix.open("/proc/self/environ", posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return  # a hardened machine
    given = b"".join(iter(lambda: posix.read(fd, _CHUNK), b"")).split(b"\0")
    posix.close(fd)
    name, own = "LC_CTYPE", [entry for entry in given if entry.startswith(b"LC_CTYPE=")]
    if own:
        posix.putenv(name, own[0].partition(b"=")[2])
        posix.environ[name.encode()] = own[0].partition(b"=")[2]
    else:
        posix.unsetenv(name)
        del posix.environ[name.encode()]


def is_same_file(path: str, other: str) -> bool:
    """Return True if both paths name the same file. Raises OSError."""
    one, two = posix.stat(path), posix.stat(other)
    return (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)


def user_file(text: str) -> str:
    """Return a file's name with ~ or ~user at the beginning replaced, as a shell does for a word of its own.

    A shell leaves the ~ of --output=~/file to the command.
    """
    if not text.startswith("~"):
        return text
    from os.path import expanduser  # few names have one

    return expanduser(text)


class Program:
    """The name under which this command speaks to the user, such as srun if called by Slurm's name."""

    _OWN = "nodectl"
    name = _OWN
    quiet = False  # whether it says only what went wrong

    @classmethod
    def is_slurms(cls) -> bool:
        """Return True if the command was called by a name of Slurm's."""
        return cls.name != cls._OWN

    @classmethod
    def said(cls, line: str) -> str:
        """Return the line for the user, with the name by which the command was called.

        A name of Slurm's replaces nodectl's name at the beginning.
        """
        own = f"{cls._OWN}: "
        return f"{cls.name}: {line[len(own) :]}" if cls.is_slurms() and line.startswith(own) else line

    @classmethod
    def hint(cls, command: str) -> str:
        """Return the advice to print after an error in the command line."""
        if cls.is_slurms():
            return f'Try "{cls.name} --help" for more information'
        return f"Try 'nodectl {command} --help' for more information."


class GlobalOptions:
    """The options before the command.

    `config` and `socket` are None when not given; --user names the configuration of the user's own node.
    """

    __slots__ = ("config", "socket")

    def __init__(self) -> None:
        self.config = environ().get("NODECTL_CONFIG") or None
        self.socket = environ().get("NODECTL_SOCKET") or None


class Failed(Exception):
    """The command cannot fulfil the request.

    str() is a single line, `status` the exit status, `name` the Varlink error, `job` the job named by the error,
    `subject` the key of advice (`advice.py`).
    """

    def __init__(self, reason: str, status: int = 1, name: str = "", job: int = 0, subject: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.name = name
        self.job = job
        self.subject = subject


class Interrupted(KeyboardInterrupt):
    """A signal ends the command, after the cleanup."""

    has_come = False  # a Ctrl-C, in this process: what it raised may be lost in a callback

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def interrupted(_number: int, _frame: object) -> None:
    """Handle a Ctrl-C, until a request was made. Raises KeyboardInterrupt."""
    Interrupted.has_come = True
    raise KeyboardInterrupt


class BadOption(Exception):
    """The command line makes no sense.

    str() is a single line, `status` srun's exit status, `subject` the key of advice as in Failed.
    """

    def __init__(self, reason: str, status: int = 1, subject: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.subject = subject


class BadUsage(BadOption):
    """An error which getopt_long(3) would report; the help helps."""

    def __init__(self, reason: str, status: int = USAGE) -> None:
        super().__init__(reason, status)


def complain(text: str) -> None:
    """Print an error line, in srun's style. Words of other users may be in it."""
    if not text.isprintable():
        from nodectl.messages import printable

        text = printable(text)
    print(f"{Program.name}: error: {text}", file=sys.stderr)
