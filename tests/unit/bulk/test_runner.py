"""The commands of a bulk step as values: what is one, how many may wait, what is kept of those that have ended."""

from __future__ import annotations

import errno
import time
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.bulk.runner import work
from nodectl.bulk.runner.lanes import Lanes
from nodectl.bulk.runner.tally import Tally
from nodectl.bulk.runner.window import MOST_BYTES, Window, WindowBroken
from nodectl.launch.stepd import preload
from nodectl.launch.stepd.bulk_commands import BulkCommand, commands_in
from nodectl.launch.stepd.record import ROOM_OF_COMMANDS
from nodectl.model.wire import lean_json


def command(seq: int, *words: str) -> BulkCommand:
    return BulkCommand({"seq": seq, "argv": ["true", *words]})


def test_streams_and_the_slots_number() -> None:
    made = BulkCommand({"seq": 3, "argv": ["a%b", "%%"], "stdout": "/out/%", "slot_mark": "%"})
    assert (made.stdin, made.stdout, made.stderr) == ("none", "/out/%", "-")
    assert made.words(4) == ["a5b", "55"]
    assert made.in_slot(made.stdout, 0) == "/out/1"
    assert command(1, "%").words(9) == ["true", "%"]


def test_a_window_is_in_the_order_of_coming_and_has_room_again_after_ends() -> None:
    window = Window(2)
    window.take(command(seq) for seq in range(window.most))
    with pytest.raises(WindowBroken, match="130 commands ahead"):
        window.take([command(1000)])
    first, second = window.next(), window.next()
    assert (first.seq, second.seq) == (0, 1)
    window.put_back(second)
    assert window.next().seq == 1
    with pytest.raises(WindowBroken, match="command 1 twice"):
        window.take([command(1)])
    window.ended(1)
    window.take([command(1)])
    assert [window.next().seq, *window.withdraw()] == [2, *range(3, window.most), 1]
    window.ended(0)
    window.ended(2)
    window.take(command(seq) for seq in range(window.most))


def test_a_window_counts_bytes_and_takes_one_that_is_longer_alone() -> None:
    window = Window(1)
    window.take([command(1, "x" * 2 * MOST_BYTES)])
    with pytest.raises(WindowBroken, match="bytes of commands ahead"):
        window.take([command(2)])
    window.next()
    window.ended(1)
    window.take([command(2)])


def test_a_tally_has_the_slowest_and_the_first_failures_and_no_more() -> None:
    tally = Tally()
    longest = ["\U0001f600" * 1000] * 3
    for seq in range(1000):
        tally.begun += 1
        told = {"seq": seq, "status": (seq % 2) << 8, "seconds": float(seq * 7 % 1000)}
        tally.ended({**told, "failed": longest[0]} if seq % 2 else told, longest)
    found = tally.figures()
    assert len(lean_json.dumps(found)) < ROOM_OF_COMMANDS
    assert (found["commands"], found["succeeded"], found["failed"], found["not_executed"]) == (1000, 500, 500, 500)
    failures, slowest = found["failures"], found["slowest"]
    assert [row["seq"] for row in failures] == list(range(1, 20, 2))  # type: ignore[attr-defined]  # a list of objects
    assert [row["seconds"] for row in slowest] == [999.0, 998.0, 997.0, 996.0, 995.0]  # type: ignore[attr-defined]
    assert tally.reason() == "500 of 1000 commands failed"


def test_several_commands_in_one_message() -> None:
    assert [one.seq for one in commands_in([{"seq": 1, "argv": ["a"]}, {"seq": 2, "argv": ["b"]}])] == [1, 2]


class Cgroup:
    """One that goes unless its name is among the `held`."""

    def __init__(self, name: str, held: set[str]) -> None:
        self.name = name
        self.held = held

    def child(self, name: str) -> Cgroup:
        return Cgroup(name, self.held)

    def remove(self) -> bool:
        return self.name not in self.held

    def kill_all(self) -> None:
        """What holds it takes its time."""


