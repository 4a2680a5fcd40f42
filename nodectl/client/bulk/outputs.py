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
from nodectl.client.bulk.earlier import Earlier
from nodectl.client.bulk.printing import end_of_lines, print_part, write
from nodectl.client.command import Failed, complain
from nodectl.messages import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nodectl.client.bulk.commands import Command
    from nodectl.client.bulk.template import Template

_PREFIX, _KEPT = "nodectl-bulk-", "nodectl-files-"  # directories whose files are unlinked; that stay
_LONGEST_NAME = 255
_ATTEMPTS = 20
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PROBE = bytes(8192)
_CANNOT = (errno.EINVAL, errno.EROFS, errno.ENOSYS, errno.EOPNOTSUPP)  # a file system without a disk
_ESCAPES = str.maketrans({"/": "\\_", "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\0": "\\0"})


class Style:
    """How outputs are shown: `say`: the command before them; `tag`: what makes the beginning of each line; `files`: the
    file's name in place of what is in it; `by_line`: while they are written. `slot_mark` stands for the
    slot's number in what is said and in tags. `hide` is called before something is printed.
    """

    __slots__ = ("by_line", "files", "hide", "say", "slot_mark", "tag")

    def __init__(
        self, *, say: bool = False, files: bool = False, by_line: bool = False,
        tag: "Callable[[Sequence[str], int], str] | None" = None, slot_mark: str = "",
        hide: "Callable[[], None]" = lambda: None,
    ) -> None:  # fmt: skip
        self.say = say
        self.files = files
        self.by_line = by_line
        self.tag = tag
        self.slot_mark = slot_mark
        self.hide = hide


