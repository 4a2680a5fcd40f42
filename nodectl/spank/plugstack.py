"""plugstack.conf: which SPANK plugins run, in which order, with which arguments.

A line is `required|optional PLUGIN [ARGUMENT]...` or `include PATTERN`. A `#` anywhere begins a comment; spaces and
tabs separate words; there is no quoting. For each step, the forkserver or the stepd reads the stack as root and the
client reads it as its user. The module imports only `os` and `stat` until an include has a pattern.
"""

from __future__ import annotations

import os
import time

from nodectl.kernel import trust
from nodectl.messages import printable
from nodectl.model.plugstack_entry import Entry

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Iterable

    Stamp = tuple[int, ...]

_MAX_BYTES = 1 << 20
# Files including files that include files multiply; a real stack has a dozen.
_MAX_FILES = 256
_GLOB_CHARACTERS = "*?["
# A file that has just been written may be written once more within one tick of its clock.
_TICK = 50_000_000
_TOO_NEW = (-1,)


class PlugstackError(Exception):
    """An unreadable stack; the text is a line with the file and, if known, the line number."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class Plugstack:
    """The plugins in calling order, and the warnings about lines.

    `warnings` are lines `file:line: reason`. A plugin that is listed twice is there twice.
    """

    __slots__ = ("_seen", "entries", "warnings")

    def __init__(
        self, entries: tuple[Entry, ...], warnings: tuple[str, ...], seen: dict[str, Stamp] | None = None
    ) -> None:
        self.entries = entries
        self.warnings = warnings
        self._seen = seen or {}  # every file and directory that had a say in it

    def is_current(self) -> bool:
        """Return True if reading the stack again would give the same result.

        For a process that reads it at each launch.
        """
        return all(stamp[:1] != _TOO_NEW and _stamp(path) == stamp for path, stamp in self._seen.items())


def read(path: str, plugin_dirs: Iterable[str]) -> Plugstack:
    """Read the stack in `path`; a missing file is an empty stack.

    A plugin without a leading `/` is searched in each of `plugin_dirs` and its folder `spank`, also with `.py` or `.so`
    appended if it has no suffix. A malformed line is skipped and becomes a warning. Raises `PlugstackError` for a file
    that exists and cannot be read or (for root) trusted, and for an include of a file that is being read.
    """
    reader = _Reader(tuple(plugin_dirs))
    reader.file(os.path.join(os.getcwd(), path), "")
    return Plugstack(tuple(reader.entries), tuple(reader.warnings), reader.seen)


def find(word: str, plugin_dirs: Iterable[str]) -> str | None:
    """Return the file of a plugin's word in plugstack.conf, or None."""
    return _Reader(tuple(plugin_dirs)).plugin(word)


def _stamp(path: str) -> Stamp:
    """Return a stamp of a file or a directory, () for a missing path. A change of the file or of the names changes the
    stamp.
    """
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mode, status.st_uid, status.st_mtime_ns, status.st_ctime_ns


