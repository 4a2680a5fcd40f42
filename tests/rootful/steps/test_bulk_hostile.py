"""What comes from the client of a bulk step is believed in nothing: numbers, sizes, and whether it reads at all."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.model.wire import framing
from rootful.bulk_client import STEP, BulkClient, shell
from rootful.node import NOBODY, Node, wait_until
from rootful.raw import call, exchange, launch

LONG = ["sh", "-c", "sleep 1000"]
TRUE: dict[str, object] = {"argv": ["true"]}
_AHEAD = 128


def resident(pid: int) -> int:
    """KiB; 0 of a process that has ended meanwhile."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int((status.partition("VmRSS:")[2].split() or ["0"])[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"seq": 1},
        {"seq": -1, **TRUE},
        {"seq": 2**32, **TRUE},
        {"seq": True, **TRUE},
        {"seq": "1", **TRUE},
        {"seq": 1.0, **TRUE},
        {"seq": 1, "argv": []},
        {"seq": 1, "argv": [""]},
        {"seq": 1, "argv": ["a\0b"]},
        {"seq": 1, "argv": ["\ud800"]},
        {"seq": 1, "argv": [7]},
        {"seq": 1, "argv": "true"},
        {"seq": 1, **TRUE, "stdout": "relative"},
        {"seq": 1, **TRUE, "stdout": ""},
        {"seq": 1, **TRUE, "stderr": 2},
        {"seq": 1, **TRUE, "stdin": "/" + "x" * 5000},
        {"seq": 1, **TRUE, "timeout": 0},
        {"seq": 1, **TRUE, "timeout": -1.0},
        {"seq": 1, **TRUE, "timeout": "1"},
        {"seq": 1, **TRUE, "timeout": 1e300},
        {"seq": 1, **TRUE, "slot_mark": 1},
        {"seq": 1, **TRUE, "slot_mark": "x" * 65},
        {"seq": 1, **TRUE, "uid": 0},
        "true",
        None,
    ],
)
def test_a_client_that_sends_no_command_has_its_step_ended(served: Node, wrong: object) -> None:
    client = BulkClient(served, 1).ready()
    client.call("Run", commands=[wrong])
    client.until(lambda: client.record, "the step ends")
    assert client.record is not None
    assert (client.record["state"], client.record["bulk"]["commands"]) == ("CANCELLED", 0)


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        ([{"seq": seq, "argv": ["sleep", "1000"]} for seq in range(_AHEAD + 3)], "more than 130 commands ahead"),
        ([{"seq": 5, **TRUE}, {"seq": 5, **TRUE}], "sent command 5 twice"),
        ([{"seq": seq, "argv": [*LONG, "x" * 130_000]} for seq in range(9)], "more than 1048576 bytes"),
        ([{"seq": seq, "argv": LONG + ["x"] * 60_000} for seq in range(2)], "more than 1048576 bytes"),
    ],
    ids=["too many", "twice", "too long", "too many words"],
)
def test_a_client_that_sends_more_than_the_window_has_its_step_ended(
    served: Node, commands: list[dict[str, object]], why: str
) -> None:
    client = BulkClient(served, 2).ready()
    for first in range(0, len(commands), 7):
        client.run(*commands[first : first + 7])
    record = client.end()
    assert record["state"] == "CANCELLED"
    assert why in record["reason"]


def test_the_longest_command_that_execve_takes_is_executed(served: Node) -> None:
    out = served.scratch / "longest"
    word = "\udc80" * (128 * 1024 - 1)
    program = f'printf %s "$1" | wc -c > {out}'
    record = BulkClient(served, 1).all(
        [
            {"seq": 1, "argv": ["sh", "-c", program, "sh", word]},
            {"seq": 2, "argv": ["true", *["x" * 16] * 30_000]},
        ],
        ahead=1,
    )
    assert record["state"] == "COMPLETED"
    assert out.read_text().strip() == str(len(word))


def test_a_message_that_is_too_long_and_one_that_is_none_end_the_step(served: Node) -> None:
    for data in (b"x" * (3 << 20), b"nonsense\0", b"\0", b"[" * 60_000 + b"\0"):
        client = BulkClient(served, 1).ready()
        with contextlib.suppress(BrokenPipeError), open(client.orders, "wb", closefd=False) as orders:
            orders.write(data)
        while client.read():
            pass
        client.close()
        served.assert_clean()
        assert served.record(client.job)["state"] == "CANCELLED"


def test_commands_before_the_step_takes_any_after_the_last_one_and_for_an_ordinary_step_are_refused(
    served: Node,
) -> None:
    client = BulkClient(served, 1).ready()
    client.run(shell(1, "sleep 1000"))
    client.until(lambda: client.begun, "it runs")
    client.call("NoMore")
    client.run(shell(2, "true"))
    record = client.end()
    assert (record["state"], sorted(client.ended)) == ("CANCELLED", [1])
    ordinary = BulkClient(served, 1, bulk=False, argv=["sleep", "1000"])
    for method in ("NoMore", "Withdraw"):
        os.write(ordinary.orders, framing.encode({"method": f"{STEP}.{method}"}))
    os.write(
        ordinary.orders, framing.encode({"method": f"{STEP}.Run", "parameters": {"commands": [{"seq": 1, **TRUE}]}})
    )
    ordinary.until(lambda: len(ordinary.refused) == 3, "all are refused")
    assert all("takes no commands" in str(answer) for answer in ordinary.refused)
    ordinary.call("End")
    ordinary.close()


