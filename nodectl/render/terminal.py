"""Standard output: its width, its colours, lines on it; and documents, which may go into a file instead."""

import io
import os
import sys
from collections.abc import Iterable

COLOURS = ("auto", "always", "never")


def wants_colour(choice: str = "auto") -> bool:
    """What --color says; "auto": on a terminal that can, unless NO_COLOR (no-color.org) says not to."""
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None where it is a file or a pipe: nothing is cut there."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):  # ValueError: an output without a descriptor
        return None


def put(lines: Iterable[str]) -> None:
    """Prints the lines; what the locale cannot write becomes an escape."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for line in lines:
        print(line)


def write_document(path: str, document: str) -> None:
    """Writes a picture into a file, or onto standard output for "-". Raises OSError."""
    if path == "-":
        sys.stdout.write(document)
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(document)
