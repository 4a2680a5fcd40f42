"""Standard output: width, colours and lines; and documents, optionally into a file."""

import io
import os
import sys
from collections.abc import Iterable

COLOURS = ("auto", "always", "never")


def wants_colour(choice: str = "auto") -> bool:
    """Return True for colours, by --color; "auto": on a capable terminal, unless NO_COLOR (no-color.org) is set."""
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int | None:
    """Return the columns of the terminal on standard output, None for a file or a pipe, where nothing is cut."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):  # ValueError: an output without a descriptor
        return None


def put(lines: Iterable[str]) -> None:
    """Print the lines; characters outside the locale become escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for line in lines:
        print(line)


def write_document(path: str, document: str) -> None:
    """Write a picture into a file, or to standard output for "-". Raises OSError."""
    if path == "-":
        sys.stdout.write(document)
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(document)
