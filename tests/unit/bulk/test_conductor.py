"""The commands' way through the step: how many it has at a time, in which order they are printed, what is tried again.
The step is another process that speaks as the stepd does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl.bulk import conductor as conductor_module
from nodectl.bulk import idleness, joblog, outputs, sources
from nodectl.bulk.commands import Command, Commands, line_maker
from nodectl.bulk.conductor import Conductor
from nodectl.bulk.halt import halt
from nodectl.bulk.progress import Progress
from nodectl.bulk.rules import Rules
from nodectl.bulk.template import Template
from nodectl.client.command import Failed
from nodectl.client.session import Events
from nodectl.client.signals import Signals
from nodectl.model.wire import framing

PATIENCE = 20  # seconds
SLOTS, WINDOW, BYTES = 2, 66, 1 << 20
USED = {"user": 0.25, "system": 0.125, "memory": 4096, "read": 10, "written": 20}
Answer = Callable[[dict[str, Any]], Mapping[str, Any] | None]


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    """A conductor takes the signals of its process."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


class Step:
    """Takes commands, a few at a time, and tells their ends as `answer` has them: None for one that never ends."""

    def __init__(self, orders: int, events: int, answer: Answer) -> None:
        self.orders = orders
        self.events = events
        self.answer = answer
        self.waiting: list[dict[str, Any]] = []
        self.most = 0
        self.others: list[dict[str, int]] = []

    def tell(self, **event: object) -> None:
        data = framing.encode({"parameters": {"event": event}, "continues": True})
        while data:
            data = data[os.write(self.events, data) :]

    def serve(self) -> None:
        self.tell(event="start", pids=[], slots=SLOTS, window=WINDOW, window_bytes=BYTES)
        inbox, closed, busy = framing.Inbox(2 << 20), False, False
        while not closed or self.waiting:
            if select.select([self.orders], [], [], 0 if busy else 0.001 if self.waiting else None)[0]:
                data = os.read(self.orders, 65536)
                if not data:
                    return
                inbox.feed(data)
            while (message := inbox.next()) is not None:
                closed = self.take(message) or closed
            self.most = max(self.most, len(self.waiting))
            busy = self.end_one()
        self.tell(event="end", record={"state": "COMPLETED", "reason": "", "most": self.most, "others": self.others})

    def take(self, message: Mapping[str, Any]) -> bool:
        method = message["method"].rpartition(".")[2]
        if method == "Run":
            self.waiting += message["parameters"]["commands"]
            self.others.append(message["parameters"]["others"])
        elif method in ("Withdraw", "End"):
            self.tell(event="tasks", withdrawn=[command["seq"] for command in self.waiting])
            self.waiting = []
        return bool(method == "NoMore")

    def end_one(self) -> bool:
        for place, command in enumerate(self.waiting[:SLOTS]):
            end = self.answer(command)
            if end is not None:
                del self.waiting[place]
                with open(command["stdout"], "w", encoding="utf-8") as file:
                    file.write(f"output {command['seq']}\n")
                known = {"seq": command["seq"], "slot": place, "started": 1.0, "seconds": 0.5, "status": 0, **USED}
                self.tell(event="tasks", ended=[known | dict(end)])
                return True
        return False


@contextlib.contextmanager
def playing(answer: Answer) -> Iterator[Events]:
    """A step in a process of its own."""
    (theirs, commands), (events, told) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(commands)
            os.close(events)
            Step(theirs, told, answer).serve()
        os._exit(0)
    os.close(theirs)
    os.close(told)
    ours = Events(events, commands)
    try:
        yield ours
    finally:
        ours.close()
        os.waitpid(child, 0)


def conducted(
    count: int, answer: Answer, tmp_path: Path, rules: Rules | None = None, log: joblog.JobLog | None = None,
    script: str = "do {}",
) -> Conductor:  # fmt: skip
    values = tmp_path / "values"
    values.write_text("".join(f"{number}\n" for number in range(1, count + 1)))
    given = sources.Sources([sources.Given(file=str(values))], sources.Reading())
    line, _ = line_maker([script], lambda text, quoting: Template(text, quoting=quoting), quoted=False)
    shown = outputs.Private(outputs.Style(), [str(tmp_path)])
    with playing(answer) as events:
        made = Conductor(
            Commands(given, line, None, count), rules or Rules(), shown, log,
            Progress(None, None), count,
        )  # fmt: skip
        try:
            made.run(events, Signals(), str.split)
        finally:
            shown.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("nodectl")) == []
    return made


def well(_command: dict[str, Any]) -> Mapping[str, Any]:
    return {}


def test_no_more_are_in_the_step_than_it_takes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = conducted(1000, well, tmp_path)
    assert (made.tally.succeeded, made.tally.failed, made.unfinished) == (1000, 0, False)
    assert made.record is not None
    assert SLOTS < made.record["most"] <= WINDOW
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(f"output {number}" for number in range(1, 1001))


