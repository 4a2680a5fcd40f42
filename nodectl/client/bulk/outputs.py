"""What commands write: into files of their own, which are printed as they end, whole.

A file may be larger than memory. Commands may put other things in the place of their files: these are opened as what
they should be, or not at all.
"""

import errno
import os
import stat
import time

from nodectl.client import safe_way
from nodectl.client.bulk import private_directory
from nodectl.client.command import Failed, complain
from nodectl.messages import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nodectl.client.bulk.commands import Command
    from nodectl.client.bulk.template import Template

_CHUNK = 1 << 18
_PREFIX, _KEPT = "nodectl-bulk-", "nodectl-files-"  # directories whose files are unlinked; that stay
_LONGEST_NAME = 255
_ATTEMPTS = 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PROBE = bytes(8192)
_ESCAPES = str.maketrans({"/": "\\_", "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\0": "\\0"})


class Style:
    """How outputs are shown: `say`: the command before them; `tag`: what makes the beginning of each line; `files`: the
    file's name in place of what is in it. `hide` is called before something is printed.
    """

    __slots__ = ("files", "hide", "say", "tag")

    def __init__(
        self, *, say: bool = False, files: bool = False, tag: "Callable[[Sequence[str], int], str] | None" = None,
        hide: "Callable[[], None]" = lambda: None,
    ) -> None:  # fmt: skip
        self.say = say
        self.files = files
        self.tag = tag
        self.hide = hide


class Outputs:
    """Commands write where this command does; nothing has to be printed."""

    def __init__(self, style: Style) -> None:
        self._style = style

    def place(self, command: "Command") -> None:
        """Says where the command writes. Raises Failed."""
        command.stdout = command.stderr = "-"

    def ended(self, command: "Command") -> int:
        """The command has ended: how much it has written to stdout, as far as that can be known."""
        command.sizes = (0, 0)
        return 0

    def show(self, command: "Command") -> None:
        """Prints what it has written. Raises Failed, BrokenPipeError."""
        self.announce(command)

    def drop(self, command: "Command") -> None:
        """What it has written is not wanted."""

    def check(self) -> None:
        """Raises Failed where no output can be kept any more."""

    def close(self) -> None:
        """Removes what is left."""

    def announce(self, command: "Command") -> None:
        """-v."""
        if self._style.say:
            self._style.hide()
            write(1, command.line.encode("utf-8", "surrogateescape") + b"\n")

    def print_files(self, command: "Command", *, directory: int | None) -> None:
        """Both, one after the other."""
        style = self._style
        self.announce(command)
        if style.files:
            style.hide()
            write(1, os.fsencode(command.stdout) + b"\n")
        tag = style.tag(command.values, command.number).encode("utf-8", "surrogateescape") + b"\t" if style.tag else b""
        names = ("" if style.files else command.stdout, command.stderr)
        for fd, name, size in zip((1, 2), names, command.sizes or (0, 0), strict=True):
            if size and name:
                style.hide()
                _print(fd, name, directory, tag, size)


class Private(Outputs):
    """Files in a directory of this command's own, which are unlinked when they have been printed.

    Most short commands print nothing, and to make and to unlink two files took a tenth of their time. So where nothing
    is in them, and nobody is left to write to them, another command gets them.
    """

    def __init__(self, style: Style, candidates: "Iterable[str]") -> None:
        super().__init__(style)
        self._path, self._fd = private_directory.make(candidates, _KEPT if style.files else _PREFIX)
        try:
            self._probe = os.open("probe", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
            os.unlink("probe", dir_fd=self._fd)
        except OSError as error:
            os.rmdir(self._path)
            raise Failed(f"keep outputs in {self._path}: {error.strerror}", 255) from None
        self._kept = style.files
        self._empty: list[str] = []  # names that another command may have
        if not self._kept:
            private_directory.sweep(os.path.dirname(self._path), _PREFIX)

    def place(self, command: "Command") -> None:
        """Says where the command writes."""
        name = self._empty.pop() if self._empty else str(command.number)
        command.stdout, command.stderr = f"{self._path}/{name}.out", f"{self._path}/{name}.err"

    def ended(self, command: "Command") -> int:
        """The command has ended: how much it has written to stdout."""
        out, err = (_status(name, self._fd) for name in _names(command))
        command.sizes = (_size_of(out), _size_of(err))
        command.alone = command.alone and not self._kept and _is_as_made(out) and _is_as_made(err)
        return command.sizes[0]

    def show(self, command: "Command") -> None:
        """Prints what it has written, and removes it."""
        out, err = _names(command)
        if command.sizes != (0, 0) or self._style.say or self._kept:
            command.stdout = command.stdout if self._kept else out
            command.stderr = err
            self.print_files(command, directory=self._fd)
        if command.alone:
            self._empty.append(out.removesuffix(".out"))
        else:
            self.drop(command)

    def drop(self, command: "Command") -> None:
        """What it has written is not wanted."""
        out, err = _names(command)
        for name in (err,) if self._kept else (out, err):
            try:
                os.unlink(name, dir_fd=self._fd)
            except OSError:
                continue  # it never began

    def check(self) -> None:
        """A full disk would be silent: programs that print do not look."""
        try:
            written = os.pwrite(self._probe, _PROBE, 0)
            os.ftruncate(self._probe, 0)
            if written < len(_PROBE):  # another command's output went in between, which left room for a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise Failed(f"outputs in {self._path} may be incomplete: {error.strerror}", 255) from None

    def close(self) -> None:
        """Removes what is left."""
        try:
            if not self._kept:
                self._remove()
        except OSError as error:
            complain(f"remove {self._path}: {error.strerror}")
        os.close(self._fd)
        os.close(self._probe)

    def _remove(self) -> None:
        """A command that begins at this very moment may still make a file."""
        for attempt in range(_ATTEMPTS):
            for name in os.listdir(self._fd):
                os.unlink(name, dir_fd=self._fd)
            try:
                os.rmdir(self._path)
            except OSError:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.02)
            else:
                return


