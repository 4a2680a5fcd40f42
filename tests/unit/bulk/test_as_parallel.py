"""The commands that `nodectl bulk` makes of a command line are those that GNU parallel 20221122 makes of it, which
record.py has written down.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nodectl.bulk.command import Bulk
from nodectl.bulk.options import BulkParser

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("parallel.json").read_text())


def lines(words: list[str], stdin: str) -> list[str]:
    """What would be run."""
    reader, writer = os.pipe()
    os.write(writer, stdin.encode())
    os.close(writer)
    kept = os.dup(0)
    os.dup2(reader, 0)
    try:
        commands = Bulk(None, None, BulkParser().parse(words)).commands  # type: ignore[arg-type]  # nothing is launched
        found = []
        while not commands.over:
            if (command := commands.next()) is None:
                commands.read()
            else:
                found.append(command.line)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reader)
    return found


@pytest.mark.parametrize(("words", "stdin", "said"), RECORDED["rows"], ids=lambda value: repr(value)[:40])
def test_the_lines_are_parallels(
    words: list[str], stdin: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in RECORDED["files"].items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert "".join(f"{line}\n" for line in lines(words, stdin)) == said