def test_a_slot_whose_cgroup_was_killed_and_stays_serves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would kill the next command as it is born."""
    monkeypatch.setattr("nodectl.launch.stepd.accounting.controllers_below", lambda _: ())
    held = {"task_1"}
    step = SimpleNamespace(limits={}, unkillable_timeout=60.0)
    run: Any = SimpleNamespace(group=Cgroup("", held), step=step, tasks=[SimpleNamespace(local_id=n) for n in range(3)])
    reaper: Any = SimpleNamespace(termination=SimpleNamespace(suspension=SimpleNamespace(suspended=True)))
    bulk = work.Bulk(run, reaper)
    bulk.killed()
    assert bulk.free == [2, 0]
    bulk.act()
    assert bulk.free == [2, 0]
    held.clear()
    bulk.act()
    assert bulk.free == [2, 0, 1]


def test_a_lane_goes_with_the_cgroup_of_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodectl.launch.stepd.accounting.controllers_below", lambda _: ())
    step = SimpleNamespace(limits={}, unkillable_timeout=60.0)
    tasks = [SimpleNamespace(local_id=n) for n in range(3)]
    run: Any = SimpleNamespace(group=Cgroup("", set()), step=step, tasks=tasks)
    bulk = work.Bulk(run, Any)  # type: ignore[arg-type]  # nothing of it is reached
    bulk.lanes.update({slot: f"lane {slot}" for slot in range(3)})
    well: Any = SimpleNamespace(local_id=0, kills=0, status=0)
    killed: Any = SimpleNamespace(local_id=1, kills=0, status=9)
    group: Any = SimpleNamespace(populated=lambda: False, remove=lambda: 1 not in bulk.lanes)
    assert bulk._is_free(well, group)
    assert bulk.lanes.keys() == {0, 1, 2}
    assert bulk._is_free(killed, group)
    assert bulk.lanes.keys() == {0, 2}
    bulk.killed()
    assert not bulk.lanes


def test_the_service_is_told_the_counts_seldom_and_the_last_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("nodectl.bulk.runner.work.time.monotonic", lambda: clock[0])
    told: list[dict[str, Any]] = []
    links = SimpleNamespace(tell_daemon=told.append, tell_launcher=lambda _: None)
    step = SimpleNamespace(limits={}, unkillable_timeout=60.0)
    run: Any = SimpleNamespace(group=None, step=step, tasks=[SimpleNamespace(local_id=0)], links=links, state="RUNNING")
    suspension = SimpleNamespace(suspended=True)
    reaper: Any = SimpleNamespace(termination=SimpleNamespace(suspension=suspension), patience=lambda: None)
    bulk = work.Bulk(run, reaper)
    bulk.take([{"seq": seq, "argv": ["true"]} for seq in range(3)], {"done": 5, "failed": 1, "left": 2})
    bulk.tell()
    assert told == [], "a short bulk costs the service nothing"
    assert bulk.patience() == 0.5
    clock[0] += 0.5
    bulk.tell()
    assert told.pop() == {"event": "commands", "counts": {"done": 5, "failed": 1, "total": 10}}
    for seq, status in enumerate((0, 1 << 8, 0)):
        bulk.tally.ended({"seq": seq, "status": status, "seconds": 0.1}, ["true"])
        bulk.tell()
    assert told == []
    assert bulk.patience() == 2.0
    clock[0] += 2.0
    bulk.tell()
    assert {name: told[0]["counts"][name] for name in ("done", "failed")} == {"done": 8, "failed": 2}
    clock[0] += 10.0
    bulk.tell()
    assert (len(told), bulk.patience()) == (1, None)
    bulk.tell_again()
    bulk.tell()
    assert told[1] == told[0]


def test_command_that_could_not_be_started_leaves_no_descriptor_of_preload() -> None:
    """It is tried again and again where processes are limited, and the runner has few descriptors."""
    step = SimpleNamespace(limits={}, unkillable_timeout=60.0)
    run: Any = SimpleNamespace(
        group=None, step=step, tasks=[SimpleNamespace(local_id=0)], state="RUNNING", private=[],
        clock=SimpleNamespace(now=time.time),
    )  # fmt: skip
    run.bulk = bulk = work.Bulk(run, Any)  # type: ignore[arg-type]  # nothing of the reaper is reached
    run.preload = interpreter = preload.Preload(run, Any)  # type: ignore[arg-type]
    interpreter._words = interpreter._socket = 0
    bulk._left[1] = (None, 0.0, "another command")
    bulk.take([{"seq": 0, "argv": ["true"]}])
    tried: list[Any] = []

    def start(task: Any) -> None:
        interpreter.introduce(task)
        tried.append(task)
        interpreter.begun(task)
        raise BlockingIOError(errno.EAGAIN, "")

    starter: Any = SimpleNamespace(
        make=lambda _, command: SimpleNamespace(local_id=0, command=command, group=None, hand_over=None), start=start
    )
    bulk.begin(starter)
    assert tried[0].hand_over.verdict == -1, "it is closed"
    assert (run.private, interpreter._waiting) == ([], {})
    assert len(bulk.window.waiting) == 1, "the command is tried again"


@pytest.mark.parametrize(("most", "tries"), [(127 + 200, False), (128 + 200, True)])
def test_lanes_leave_descriptors_for_all_else(monkeypatch: pytest.MonkeyPatch, most: int, *, tries: bool) -> None:
    monkeypatch.setattr("os.sysconf", lambda _: most)
    asked = []
    node: Any = SimpleNamespace(has=lambda _: False, container=SimpleNamespace(hooks={}))
    step = SimpleNamespace(task_epilogs=[], forked_into_cgroup=True, preload=[])
    run: Any = SimpleNamespace(node=node, step=step, may_be_changed=False, group=None, tasks=range(100))
    bulk: Any = SimpleNamespace(tally=SimpleNamespace(begun=1000), may_go_on=lambda: asked.append(1))
    assert not Lanes(bulk, Any, run, Any).serve()  # type: ignore[arg-type]  # nothing of them is reached
    assert bool(asked) == tries


def test_lanes_wait_while_something_is_to_be_sent() -> None:
    """C sees no room to write: what a client that reads late is to get would wait for the next end of a command."""
    unsent = [True]
    asked = []
    node: Any = SimpleNamespace(has=lambda _: False, container=SimpleNamespace(hooks={}))
    step = SimpleNamespace(task_epilogs=[], forked_into_cgroup=True, preload=[])
    run: Any = SimpleNamespace(
        node=node, step=step, may_be_changed=False, group=None, tasks=[], recorder=SimpleNamespace(fd=5),
        links=SimpleNamespace(has_unsent=lambda: unsent[0]), descriptors=lambda: asked.append(1),
    )  # fmt: skip
    bulk: Any = SimpleNamespace(
        tally=SimpleNamespace(begun=1000), may_go_on=lambda: True, keeps_cgroups=True, window=Window(1), lanes={}
    )
    reaper: Any = SimpleNamespace(watched=list)
    lanes = Lanes(bulk, SimpleNamespace(forks=False), run, reaper)  # type: ignore[arg-type]  # what is reached of it
    assert (lanes.serve(), asked) == (False, [])
    unsent[0] = False
    assert (lanes.serve(), asked) == (False, [1])