def test_the_step_is_told_of_the_commands_that_it_does_not_have(tmp_path: Path) -> None:
    """A try that was not the last is no end of its command."""
    tries: list[int] = []

    def fails_once(command: dict[str, Any]) -> Mapping[str, Any]:
        tries.append(command["seq"])
        return {"status": 1 << 8 if tries.count(2) == 1 and command["seq"] == 2 else 0}

    made = conducted(1000, fails_once, tmp_path, Rules(retries=2))
    assert made.record is not None
    others = made.record["others"]
    assert others[0] == {"done": 0, "failed": 0, "left": 1000 - WINDOW}
    assert others[-1] == {"done": -1, "failed": -1, "left": 0}


def test_a_step_without_commands_is_given_back_and_the_next_line_has_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(idleness, "_MOST", 0.0)
    reader, writer = os.pipe()
    given = sources.Sources([sources.Given(file=f"/proc/self/fd/{reader}")], sources.Reading())
    os.close(reader)
    line, _ = line_maker(["do {}"], lambda text, quoting: Template(text, quoting=quoting), quoted=False)
    shown = outputs.Private(outputs.Style(), [str(tmp_path)])
    signals = Signals()
    made = Conductor(
        Commands(given, line, None), Rules(in_order=True), shown, None, Progress(None, None), 0, gives_back=True
    )
    for number in (1, 2):
        os.write(writer, b"a line\n")
        assert made.wait_for_command(signals)
        with playing(well) as events:
            made.run(events, signals, str.split)
        assert made.gave_back
        assert made.tally.succeeded == number
        assert made.record is not None
        assert made.record["others"] == [{"done": number - 1, "failed": 0}]
    os.close(writer)
    assert not made.wait_for_command(signals)
    shown.close()
    assert not made.unfinished
    assert capfd.readouterr().out == "output 1\noutput 2\n"


