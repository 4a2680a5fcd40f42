"""The commands' outputs: written to separate files, which are printed whole when the commands end.

A file may be larger than memory. Commands may replace their files by other things: files are opened as regular files,
or not at all.
"""

import errno
import os
import stat
import time
from typing import TYPE_CHECKING

from nodectl.bulk import private_directory
from nodectl.bulk.earlier import Earlier
from nodectl.bulk.printing import end_of_lines, print_part, write
from nodectl.client import safe_way
from nodectl.client.command import Failed, complain
from nodectl.messages import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nodectl.bulk.commands import Command
    from nodectl.bulk.template import Template

_PREFIX, _KEPT = "nodectl-bulk-", "nodectl-files-"  # directories whose files are unlinked; that stay
_LONGEST_NAME = 255
_ATTEMPTS = 20
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PROBE = bytes(8192)
_CANNOT = (errno.EINVAL, errno.EROFS, errno.ENOSYS, errno.EOPNOTSUPP)  # a file system without a disk
_ESCAPES = str.maketrans({"/": "\\_", "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\0": "\\0"})


class Style:
    """The style of printed outputs.

    `say`: print the command before the output; `tag`: make the beginning of each line; `files`: print the file's name
    instead of the contents; `by_line`: print during the run. `slot_mark` stands for the slot's number in texts and
    tags. `hide` is called before printing.
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
    """Outputs written straight to nodectl's own stdout and stderr, so nothing needs printing."""

    keeps_usage = False  # beside the output

    def __init__(self, style: Style) -> None:
        self._style = style
        self._files = [fd for fd in (1, 2) if stat.S_ISREG(os.fstat(fd).st_mode)]
        self._earlier = Earlier()  # where files are any but new

    def place(self, command: "Command") -> None:
        """Set the files of the command's output. Raises Failed."""
        command.stdout = command.stderr = "-"

    def ended(self, command: "Command") -> int:
        """Note the command's end, and return the size of stdout, as far as known."""
        command.sizes = (0, 0)
        return 0

    def show(self, command: "Command") -> None:
        """Print the command's output. Raises Failed, BrokenPipeError."""
        self.announce(command)

    def drop(self, command: "Command") -> None:
        """Discard the command's output."""

    def check(self) -> None:
        """Raise Failed where no more output can be kept."""

    def settle(self) -> None:
        """Write the output so far to disk. Raises Failed."""
        for fd in self._files:
            _sync(os.fdatasync, fd)

    def close(self) -> None:
        """Remove the rest."""

    def announce(self, command: "Command") -> None:
        """Print the command line, with -v."""
        if self._style.say:
            self._style.hide()
            write(1, self._in_slot(command, command.line) + b"\n")

    def show_lines(self, command: "Command") -> None:
        """Print the whole lines a running command has written since the last call. Raises Failed, BrokenPipeError."""

    def print_files(self, command: "Command", *, directory: int | None) -> None:
        """Print stdout, then stderr, from where printing has stopped."""
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
        """Print the new whole lines of both files."""
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
        """Replace the slot mark by the slot's number. A command's line keeps the mark while the command may have to run
        again, elsewhere.
        """
        if self._style.slot_mark:
            text = text.replace(self._style.slot_mark, str(command.slot))
        return text.encode("utf-8", "surrogateescape")


class Private(Outputs):
    """Outputs in files of this command's private directory, which are unlinked after printing.

    Most short commands print nothing, and to make and to unlink two files took a tenth of their time. So if files are
    empty and have no writers left, another command reuses them.
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
        """Set the files of the command's output."""
        name = self._empty.pop() if self._empty else str(command.number)
        command.stdout, command.stderr = f"{self._path}/{name}.out", f"{self._path}/{name}.err"

    def ended(self, command: "Command") -> int:
        """Note the command's end, and return the size of stdout."""
        out, err = (_status(name, self._fd) for name in _names(command))
        command.sizes = (_size_of(out), _size_of(err))
        command.alone = command.alone and not self._kept and _is_as_made(out) and _is_as_made(err)
        return command.sizes[0]

    def show(self, command: "Command") -> None:
        """Print the command's output, and remove the files."""
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
        """Print the whole lines the command has written since the last call."""
        if not self._kept:
            self.print_lines(command, directory=self._fd)

    def drop(self, command: "Command") -> None:
        """Discard the command's output."""
        out, err = _names(command)
        for name in (err,) if self._kept else (out, err):
            try:
                os.unlink(name, dir_fd=self._fd)
            except OSError:
                continue  # it never began

    def check(self) -> None:
        """Raise Failed when the disk is full. Programs which print do not notice a full disk."""
        try:
            written = os.pwrite(self._probe, _PROBE, 0)
            os.ftruncate(self._probe, 0)
            if written < len(_PROBE):  # another command's output went in between, which left room for a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise Failed(f"outputs in {self._path} may be incomplete: {error.strerror}", 255) from None

    def settle(self) -> None:
        """Write the output so far to disk. Raises Failed."""
        super().settle()
        if self._kept:
            _sync(_sync_all_of, self._fd)

    def close(self) -> None:
        """Remove the directory."""
        try:
            if not self._kept:
                self._remove()
        except OSError as error:
            complain(f"remove {self._path}: {error.strerror}")
        os.close(self._fd)
        os.close(self._probe)

    def _remove(self) -> None:
        """Remove the directory. Try again when a command makes a file at the same moment."""
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
    """Outputs in files which stay, for --results. `names` are the names of the columns, with --header."""

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
        """Set the files of the command's output, and make the directories."""
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
        """Note the command's end, and return the size of stdout."""
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
        """Give up on the command's output, but leave the files."""
        if self._looks:
            for path in (command.stdout, command.stderr):
                self._earlier.over(command, path, _status(path))

    def show(self, command: "Command") -> None:
        """Print the command's output."""
        self.print_files(command, directory=None)

    def show_lines(self, command: "Command") -> None:
        """Print the whole lines the command has written since the last call."""
        if self._looks and not self._style.files:
            self.print_lines(command, directory=None)

    def settle(self) -> None:
        """Write the output so far to disk. Raises Failed.

        A sync of the file system costs less than the syncs of all files and directories.
        """
        super().settle()
        for fd in list(self._places.values()):  # there may be one more meanwhile
            _sync(_sync_all_of, fd)

    def close(self) -> None:
        """Close the descriptors; all files stay."""
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
    """Write a file with this data, and return the open descriptor. Raises Failed."""
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
    """Refuse a path on which another user could redirect root's files. Raises Failed, OSError."""
    if why := safe_way.why_not_root(path):
        raise Failed(f"keep outputs in {printable(path)}: {why}", 255)


def file_name(value: str, number: int) -> str:
    """Return the value as a directory's name. Cut a long value, and append the command's number."""
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
    """Return the status of a regular file, None where there is no regular file."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _size_of(status: os.stat_result | None) -> int:
    return 0 if status is None else status.st_size


def _is_as_made(status: os.stat_result | None) -> bool:
    """Return True for an empty file with unchanged mode and a single name, owned by this user."""
    if status is None or status.st_size or status.st_nlink != 1 or status.st_uid != os.geteuid():
        return False
    return status.st_mode & 0o600 == 0o600