def test_bulk_without_a_client_and_in_a_script_is_refused(served: Node) -> None:
    reply, _ = exchange(served, launch(bulk=True))
    assert "three descriptors" in str(reply)
    request = {"argv": ["true"], "environment": {}, "cwd": "/", "ntasks": 1, "bulk": True}
    reply, _ = exchange(
        served, call("org.nodectl.Submit", parameters={"request": request, "job": {}, "script": "#!/bin/sh\n"})
    )
    assert "a script waits for no client" in str(reply)


def feed(client: BulkClient, most: int) -> Iterator[int]:
    """Sends commands without reading a word, as fast as the step takes them; how many have been sent."""
    sent = 0
    while sent < most:
        found = client.shown()["bulk"]
        room = min(_AHEAD + 1 - found["running"] - found["waiting"], most - sent)
        if room:
            client.run(*({"seq": sent + number, "argv": ["/no/such"], "stderr": "none"} for number in range(room)))
            sent += room
        yield sent


def test_nothing_is_begun_while_the_client_does_not_read(served: Node) -> None:
    """What has ended would be kept for it without end."""
    client = BulkClient(served, 1).ready()
    pid = client.stepd()
    stands, before = 0, -1
    for _ in feed(client, 100_000):
        found = client.shown()["bulk"]
        stands = stands + 1 if (found["commands"], found["running"]) == (before, 0) and found["waiting"] else 0
        before = found["commands"]
        if stands > 20:
            break
    assert before < 5000
    assert resident(pid) < 40_000
    client.call("NoMore")
    record = client.end()
    assert record["bulk"]["not_executed"] == record["bulk"]["commands"] == len(client.numbers)
    assert sorted(client.numbers) == list(range(len(client.numbers)))


def test_a_client_that_neither_reads_nor_counts_harms_nobody_but_itself(served: Node) -> None:
    client = BulkClient(served, 1).ready()
    pid = client.stepd()
    os.set_blocking(client.orders, False)
    message = framing.encode({"method": f"{STEP}.Status", "parameters": {}})
    with contextlib.suppress(BrokenPipeError):
        while True:
            try:
                os.write(client.orders, message * 100)
            except BlockingIOError:
                assert resident(pid) < 60_000
    served.assert_clean()
    assert served.record(client.job)["state"] == "CANCELLED"
    assert served.run("echo", "served", user=NOBODY).stdout == "served\n"


def test_numbers_may_come_again_after_their_ends(served: Node) -> None:
    client = BulkClient(served, 2).ready()
    for attempt in range(1, 6):
        client.run(shell(7, "exit 1"))
        client.until(lambda attempt=attempt: len(client.numbers) == attempt, "it has ended")  # type: ignore[misc]
    client.call("NoMore")
    assert client.end()["bulk"]["failed"] == 5


def test_paths_are_opened_as_the_user_and_a_fifo_holds_up_its_own_slot_alone(served: Node) -> None:
    secret = served.dir / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    fifo = served.scratch / "fifo"
    os.mkfifo(fifo)
    os.chown(fifo, NOBODY.pw_uid, NOBODY.pw_gid)
    client = BulkClient(served, 2).ready()
    client.run({"seq": 1, "argv": ["true"], "stdin": str(fifo)})
    client.until(lambda: 1 in client.begun, "it has begun")
    client.run({"seq": 2, "argv": ["true"], "stdin": str(secret)}, {"seq": 3, "argv": ["true"], "stdout": str(secret)})
    client.until(lambda: len(client.ended) == 2, "the others have ended")
    assert all("Permission denied" in client.ended[seq]["failed"] for seq in (2, 3))
    assert secret.read_text() == "root's"
    client.call("End")
    assert client.end()["state"] == "CANCELLED"


def test_what_is_kept_of_commands_does_not_grow_with_them(served: Node) -> None:
    client = BulkClient(served, 2).ready()
    long = "\U0001f600" * 30_000
    commands = ({"seq": seq, "argv": [f"/no/{long}", long], "stdout": "none"} for seq in range(60))
    record = client.all(commands, ahead=4)
    assert len(json.dumps(record["bulk"])) < 64 << 10
    assert len(record["bulk"]["failures"]) == 10
    shown = served.nodectl("show", str(client.job))
    assert "60 failed, 60 not executed" in shown.stdout
    assert len(shown.stdout) < 20_000
    rows = served.trace(client.job)
    assert sum(row["call"] == "fork" for row in rows) == 32


def test_a_command_that_is_stopped_or_killed_before_its_program_is_its_own_matter(served: Node) -> None:
    """A user may signal a task as soon as it is theirs."""
    fifo = served.scratch / "before"
    os.mkfifo(fifo)
    os.chown(fifo, NOBODY.pw_uid, NOBODY.pw_gid)
    client = BulkClient(served, 1).ready()
    client.run({"seq": 1, "argv": ["true"], "stdin": str(fifo)}, shell(2, "true"))
    client.until(lambda: 1 in client.begun, "it has begun")
    pid = client.begun[1][1]
    wait_until(
        lambda: os.stat(f"/proc/{pid}").st_uid == NOBODY.pw_uid or _uid(pid) == NOBODY.pw_uid, "it is the user's"
    )
    os.kill(pid, signal.SIGKILL)
    client.call("NoMore")
    record = client.end()
    assert (client.ended[1]["status"], client.ended[2]["status"]) == (signal.SIGKILL, 0)
    assert record["bulk"]["failed"] == 1


def _uid(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text(encoding="utf-8").partition("Uid:")[2].split()[0])
