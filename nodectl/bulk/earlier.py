"""Old contents of files which commands are about to write, from an earlier run or from another command with the same
file.

The contents stay until the command starts the file anew: another command may still be writing there, and its output is
not lost.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from nodectl.bulk.commands import Command

    Look = tuple[int, int, int, int]


class Earlier:
    """The old contents of the files of commands in progress."""

    __slots__ = ("_files",)

    def __init__(self) -> None:
        # By path: the commands that use it, and its earlier look.
        self._files: dict[str, tuple[set[Command], Look | None]] = {}

    def awaits(self, command: "Command", path: str, status: "os.stat_result | None") -> None:
        """Note that the command will write to `path`. The old contents belong to commands already using the file."""
        if path not in self._files:
            self._files[path] = set(), _look(status)
        self._files[path][0].add(command)

    def over(self, command: "Command", path: str, status: "os.stat_result | None") -> None:
        """Note the command's end. The next command does not own the contents, unless already begun."""
        commands, look = self._files.pop(path, (set(), None))
        commands.discard(command)
        if commands:
            has_begun = any(other.slot for other in commands)
            self._files[path] = commands, look if has_begun else _look(status)

    def is_all(self, path: str, status: "os.stat_result | None") -> bool:
        """Return True if the file still looks as before."""
        return path in self._files and self._files[path][1] == _look(status)


def _look(status: "os.stat_result | None") -> "Look | None":
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
