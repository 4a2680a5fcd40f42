"""Accounts that exist for a campaign alone: its mount namespace has another /etc/passwd."""

from __future__ import annotations

import subprocess
from pathlib import Path

_FIRST = 61_000  # above what Debian and systemd give out
_NAME = "nodectl-q{}"


def make(count: int, directory: Path) -> list[int]:
    """Adds so many ordinary users, each with a group of the same number, for everybody in this mount namespace.

    Returns their numbers. Only inside a mount namespace of one's own.
    """
    users = list(range(_FIRST, _FIRST + count))
    rows = {
        "passwd": "".join(f"{_NAME.format(uid)}:x:{uid}:{uid}::/:/bin/sh\n" for uid in users),
        "group": "".join(f"{_NAME.format(uid)}:x:{uid}:\n" for uid in users),
    }
    for name, lines in rows.items():
        made = directory / name
        made.write_text(Path("/etc", name).read_text(encoding="utf-8").rstrip("\n") + "\n" + lines, encoding="utf-8")
        made.chmod(0o644)
        subprocess.run(["mount", "--bind", made, f"/etc/{name}"], check=True)
    return users
