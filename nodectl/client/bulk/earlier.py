"""What stands in files that commands are to write, and is none of theirs: of an earlier run, or of another command that
has the same file.

It stays until the command begins it anew: another one may still be writing there, and its output is not lost.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from nodectl.client.bulk.commands import Command

    Look = tuple[int, int, int, int]


class Earlier:
    """Of the files of commands that are on their way."""

    __slots__ = ("_files",)

    def __init__(self) -> None:
        self._files: dict[str, tuple[set[Command], Look | None]] = {}  # by path: who has it, and how it looked before

    def awaits(self, command: "Command", path: str, status: "os.stat_result | None") -> None:
        """It will write there. While others have the file, what is in it is theirs."""
        if path not in self._files:
            self._files[path] = set(), _look(status)
        self._files[path][0].add(command)

    def over(self, command: "Command", path: str, status: "os.stat_result | None") -> None:
        """It has ended: what it has written is none of the next one's, unless that has begun."""
        commands, look = self._files.pop(path, (set(), None))
        commands.discard(command)
        if commands:
            has_begun = any(other.slot for other in commands)
            self._files[path] = commands, look if has_begun else _look(status)

    def is_all(self, path: str, status: "os.stat_result | None") -> bool:
        """Whether the file still looks as it did."""
        return path in self._files and self._files[path][1] == _look(status)


def _look(status: "os.stat_result | None") -> "Look | None":
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