class Outputs:
    """Commands write where this command does; nothing has to be printed."""

    keeps_usage = False  # beside the output

    def __init__(self, style: Style) -> None:
        self._style = style
        self._files = [fd for fd in (1, 2) if stat.S_ISREG(os.fstat(fd).st_mode)]
        self._earlier = Earlier()  # where files are any but new

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

    def settle(self) -> None:
        """To the disk with what has been written so far. Raises Failed."""
        for fd in self._files:
            _sync(os.fdatasync, fd)

    def close(self) -> None:
        """Removes what is left."""

    def announce(self, command: "Command") -> None:
        """-v."""
        if self._style.say:
            self._style.hide()
            write(1, self._in_slot(command, command.line) + b"\n")

    def show_lines(self, command: "Command") -> None:
        """Prints the whole lines that a command which runs has written since the last time. Raises Failed,
        BrokenPipeError.
        """

    def print_files(self, command: "Command", *, directory: int | None) -> None:
        """Both, one after the other, but for what was printed before."""
        style = self._style
        if command.shown == (0, 0):
            self.announce(command)
        if style.files:
            style.hide()
            write(1, os.fsencode(command.stdout) + b"\n")
        names = ("" if style.files else command.stdout, command.stderr)
        for fd, name, begin, size in zip((1, 2), names, command.shown, command.sizes or (0, 0), strict=True):
            if size > begin and name:
                style.hide()
                print_part(fd, name, directory, self._tag(command), begin, size)

    def print_lines(self, command: "Command", *, directory: int | None) -> None:
        """Of both, what is new and ends with a line."""
        shown, looked = list(command.shown), list(command.looked)
        for stream, name in enumerate((command.stdout, command.stderr)):
            status = _status(name, directory)
            if not looked[stream] and self._earlier.is_all(name, status):
                continue
            size = _size_of(status)
            if size < looked[stream]:
                shown[stream] = looked[stream] = 0  # it has begun once more
            if size == looked[stream]:
                continue
            end, looked[stream] = end_of_lines(name, directory, looked[stream], size), size
            if end:
                self._style.hide()
                if not any(shown):
                    self.announce(command)
                print_part(stream + 1, name, directory, self._tag(command), shown[stream], end)
                shown[stream] = end
        command.shown, command.looked = (shown[0], shown[1]), (looked[0], looked[1])

    def _tag(self, command: "Command") -> bytes:
        tag = self._style.tag
        return self._in_slot(command, tag(command.values, command.number)) + b"\t" if tag else b""

    def _in_slot(self, command: "Command", text: str) -> bytes:
        """A command's line keeps the mark while it may have to run again, elsewhere."""
        if self._style.slot_mark:
            text = text.replace(self._style.slot_mark, str(command.slot))
        return text.encode("utf-8", "surrogateescape")


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

    def show_lines(self, command: "Command") -> None:
        """Prints the whole lines that it has written since the last time."""
        if not self._kept:
            self.print_lines(command, directory=self._fd)

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

    def settle(self) -> None:
        """To the disk with what has been written so far. Raises Failed."""
        super().settle()
        if self._kept:
            _sync(_sync_all_of, self._fd)

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

    keeps_usage = True

    def __init__(self, style: Style, directory: "Template", names: "Sequence[str]" = ()) -> None:
        super().__init__(style)
        self._template = directory
        self._named = directory.replaces or directory.has_number or directory.has_slot
        self._looks = style.by_line and not directory.has_slot  # else the files have no names yet while it runs
        self._names = names
        self._base = os.getcwd()
        self._places: dict[int, int] = {}  # a file of each file system that has some

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
            for path in (command.stdout, command.stderr):
                _refuse_strangers(path)
                if self._looks:
                    self._earlier.awaits(command, path, _status(path))
        except OSError as error:
            raise Failed(f"make {printable(parent)}: {error.strerror}", 255) from None

    def _steps(self, command: "Command") -> "Iterable[str]":
        for index, value in enumerate(command.values):
            yield file_name(self._names[index], command.number) if index < len(self._names) else str(index + 1)
            if value:
                yield file_name(value, command.number)

    def ended(self, command: "Command") -> int:
        """The command has ended: how much it has written to stdout."""
        out, err = _status(command.stdout), _status(command.stderr)
        command.sizes = (_size_of(out), _size_of(err))
        if self._looks:
            self._earlier.over(command, command.stdout, out)
            self._earlier.over(command, command.stderr, err)
        beside = f"{command.stdout}." if self._named else f"{os.path.dirname(command.stdout)}/"
        seq = _put(f"{beside}seq", b"%d" % command.number)
        if self._places.setdefault(os.fstat(seq).st_dev, seq) != seq:
            os.close(seq)
        os.close(_put(f"{beside}usage", command.usage))
        return command.sizes[0]

    def drop(self, command: "Command") -> None:
        """What it has written is not wanted, and stays."""
        if self._looks:
            for path in (command.stdout, command.stderr):
                self._earlier.over(command, path, _status(path))

    def show(self, command: "Command") -> None:
        """Prints what it has written."""
        self.print_files(command, directory=None)

    def show_lines(self, command: "Command") -> None:
        """Prints the whole lines that it has written since the last time."""
        if self._looks and not self._style.files:
            self.print_lines(command, directory=None)

    def settle(self) -> None:
        """To the disk with what has been written so far. One sync of a file system costs less than those of all files
        and directories. Raises Failed.
        """
        super().settle()
        for fd in list(self._places.values()):  # there may be one more meanwhile
            _sync(_sync_all_of, fd)

    def close(self) -> None:
        """All stays."""
        for fd in self._places.values():
            os.close(fd)


def _sync(call: "Callable[[int], None]", fd: int) -> None:
    try:
        call(fd)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise Failed(f"outputs may be incomplete: {error.strerror}", 255) from None


def _sync_all_of(fd: int) -> None:
    from nodectl.kernel import _kernel  # few keep files

    _kernel.sync_all_of(fd)


def _put(path: str, data: bytes) -> int:
    """A file with this in it, still open. Raises Failed."""
    fd = -1
    try:
        fd = os.open(path, _WRITE, 0o666)
        while data:
            data = data[os.write(fd, data) :]
        return fd
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        raise Failed(f"write {printable(path)}: {error.strerror}", 255) from None


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