class Results(Outputs):
    """--results: files that stay. `names` are those of the columns, by --header."""

    def __init__(self, style: Style, directory: "Template", names: "Sequence[str]" = ()) -> None:
        super().__init__(style)
        self._template = directory
        self._named = directory.replaces or directory.has_number or directory.has_slot
        self._names = names
        self._base = os.getcwd()

    def place(self, command: "Command") -> None:
        """Says where the command writes, and makes the directories."""
        if self._named:
            path = os.path.join(self._base, self._template.line(command.values, command.number))
            parent = os.path.dirname(path)
            command.stdout, command.stderr = path, f"{path}.err"
        else:
            parent = os.path.join(self._base, self._template.text, *self._steps(command))
            command.stdout, command.stderr = f"{parent}/stdout", f"{parent}/stderr"
        try:
            _refuse_strangers(parent)
            os.makedirs(parent, exist_ok=True)
            _refuse_strangers(command.stdout)
            _refuse_strangers(command.stderr)
        except OSError as error:
            raise Failed(f"make {printable(parent)}: {error.strerror}", 255) from None

    def _steps(self, command: "Command") -> "Iterable[str]":
        for index, value in enumerate(command.values):
            yield file_name(self._names[index], command.number) if index < len(self._names) else str(index + 1)
            if value:
                yield file_name(value, command.number)

    def ended(self, command: "Command") -> int:
        """The command has ended: how much it has written to stdout."""
        command.sizes = (_size_of(_status(command.stdout)), _size_of(_status(command.stderr)))
        beside = f"{command.stdout}.seq" if self._named else f"{os.path.dirname(command.stdout)}/seq"
        try:
            fd = os.open(beside, _WRITE, 0o666)
            try:
                os.write(fd, b"%d" % command.number)
            finally:
                os.close(fd)
        except OSError as error:
            raise Failed(f"write {printable(beside)}: {error.strerror}", 255) from None
        return command.sizes[0]

    def show(self, command: "Command") -> None:
        """Prints what it has written."""
        self.print_files(command, directory=None)


def _refuse_strangers(path: str) -> None:
    """Root's files are where root means them to be. Raises Failed, OSError."""
    if why := safe_way.why_not_root(path):
        raise Failed(f"keep outputs in {printable(path)}: {why}", 255)


def file_name(value: str, number: int) -> str:
    """A value as the name of a directory. One that is too long is cut, and told apart by the command's number."""
    name = value.translate(_ESCAPES)
    if name in (".", ".."):
        return name.replace(".", "\\.")
    raw = os.fsencode(name)
    if len(raw) > _LONGEST_NAME:
        ending = b"~%d" % number
        return os.fsdecode(raw[: _LONGEST_NAME - len(ending)] + ending)
    return name


def _names(command: "Command") -> tuple[str, str]:
    return os.path.basename(command.stdout), os.path.basename(command.stderr)


def _status(name: str, directory: int | None = None) -> os.stat_result | None:
    """Of a regular file, None where there is none."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _size_of(status: os.stat_result | None) -> int:
    return 0 if status is None else status.st_size


def _is_as_made(status: os.stat_result | None) -> bool:
    """Whether nothing is in the file, and its mode and name are what they were: nobody else has it either."""
    if status is None or status.st_size or status.st_nlink != 1 or status.st_uid != os.geteuid():
        return False
    return status.st_mode & 0o600 == 0o600


def _print(to: int, name: str, directory: int | None, tag: bytes, left: int) -> None:
    """What was there when its command ended: what that has left behind may still write, without end."""
    try:
        fd = os.open(name, _OPEN, dir_fd=directory)
    except OSError as error:
        complain(f"read {printable(name)}: {error.strerror}")
        return
    begins = True  # a line
    try:
        while data := os.read(fd, min(left, _CHUNK)):
            left -= len(data)
            if not tag:
                write(to, data)
                continue
            ends = data.endswith(b"\n")
            text = (data[:-1] if ends else data).replace(b"\n", b"\n" + tag) + b"\n" * ends
            write(to, tag + text if begins else text)
            begins = ends
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failed(f"print the output of a command: {error.strerror}", 255) from None
    finally:
        os.close(fd)


def write(fd: int, data: bytes) -> None:
    """All of it. Raises Failed where it cannot be written, BrokenPipeError where nobody reads."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # somebody else has made it so
            wait_for_room(fd)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Failed(f"write to {'stdout' if fd == 1 else 'stderr'}: {error.strerror}", 255) from None


def wait_for_room(fd: int) -> None:
    """Until something can be written."""
    import select  # there already

    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll()
