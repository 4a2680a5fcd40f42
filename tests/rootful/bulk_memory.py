"""What a bulk keeps in memory while its log grows."""

from __future__ import annotations

from pathlib import Path


def own_memory(pid: int) -> int:
    """KiB that belong to a process, and its part of what it shares with others, but for files: Pss_Anon."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has no Pss_Anon")


class GrowingLog:
    """A joblog; its lines are read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._lines = -1  # the first is no command's

    def ended(self) -> int:
        """Commands that are in it."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
            self._read += len(data)
            self._lines += data.count(b"\n")
        return self._lines
