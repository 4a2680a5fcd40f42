"""A plugin of the SPANK stack: a line of plugstack.conf, as stored in a step.

Pure. `spank/plugstack.py` makes entries from the file; they travel as lists, in a step's JSON and in messages.
"""


class Entry:
    """A line of plugstack.conf.

    `path` is absolute, or the bare word of the file if no plugin directory has it; `missing` says that there is no
    file. `argv` are the words after the plugin, undecodable bytes as surrogate escapes. `origin` is `file:line`.
    """

    __slots__ = ("argv", "missing", "origin", "path", "required")

    def __init__(self, path: str, argv: "tuple[str, ...]", *, required: bool, origin: str, missing: bool) -> None:
        self.path = path
        self.argv = argv
        self.required = required
        self.origin = origin
        self.missing = missing

    def __repr__(self) -> str:
        word = "required" if self.required else "optional"
        return f"<{self.origin}: {word} {' '.join((self.path, *self.argv))}>"


def entry_from_list(row: "list[object]") -> Entry:
    """Return the entry of a list: path, argv, required, origin, missing."""
    path, argv, required, origin, missing = row
    return Entry(path, tuple(argv), required=required, origin=origin, missing=missing)  # type: ignore[arg-type]


def entry_as_list(entry: Entry) -> "list[object]":
    """Return the entry as a list, the inverse of `entry_from_list`."""
    return [entry.path, list(entry.argv), entry.required, entry.origin, entry.missing]