def test_a_signal_ends_the_wait_for_a_command(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    given = sources.Sources([sources.Given(file=f"/proc/self/fd/{reader}")], sources.Reading())
    line, _ = line_maker(["do {}"], lambda text, quoting: Template(text, quoting=quoting), quoted=False)
    shown = outputs.Private(outputs.Style(), [str(tmp_path)])
    made = Conductor(Commands(given, line, None), Rules(), shown, None, Progress(None, None), 0, gives_back=True)
    signals = Signals()
    os.kill(os.getpid(), signal.SIGTERM)
    assert not made.wait_for_command(signals)
    assert made.signal == signal.SIGTERM
    signals.take()
    signals.let_go()
    shown.close()
    os.close(reader)
    os.close(writer)


def test_long_commands_wait_until_the_step_has_room(tmp_path: Path) -> None:
    made = conducted(40, well, tmp_path, script="x" * 200_000 + " {}")
    assert made.tally.succeeded == 40
    assert made.record is not None
    assert made.record["most"] <= BYTES // 200_000


@pytest.mark.parametrize(("script", "said"), [("x" * 1_100_000, "longer than a step takes"), ("a\0b", "a NUL byte")])
def test_what_no_step_takes_is_refused_before_it_is_sent(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(Failed, match=said):
        conducted(3, well, tmp_path, script=script)


def test_a_step_that_cannot_be_told_that_no_more_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Events.send

    def fail_last(self: Events, data: bytes) -> None:
        if b"NoMore" in data:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        send(self, data)

    monkeypatch.setattr(Events, "send", fail_last)
    with pytest.raises(Failed, match="send commands to the step: Cannot allocate memory") as failed:
        conducted(3, well, tmp_path)
    assert failed.value.status == 255


def test_outputs_come_in_the_order_of_the_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def last_first(command: dict[str, Any]) -> Mapping[str, Any] | None:
        return {} if command["seq"] % 7 else ({} if os.urandom(1)[0] < 64 else None)

    conducted(200, last_first, tmp_path, Rules(in_order=True))
    assert capfd.readouterr().out.splitlines() == [f"output {number}" for number in range(1, 201)]


def test_who_waits_for_a_first_one_that_fails_is_not_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """All that may be held is held when the first one has to be tried again."""
    monkeypatch.setattr(conductor_module, "_MOST_HELD", 4)
    tries: list[int] = []

    def first_fails(command: dict[str, Any]) -> Mapping[str, Any]:
        if command["seq"] > 1:
            return {}
        tries.append(1)
        return {"status": 256 if len(tries) < 3 else 0}

    made = conducted(50, first_fails, tmp_path, Rules(in_order=True, retries=5))
    assert (made.tally.succeeded, made.tally.failed) == (50, 0)
    assert capfd.readouterr().out.splitlines() == [f"output {number}" for number in range(1, 51)]


def test_what_was_cut_short_is_not_known_to_have_ended(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = joblog.JobLog(str(path), keep=False)

    def some_are(command: dict[str, Any]) -> Mapping[str, Any]:
        return {"status": 15, "cut_short": True} if command["seq"] > 5 else {}

    made = conducted(8, some_are, tmp_path, log=log)
    log.close()
    assert made.tally.done == 5
    known = joblog.read(str(path))
    assert [number for number in range(10) if known.has_ended(number)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("end", [{"status": 15, "cut_short": True}, None])
@pytest.mark.parametrize("retries", [1, 2])
def test_what_was_cut_short_or_withdrawn_leaves_it_unfinished(
    tmp_path: Path, end: Mapping[str, Any] | None, retries: int
) -> None:
    def withdraws(step: Step, message: Mapping[str, Any]) -> bool:
        if end is None and message["method"].endswith(".Run"):
            step.tell(event="tasks", withdrawn=[message["parameters"]["commands"].pop()["seq"]])
        return took(step, message)

    took = Step.take
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "take", withdraws)
        made = conducted(1, lambda _: end, tmp_path, Rules(retries=retries))
    assert (made.tally.done, made.unfinished) == (0, True)


def test_the_log_knows_nothing_that_has_not_been_printed(tmp_path: Path) -> None:
    """With -k what others have written is held until the first one has ended."""
    path = tmp_path / "log"
    log = joblog.JobLog(str(path), keep=False)

    def first_dies(command: dict[str, Any]) -> Mapping[str, Any] | None:
        if command["seq"] == 9:
            os._exit(1)
        return {} if command["seq"] != 3 else None

    printed: list[int] = []
    with pytest.MonkeyPatch.context() as patch:

        def prints(_self: object, command: Command) -> None:
            printed.append(command.number)
            if len(printed) == 5:
                raise BrokenPipeError

        patch.setattr(outputs.Private, "show", prints)
        with pytest.raises(BrokenPipeError):
            conducted(9, first_dies, tmp_path, Rules(in_order=True), log=log)
    log.close()
    known = joblog.read(str(path))
    assert printed == [1, 2, 4, 5, 6]
    assert [number for number in range(10) if known.has_ended(number)] == [1, 2, 4, 5]


def test_a_value_that_is_a_terminals_command_is_shown_as_letters(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "\x1b]0;pwned\x07 {}" + "x" * 1000
    conducted(2, lambda _: {"status": 15, "timed_out": True}, tmp_path, Rules(halt=halt("soon,fail=2")), script=script)
    said = capfd.readouterr().err
    assert "timed out: \\x1b]0;pwned\\x07 " in said
    assert "the last: \\x1b]0;pwned\\x07 " in said
    assert said.replace("\n", "").isprintable()
    assert all(len(line) < 300 for line in said.splitlines())


def test_no_command_begins_behind_the_one_at_which_it_halts(tmp_path: Path) -> None:
    made = conducted(500, lambda _: {"status": 256}, tmp_path, Rules(halt=halt("soon,fail=3")))
    assert made.halted
    assert 3 <= made.tally.failed <= 3 + SLOTS
    assert made.tally.done == made.tally.failed


def test_a_step_that_goes_without_a_word_leaves_the_rest_unfinished(tmp_path: Path) -> None:
    def dies(command: dict[str, Any]) -> Mapping[str, Any]:
        if command["seq"] == 20:
            os._exit(1)
        return {}

    made = conducted(100, dies, tmp_path)
    assert made.record is None
    assert made.unfinished
    assert made.tally.succeeded == 19


def test_commands_do_not_wait_for_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor_module, "_SETTLED", 0.0)
    log, shown, show = joblog.JobLog(str(tmp_path / "log"), keep=False), threading.Event(), outputs.Private.show
    waited = []

    def slow() -> None:
        waited.append(shown.wait(PATIENCE))

    def shows(made: outputs.Private, command: Command) -> None:
        if command.number == 300:
            shown.set()
        show(made, command)

    log.before = (slow,)
    monkeypatch.setattr(outputs.Private, "show", shows)
    conducted(300, well, tmp_path, log=log)
    log.close()
    assert waited
    assert all(waited), "the loop waits for the disk"
    known = joblog.read(str(tmp_path / "log"))
    assert all(known.has_ended(number) for number in range(1, 301))


def test_a_log_that_cannot_be_written_ends_it(tmp_path: Path) -> None:
    log = joblog.JobLog(str(tmp_path / "log"), keep=False)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._fd)
    os.close(full)
    with pytest.raises(Failed, match="No space left"):
        conducted(5, well, tmp_path, log=log)


def test_memory_does_not_grow_with_the_number_of_commands(tmp_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    conducted(2_000, well, tmp_path)
    before = resident()
    conducted(12_000, well, tmp_path)
    assert resident() - before < 2 << 20
