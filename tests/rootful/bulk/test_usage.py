"""What commands have used, as their user gets it: beside each output, and in a log of all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rootful.node import NOBODY, PATIENCE, Node, wait_until

BURN = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
TOUCH = "len(bytearray(b'x') * (50 << 20))"
# What may be lost in rounding.
SUMS = {"user_seconds": 1e-4, "system_seconds": 1e-4, "read_chars": 0, "written_chars": 0}


def used(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_each_command_has_a_line_whose_sums_are_those_of_the_step(served: Node) -> None:
    (served.scratch / "burn.py").write_text(BURN)
    (served.scratch / "touch.py").write_text(TOUCH)
    lines = "python3 -S burn.py\npython3 -S touch.py\nhead -c 1000000 /dev/zero >&2; exit 3\ntrue 4\ntrue 5\nnosuch\n"
    words = ("bulk", "-n2", "--usage-log", "used", "--results", "out", "--joblog", "log")
    done = served.nodectl(*words, stdin=lines, user=NOBODY)
    assert done.returncode == 2, done.stderr
    rows = used(served.scratch / "used")
    assert sorted(row["seq"] for row in rows) == [1, 2, 3, 4, 5, 6]
    burns, touches, writes, *_, fails = sorted(rows, key=lambda row: int(row["seq"]))
    assert 0.4 <= burns["user_seconds"] + burns["system_seconds"] <= burns["seconds"] + 0.1
    assert touches["memory_kib"] > 50 << 10 > burns["memory_kib"] > 0
    assert writes["written_chars"] >= 1_000_000
    assert (writes["exit_value"], fails["exit_value"], touches["command"]) == (3, 127, "python3 -S touch.py")
    kept = [json.loads(path.read_text()) for path in (served.scratch / "out").rglob("usage")]
    assert sorted(kept, key=lambda row: int(row["seq"])) == sorted(rows, key=lambda row: int(row["seq"]))
    shown = served.nodectl("show", "--json", f"{served.last_job()}.0").stdout
    slots = json.loads(shown)["tasks"]
    for name, lost in SUMS.items():
        assert sum(slot[name] for slot in slots) == pytest.approx(sum(row[name] for row in rows), abs=lost), name
    assert max(slot["max_rss_kib"] for slot in slots) == pytest.approx(touches["memory_kib"], rel=0.2)
    assert "memory_kib" not in shown
    assert len(shown) < 16_000


def test_a_command_is_told_once_whatever_ended_the_first_run(served: Node) -> None:
    """The client is killed between two commands, and its last line torn."""
    place = served.scratch / "torn"
    place.mkdir()
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    os.mkfifo(place / "go", 0o666)
    words = ("bulk", "-n1", "--usage-log", "used", "--joblog", "log")
    commands = ("[ {} = 3 ] && cat go; true", ":::", *"12345")
    first = subprocess.Popen(
        served.command(*words, *commands), cwd=place, env=served.environment(), user=NOBODY.pw_uid, group=NOBODY.pw_gid,
        extra_groups=[], stdin=subprocess.DEVNULL,
    )  # fmt: skip
    log = place / "log"
    wait_until(lambda: log.exists() and log.read_text().count("\n") == 3, "two have ended, the third waits")
    first.send_signal(signal.SIGKILL)
    first.wait(PATIENCE)
    served.assert_clean()
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))
    path = place / "used"
    path.write_bytes(path.read_bytes()[:-9] + bytes(300))  # the second line of both
    (place / "go").unlink()
    (place / "go").touch()
    again = served.nodectl(*words, "--resume", *commands, user=NOBODY, cwd=str(place))
    assert again.returncode == 0, again.stderr
    assert sorted(row["seq"] for row in used(path)) == [1, 2, 3, 4, 5]
