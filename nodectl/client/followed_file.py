"""A file to which others append, copied to standard output as it grows, or its end: for `nodectl log` and the page.

The process opens the file with its own rights. Another user may have chosen its path, which is printed without control
characters; so is what is in it, where the caller wants that. A watch of inotify(7) wakes the process; writes of other
machines, over a network file system, wake nothing.
"""

import codecs
import errno
import os
import stat
import sys

from nodectl.client.command import Failed
from nodectl.kernel import _kernel
from nodectl.model.words import printable

_CHUNK = 1 << 18
# File systems that store nothing, by their magic numbers: proc, sysfs, tracefs, debugfs, securityfs, pstore, cgroups,
# bpf, efivarfs, configfs, binfmt_misc, and the namespaces of /proc.
_OF_THE_KERNEL = frozenset({
    0x9FA0, 0x62656572, 0x74726163, 0x64626720, 0x73636673, 0x6165676C, 0x27E0EB, 0x63677270, 0xCAFE4A11, 0xDE5E81E4,
    0x62656570, 0x42494E4D, 0x6E736673,
})  # fmt: skip


class FollowedFile:
    """The file of the path. All methods raise Failed."""

    def __init__(self, path: str, lines: int | None, *, as_text: bool = False) -> None:
        """`lines`: so many of the last lines to show at first; None for all of the file. `as_text`: show control
        characters as escapes, because they are for a terminal and another user's.
        """
        self._path = path
        self._lines = lines
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace") if as_text else None
        self._fd = -1
        self._at = 0  # bytes shown
        self.watcher = -1

    def watch(self) -> None:
        """Begin to watch. `watcher` is readable after changes, and -1 where the kernel gives no watch."""
        try:
            self.watcher = _kernel.watcher()
        except OSError:  # the user has too many of them
            return
        self._watch()

    def _watch(self) -> None:
        if self.watcher < 0:
            return
        for path, is_directory in ((self._path, False), (os.path.dirname(self._path), True), (self._path, False)):
            try:
                _kernel.watch(self.watcher, path, is_directory)
            except OSError:
                continue  # the job's next change wakes the command
            if not is_directory:
                return

    def changed(self) -> None:
        """Forget the changes that were reported, before the file is looked at."""
        try:
            os.read(self.watcher, _CHUNK)
        except BlockingIOError:
            return

    def copy(self) -> bool:
        """Write what is new to standard output. Return False where there is no file."""
        if self._fd < 0 and not self._open():
            return False
        self._copy()
        if self._replaced():
            os.close(self._fd)
            self._fd, self._at = -1, 0
            self._watch()
            if self._open():
                _say(f"{self._path} was replaced; this is the new file")
                self._copy()
        return True

    def _open(self) -> bool:
        try:
            self._fd = _opened(self._path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise Failed(f"open {printable(self._path)}: {error.strerror}") from None
        self._watch()
        if self._lines is not None:
            self._at, self._lines = _begin_of_last(self._fd, self._lines), None
        return True

    def _copy(self) -> None:
        if os.fstat(self._fd).st_size < self._at:
            _say(f"{self._path} was truncated; this is its new beginning")
            self._at = 0
        try:
            while data := os.pread(self._fd, _CHUNK, self._at):
                self._at += len(data)
                sys.stdout.buffer.write(data if self._decoder is None else _harmless(self._decoder.decode(data)))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise Failed(f"read {printable(self._path)}: {error.strerror}") from None
        sys.stdout.buffer.flush()

    def _replaced(self) -> bool:
        """Return True where the path leads to another file."""
        try:
            there, ours = os.stat(self._path), os.fstat(self._fd)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)


def last_lines(path: str, lines: int, most: int) -> bytes:
    """Return the last lines of a file, at most so many bytes. Raises Failed."""
    try:
        fd = _opened(path)
    except OSError as error:
        raise Failed(f"open {printable(path)}: {error.strerror}") from None
    try:
        return os.pread(fd, most, _begin_of_last(fd, lines, most))
    except OSError as error:
        raise Failed(f"read {printable(path)}: {error.strerror}") from None
    finally:
        os.close(fd)


def _opened(path: str) -> int:
    """Open a regular file to be read. Raises Failed, OSError.

    What is no regular file is not opened at all, because opening a device may have effects: root may call this. Nor is
    a file of the kernel's own, because reading takes messages out of some (/proc/kmsg, trace_pipe).
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise Failed(f"{printable(path)} is no regular file: nothing keeps what was written there")
        if _kernel.file_system(place) in _OF_THE_KERNEL:
            why = "is a file of the kernel's, as in /proc or /sys: nothing keeps what is read there"
            raise Failed(f"{printable(path)} {why}")
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)


def _begin_of_last(fd: int, lines: int, most: int | None = None) -> int:
    """Return the place in the file where the last lines begin, of the last `most` bytes at the earliest."""
    end = os.fstat(fd).st_size
    least = 0 if most is None else max(0, end - most)
    if not lines or not end:
        return end
    wanted = lines + (os.pread(fd, 1, end - 1) == b"\n")  # the newline at the end of the file separates no lines
    while end > least:
        begin = max(least, end - _CHUNK)
        data = os.pread(fd, end - begin, begin)
        place = len(data)
        while (place := data.rfind(b"\n", 0, place)) >= 0:
            wanted -= 1
            if not wanted:
                return begin + place + 1
        end = begin
    return least


def _harmless(text: str) -> bytes:
    """Return the text as UTF-8, with escapes for all control characters but ends of lines and tabs."""
    lines = ("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
    return "\n".join(lines).encode()


def _say(words: str) -> None:
    sys.stdout.flush()
    print(f"nodectl: {printable(words)}", file=sys.stderr)
