"""The key `spank_versions`: the releases of Slurm for which a compiled plugin may have been built.

From 22.05 to 26.05 spank.h has the same items, numbers, structures and prototypes. spank_prepend_task_argv (23.11) and
slurm_spank_init_failure_mode (25.05) are new, and nodectl has both.
"""

DEFAULT = "22.05-26.05"


def read(text: str) -> "tuple[tuple[int, int], tuple[int, int]]":
    """Return the first and the last release of "22.05-26.05"; a single release is both. Raises ValueError with the
    reason.
    """
    first, dash, last = text.partition("-")
    releases = _release(first), _release(last if dash else first)
    if releases[0] > releases[1]:
        raise ValueError(f"is {text!r}, which ends before it begins")
    return releases


def _release(word: str) -> "tuple[int, int]":
    parts = word.split(".")
    if len(parts) != 2 or not all(len(part) == 2 and part.isascii() and part.isdecimal() for part in parts):
        raise ValueError(f"has {word!r}, which is no release")
    return int(parts[0]), int(parts[1])


def accept(text: str) -> None:
    """Set the accepted releases in this process and all later forks. Raises ValueError."""
    read(text)
    _accepted[0] = text


def accepted() -> str:
    """Return the configured releases."""
    return _accepted[0]


def is_accepted(version: "tuple[int, ...]") -> bool:
    """Return True if plugins built for this version are loaded; the bug-fix release does not matter."""
    first, last = read(accepted())
    return first <= version[:2] <= last


_accepted = [DEFAULT]
