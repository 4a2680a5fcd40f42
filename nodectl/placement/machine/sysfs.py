"""Reading sysfs under any root: small files and numbered directories, where absence is an answer and no error.

Pure reading, in any process and as any user.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from nodectl.model.cpu_list import mask_of_list

_PAGE = 4096


def text(path: str) -> str | None:
    """Return a small file's text without surrounding blanks, None for an unreadable file.

    Plain descriptors: a quarter of the cost of open(), and a large machine has thousands of these files.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = part = os.read(descriptor, _PAGE)
        # A long CPU list comes a page at a time, by the page's size of the machine that it comes from.
        while len(part) >= _PAGE:
            part = os.read(descriptor, 16 * _PAGE)
            data += part
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data.decode("ascii", "replace").strip()


def first_text(directory: str, names: Iterable[str]) -> str | None:
    """Return the text of the first file with any text, or None."""
    for name in names:
        found = text(f"{directory}/{name}")
        if found:
            return found
    return None


def number(path: str, missing: int) -> int:
    """Return the decimal number in a file, `missing` where there is none."""
    return integer(text(path), missing)


def cpus(path: str) -> int:
    """Return the mask of the CPU list in a file, 0 without a list; ValueError for a malformed list."""
    return mask_of_list(text(path) or "")


def integer(digits: str | None, missing: int) -> int:
    """Return the number spelt by `digits`, `missing` for any other text."""
    try:
        return int(digits or "")
    except ValueError:
        return missing


def entries(directory: str, prefix: str) -> list[int]:
    """Return the numbers of the entries `<prefix><number>`, ascending; none for no directory."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    tails = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(tail) for tail in tails if tail.isascii() and tail.isdecimal())
