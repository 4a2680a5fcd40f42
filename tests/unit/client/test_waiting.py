"""A client whose job has to wait: what it says, how it gives the job up, and that it outlives the service."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.client import waiting
from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.session import Session
from nodectl.client.signals import FORWARDED
from nodectl.model.wire import framing
from nodectl.model.wire.names import NODE

PATIENCE = 60
GONE = "gone"  # the service ends instead of answering
INTERRUPT = "interrupt"  # the user types Ctrl-C instead
SILENT = "silent"  # the service does not answer for now
WAITS = {"state": "PENDING", "reason": "Resources", "words": "for 2 CPUs", "start": None}
RUNS = {"state": "RUNNING", "reason": "", "words": "", "start": 1.0, "seen": "9"}
Answer = Mapping[str, Any] | str


class Service:
    """Answers what it is asked with what stands in `script`, over as many connections as it takes."""

    def __init__(self, path: Path, script: Sequence[tuple[str, Answer]]) -> None:
        self.path = str(path)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self._script = list(script)
        self._listener = self._listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen()
        listener.settimeout(PATIENCE)
        return listener

    def _serve(self) -> None:
        held = []
        while self._script:
            sock = self._listener.accept()[0]
            held.append(sock)
            inbox = framing.Inbox(1 << 20)
            while self._script and (call := framing.receive(sock, inbox)) is not None:
                method = str(call["method"]).removeprefix(f"{NODE}.")
                parameters: Mapping[str, Any] = call["parameters"]  # type: ignore[assignment]
                self.asked.append((method, parameters))
                expected, answer = self._script.pop(0)
                assert method == expected
                if answer == GONE:  # and comes back a little later
                    self._listener.close()
                    os.unlink(self.path)
                    sock.close()
                    self._listener = self._listen()
                    break
                if answer == INTERRUPT:
                    os.kill(os.getpid(), signal.SIGINT)
                if isinstance(answer, str):
                    break
                framing.send(sock, answer if "error" in answer else {"parameters": answer})

    def end(self) -> list[tuple[str, Mapping[str, Any]]]:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._listener.close()
        return self.asked


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Path]:
    before = {number: signal.getsignal(number) for number in FORWARDED}
    yield tmp_path / "nodectl.sock"
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


def session(service: Service) -> Session:
    settings = GlobalOptions()
    settings.socket = service.path
    return Session(settings)


def test_one_line_says_that_a_job_waits_and_for_what(at: Path, capfd: pytest.CaptureFixture[str]) -> None:
    service = Service(at, [
        ("Allocate", {"job": 7}), ("Await", {**WAITS, "seen": "1"}), ("Await", {**WAITS, "words": "x", "seen": "2"}),
        ("Await", RUNS),
    ])  # fmt: skip
    assert waiting.job(session(service), {"argv": ["true"]}, {"qos": "high"}, None) == 7
    asked = service.end()
    assert [parameters.get("seen") for _, parameters in asked] == [None, "", "1", "2"]
    assert asked[0][1] == {"request": {"argv": ["true"]}, "job": {"qos": "high"}, "held_by": "run"}
    assert capfd.readouterr().err.splitlines() == [
        "nodectl: job 7 queued and waiting for resources: for 2 CPUs",
        "nodectl: job 7 has been allocated resources",
    ]


def test_a_job_that_begins_at_once_is_no_news(at: Path, capfd: pytest.CaptureFixture[str]) -> None:
    service = Service(at, [("Allocate", {"job": 7}), ("Await", RUNS)])
    assert waiting.job(session(service), {}, {}, None) == 7
    service.end()
    assert capfd.readouterr().err == ""


def test_a_service_that_starts_again_finds_its_client_waiting(at: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script: list[tuple[str, Answer]] = [("Allocate", {"job": 7}), ("Await", {**WAITS, "seen": "1"})]
    script += [("Await", GONE), ("Await", {**WAITS, "seen": "1"})] * 6  # more often than a launch is asked again
    service = Service(at, [*script, ("Await", RUNS)])
    assert waiting.job(session(service), {}, {}, None) == 7
    service.end()
    assert len(capfd.readouterr().err.splitlines()) == 2


def test_who_is_interrupted_gives_the_job_up(at: Path) -> None:
    service = Service(at, [
        ("Allocate", {"job": 7}), ("Await", {**WAITS, "seen": "1"}), ("Await", INTERRUPT),
        ("Cancel", {"cancelled": ["7"]}),
    ])  # fmt: skip
    with pytest.raises(Failed, match="job 7 was cancelled while it waited") as caught:
        waiting.job(session(service), {}, {}, None)
    assert caught.value.status == 130
    assert service.end()[-1] == ("Cancel", {"jobs": ["7"]})


def test_who_is_interrupted_once_more_gives_the_job_up_all_the_same(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(at, [("Allocate", {"job": 7}), ("Await", INTERRUPT), ("Cancel", INTERRUPT)])
    monkeypatch.setattr(waiting, "_GIVEN_UP", 1)  # the service never answers
    with pytest.raises(Failed, match="job 7 was cancelled while it waited") as caught:
        waiting.job(session(service), {}, {}, None)
    assert caught.value.status == 130
    assert service.end()[-1] == ("Cancel", {"jobs": ["7"]})


def test_who_has_no_time_does_not_wait(at: Path, capfd: pytest.CaptureFixture[str]) -> None:
    service = Service(
        at, [("Allocate", {"job": 7}), ("Await", {**WAITS, "seen": "1"}), ("Await", SILENT), ("Cancel", {})]
    )
    with pytest.raises(Failed, match="Unable to allocate resources: Requested nodes are busy"):
        waiting.job(session(service), {}, {}, 1)
    service.end()
    assert capfd.readouterr().err == ""


def test_a_job_that_others_cancel_ends_the_wait(at: Path) -> None:
    cancelled = {"state": "CANCELLED", "reason": "", "words": "by root", "start": None, "seen": "2"}
    service = Service(at, [("Allocate", {"job": 7}), ("Await", {**WAITS, "seen": "1"}), ("Await", cancelled)])
    with pytest.raises(Failed, match="job 7 ended before it began: CANCELLED: by root"):
        waiting.job(session(service), {}, {}, None)
    service.end()


def test_the_end_of_a_job_is_waited_for(at: Path) -> None:
    ended = {"state": "FAILED", "reason": "", "words": "", "start": 1.0, "seen": "3"}
    record = {"exit_code": 3, "array_job": 0, "state": "FAILED", "words": ""}
    service = Service(at, [("Await", RUNS), ("Await", ended), ("Queue", {"jobs": []}), ("ShowJob", {"record": record})])
    assert waiting.until_over(session(service), 7) == 3
    service.end()


def test_a_job_that_was_cancelled_while_it_waited_is_no_success(at: Path) -> None:
    ended = {"state": "CANCELLED", "reason": "", "words": "", "start": None, "seen": "3"}
    record = {"exit_code": 0, "array_job": 0, "state": "CANCELLED", "words": ""}
    service = Service(at, [("Await", ended), ("Queue", {"jobs": []}), ("ShowJob", {"record": record})])
    assert waiting.until_over(session(service), 7) == 1
    service.end()


def test_all_tasks_of_an_array_are_waited_for(at: Path) -> None:
    ended = {"state": "COMPLETED", "reason": "", "words": "", "start": 1.0, "seen": "3"}
    failed = [{"job_id": 7 + code, "job_state": "FAILED", "exit_code": code} for code in (1, 4)]
    service = Service(
        at,
        [
            ("Await", ended),
            ("Queue", {"jobs": [{"job": 9}]}),
            ("Await", ended),
            ("Queue", {"jobs": []}),
            ("ShowJob", {"record": {"exit_code": 1, "array_job": 7}}),
            ("Accounting", {"records": failed, "next": "there"}),
            ("Accounting", {"records": [{"job_id": 7, "job_state": "COMPLETED"}], "next": ""}),
        ],
    )
    assert waiting.until_over(session(service), 7) == 4
    assert [call[1].get("job") for call in service.end() if call[0] == "Await"] == [7, 9]


RESET = {"job_id": 8, "job_state": "NODE_FAIL", "exit_code": 0}


@pytest.mark.parametrize(
    ("pages", "status"),
    [
        ([[RESET, {"job_id": 8, "job_state": "COMPLETED", "restart_cnt": 1}]], 0),
        ([[RESET], [{"job_id": 8, "job_state": "COMPLETED", "restart_cnt": 1}]], 0),
        ([[RESET, {"job_id": 8, "job_state": "FAILED", "restart_cnt": 1, "exit_code": 3}]], 3),
        ([[{"job_id": 8, "job_state": "REQUEUED"}, {"job_id": 8, "job_state": "COMPLETED", "restart_cnt": 1}]], 0),
        ([[{"job_id": 7, "job_state": "COMPLETED"}, {"job_id": 8, "job_state": "CANCELLED"}]], 1),
    ],
)
def test_the_latest_run_of_each_task_is_the_status_of_an_array(
    at: Path, pages: list[list[Mapping[str, Any]]], status: int
) -> None:
    answers = [{"records": page, "next": "more" if number < len(pages) else ""} for number, page in enumerate(pages, 1)]
    service = Service(at, [("Accounting", answer) for answer in answers])
    found, words = waiting.end_of_array(session(service), 7)
    assert (found, bool(words)) == (status, status > 0)
    service.end()


def test_an_array_of_which_nothing_is_told_is_no_success(at: Path) -> None:
    service = Service(at, [("Accounting", {"records": [], "next": ""})])
    with pytest.raises(Failed, match="how the tasks of job 7 ended is told to its user and admins"):
        waiting.end_of_array(session(service), 7)
    service.end()