class _Reader:
    """The walk through a file and all included files."""

    __slots__ = ("dirs", "entries", "files", "now", "open", "seen", "warnings")

    def __init__(self, dirs: tuple[str, ...]) -> None:
        self.dirs = dirs
        self.entries: list[Entry] = []
        self.warnings: list[str] = []
        self.open: list[str] = []
        self.files = 0
        self.seen: dict[str, Stamp] = {}
        self.now = time.time_ns()

    def see(self, path: str) -> None:
        """Note a path before reading the path: a change there changes the stack."""
        if path not in self.seen:
            stamp = _stamp(path)
            recent = bool(stamp) and max(stamp[-2:]) > self.now - _TICK
            self.seen[path] = (*_TOO_NEW, *stamp) if recent else stamp

    def file(self, path: str, origin: str) -> None:
        """Read a file; `origin` is the include line with this file, empty for the first file."""
        self.see(path)
        self.see(os.path.dirname(path))
        try:
            content = trust.read(path, _MAX_BYTES)
        except FileNotFoundError:
            return
        except IsADirectoryError as error:
            if not origin:
                raise PlugstackError(f"{path}: {error.strerror}") from error
            # A pattern like conf.d/* meets directories too.
            self.warn(f"{origin}: {path} is a directory and is left out")
            return
        except OSError as error:
            raise PlugstackError(_where(origin) + f"{path}: {error.strerror}") from error
        except trust.Untrusted as error:
            raise PlugstackError(_where(origin) + f"{path}: not trusted: {error}") from error
        self.files += 1
        if self.files > _MAX_FILES:
            raise PlugstackError(_where(origin) + f"more than {_MAX_FILES} files are included")
        identity = os.path.realpath(path)
        if identity in self.open:
            raise PlugstackError(_where(origin) + f"{path} includes itself")
        self.open.append(identity)
        for number, line in enumerate(os.fsdecode(content).split("\n"), 1):
            self.line(line, path, f"{path}:{number}")
        self.open.pop()

    def warn(self, text: str) -> None:
        """Store a warning in printable form."""
        self.warnings.append(printable(text))

    def line(self, line: str, path: str, origin: str) -> None:
        """Read a line. Only spaces and tabs separate words; other white space belongs to a word."""
        line = line.partition("#")[0]
        if line.endswith("\r"):
            self.warn(f"{origin}: line ends with a carriage return, which is dropped")
            line = line.rstrip("\r")
        words = [word for word in line.replace("\t", " ").split(" ") if word]
        if not words:
            return
        keyword = words[0]
        if "\0" in line:
            self.warn(f"{origin}: line with a NUL byte is left out")
        elif keyword not in ("required", "optional", "include"):
            wanted = "required, optional or include"
            self.warn(f"{origin}: line begins with {keyword!r} and not with {wanted}")
        elif len(words) == 1:
            what = "file" if keyword == "include" else "plugin"
            self.warn(f"{origin}: no {what} after {keyword!r}")
        elif keyword == "include":
            if len(words) > 2:
                self.warn(f"{origin}: words after {words[1]!r} are dropped")
            self.include(words[1], path, origin)
        else:
            found = self.plugin(words[1])
            entry = Entry(
                found or words[1],
                tuple(words[2:]),
                required=keyword == "required",
                origin=origin,
                missing=found is None,
            )
            self.entries.append(entry)

    def include(self, pattern: str, path: str, origin: str) -> None:
        """Read every matching file, relative to the directory of the including file."""
        directory = os.path.dirname(path)
        if not any(character in pattern for character in _GLOB_CHARACTERS):
            self.file(os.path.join(directory, pattern), origin)
            return
        import glob  # brings re

        searched = os.path.dirname(pattern)
        self.see(os.path.join(directory, searched))
        if any(character in searched for character in _GLOB_CHARACTERS):
            self.seen[pattern] = _TOO_NEW  # whatever it matches may change unseen
        # In the order of the bytes, which is collation in the C locale. The order of a security
        # relevant stack must not depend on the language of the user who restarted the daemon.
        for match in sorted(glob.glob(pattern, root_dir=directory), key=os.fsencode):
            self.file(os.path.join(directory, match), origin)

    def plugin(self, word: str) -> str | None:
        """Return the absolute path of the plugin's file, or None."""
        if word.startswith("/"):
            self.see(word)
            return word if os.path.isfile(word) else None
        names = (word,) if os.path.splitext(word)[1] else (word, word + ".py", word + ".so")
        for directory in self.dirs:
            for folder in (directory, os.path.join(directory, "spank")):
                self.see(folder)
                for name in names:
                    candidate = os.path.join(folder, name)
                    if os.path.isfile(candidate):
                        return candidate
        return None


def _where(origin: str) -> str:
    return f"{origin}: " if origin else ""
