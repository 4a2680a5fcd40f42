"""A step that is not quiet: Python goes on from where the quick way has come to, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

import pytest

from nodectl.client.signals import FORWARDED
from rootful.node import wait_until
from unit.client.quick.service import (
    PYTHON,
    QUICK,
    START,
    Connection,
    Service,
    Step,
    encoded,
    ended,
    exited,
    finish,
    signals_at,
    start,
)

Seen = tuple[bytes, bytes, int]
MESSAGE: Mapping[str, object] = {"event": "message", "text": "nodectl: error: hear \u00fc this"}
COURSES: dict[str, Sequence[Mapping[str, object]]] = {
    "quiet": (START, exited(), ended()),
    "message first": (MESSAGE, START, exited(), ended()),
    "message between": (START, MESSAGE, exited(), ended()),
    "message last": (START, exited(), MESSAGE, ended()),
    "same message twice": (START, MESSAGE, MESSAGE, exited(), ended()),
    "failed": (START, exited(3 << 8), ended(3)),
    "killed": (START, exited(9), ended(137)),
    "out of memory": (START, exited(0, oom=True), ended()),
    "ended with a status and no word": (START, exited(), ended(1)),
    "something new": (START, {"event": "new", "status": 0}, exited(), ended()),
}


@pytest.fixture(params=[QUICK, PYTHON], ids=["quick", "python"])
def way(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Both ways have to show what the test expects."""
    return request.param  # type: ignore[no-any-return]


def launched(way: Sequence[str], service: Service, **how: object) -> tuple[subprocess.Popen[bytes], Connection]:
    """A client that has asked for its step."""
    process = start(way, ["run", "true"], service, **how)
    connection = service.greet()
    connection.launch()
    assert connection.is_quick() == (way == QUICK)
    return process, connection


def watched(way: Sequence[str], service: Service, act: Callable[[Step, Connection], None]) -> Seen:
    """What a user sees of a step to which that happens."""
    process, connection = launched(way, service)
    step = connection.begin()
    act(step, connection)
    seen = finish(process)
    step.close()
    connection.close()
    return seen


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("parts", ["at once", "each", "bytes"])
def test_what_a_step_has_to_say_is_said_alike(course: str, parts: str, service: Service) -> None:
    data = list(map(encoded, COURSES[course]))

    def act(step: Step, connection: Connection) -> None:
        del connection
        for part in {"at once": [b"".join(data)], "each": data, "bytes": [bytes([b]) for b in b"".join(data)]}[parts]:
            step.write(part)

    ours, theirs = watched(QUICK, service, act), watched(PYTHON, service, act)
    assert ours == theirs
    assert (ours == (b"", b"", 0)) == (course in ("quiet", "something new"))


def test_message_is_told_while_the_step_runs(way: tuple[str, ...], service: Service) -> None:
    process, connection = launched(way, service)
    step = connection.begin()
    step.tell(START, MESSAGE)
    assert process.stderr is not None
    assert process.stderr.readline() == "nodectl: error: hear \u00fc this\n".encode()
    step.tell(exited(), ended())
    assert finish(process)[2] == 0


@pytest.mark.parametrize("number", FORWARDED)
def test_signal_to_a_running_step_is_not_lost(number: signal.Signals, way: tuple[str, ...], service: Service) -> None:
    process, connection = launched(way, service)
    step = connection.begin()
    step.tell(START)
    if way == PYTHON:
        wait_until(lambda: signal_is_caught(process.pid, FORWARDED[-1]), "it takes signals")
    process.send_signal(number)
    if number == signal.SIGINT:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"nodectl: interrupt (one more within 1 sec")
    else:
        call = step.call()
        assert call["method"] == "org.nodectl.step.Signal"
        assert call["parameters"] == {"signal": number, "forwarded": True}
    step.tell(exited(15), ended(143))
    assert finish(process)[2] == 143


def signal_is_caught(pid: int, number: int) -> bool:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        (caught,) = [line for line in file if line.startswith("SigCgt")]
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def test_signal_that_comes_before_the_reply_withdraws_the_launch(way: tuple[str, ...], service: Service) -> None:
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)):
        process, connection = launched(way, service)
        process.send_signal(number)
        assert connection.receive() == {"method": "org.nodectl.Withdraw", "parameters": {}, "oneway": True}
        connection.send({"error": "org.nodectl.Withdrawn", "parameters": {"reason": "it had not begun"}})
        assert finish(process) == (b"", b"", status)
        assert connection.receive() is None
        connection.close()


def test_signal_that_comes_before_the_reply_is_for_the_step_that_has_begun(
    way: tuple[str, ...], service: Service
) -> None:
    process, connection = launched(way, service)
    process.send_signal(signal.SIGTERM)
    assert connection.receive()["method"] == "org.nodectl.Withdraw"
    step = connection.begin()
    assert step.call()["parameters"] == {"signal": signal.SIGTERM, "forwarded": True}
    step.tell(START, exited(15), ended(143))
    assert finish(process)[2] == 143


def test_signal_that_ends_nothing_waits_for_the_reply(way: tuple[str, ...], service: Service) -> None:
    process, connection = launched(way, service)
    process.send_signal(signal.SIGUSR1)
    step = connection.begin()
    assert step.call()["parameters"] == {"signal": signal.SIGUSR1, "forwarded": True}
    step.tell(START, exited(10), ended(138))
    assert finish(process)[2] == 138


def test_service_that_says_nothing_is_left(service: Service) -> None:
    process, connection = launched(QUICK, service)
    process.send_signal(signal.SIGTERM)
    assert connection.receive()["method"] == "org.nodectl.Withdraw"
    assert finish(process) == (b"", b"", -signal.SIGTERM)
    assert connection.receive() is None


def test_two_signals_of_a_kind_are_two_while_python_starts(service: Service) -> None:
    process, connection = launched(QUICK, service)
    step = connection.begin()
    step.tell(START)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: not connection.is_quick(), "Python starts")
    process.send_signal(signal.SIGINT)
    assert step.call()["method"] == "org.nodectl.step.End"
    step.tell(exited(15), ended(143))
    assert finish(process)[2] == 143


def test_signals_that_come_before_the_launch_are_for_the_command(service: Service) -> None:
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)):
        process = start(QUICK, ["run", "true"], service)
        connection = service.accept()
        connection.receive()  # Hello, which nobody answers
        process.send_signal(number)
        assert finish(process) == (b"", b"", status)
        assert connection.receive() is None
        connection.close()


def test_signals_that_are_ignored_stay_so(service: Service) -> None:
    with signals_at([signal.SIGHUP, signal.SIGINT], signal.SIG_IGN):
        process, connection = launched(QUICK, service)
    step = connection.begin()
    step.tell(START)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    assert connection.is_quick()
    process.send_signal(signal.SIGUSR1)
    assert step.call()["parameters"]["signal"] == signal.SIGUSR1
    step.tell(exited(), ended())
    assert finish(process) == (b"", b"", 0)


def test_end_that_comes_with_a_signal_is_the_end(service: Service) -> None:
    def act(step: Step, connection: Connection) -> None:
        os.kill(connection.pid, signal.SIGSTOP)
        step.tell(START, exited(), ended())
        os.kill(connection.pid, signal.SIGTERM)
        os.kill(connection.pid, signal.SIGCONT)

    assert watched(QUICK, service, act) == (b"", b"", 0)


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_service_that_goes_away_after_the_launch(cut: int, service: Service) -> None:
    def see(way: Sequence[str]) -> Seen:
        process, connection = launched(way, service)
        connection.sock.send(b'{"parameters":{"job":7,"step":0}}\0'[:cut])
        connection.close()
        return finish(process)

    assert see(QUICK) == see(PYTHON)


def test_service_that_has_not_taken_the_launch_is_followed(way: tuple[str, ...], service: Service) -> None:
    process, connection = launched(way, service)
    connection.send({"error": "org.nodectl.ServiceEnded", "parameters": {"reason": "over"}})
    connection.close()
    connection = service.accept()
    connection.launch()
    step = connection.begin()
    step.tell(START, exited(), ended())
    assert finish(process) == (b"", b"", 0)


def test_service_that_goes_away_before_the_launch_is_followed(way: tuple[str, ...], service: Service) -> None:
    process = start(way, ["run", "true"], service)
    connection = service.accept()
    connection.close()
    connection = service.greet()
    connection.launch()
    assert not connection.is_quick()
    step = connection.begin()
    step.tell(START, exited(), ended())
    assert finish(process) == (b"", b"", 0)


def test_step_runner_that_goes_away_is_asked_about(service: Service) -> None:
    def see(way: Sequence[str]) -> Seen:
        process, connection = launched(way, service)
        step = connection.begin()
        step.tell(START)
        step.close()
        assert connection.receive()["method"] == "org.nodectl.Wait"
        connection.reply({"record": {"reason": "it was killed", "exit_status": 9}})
        seen = finish(process)
        connection.close()
        return seen

    ours = see(QUICK)
    assert ours == see(PYTHON)
    assert ours[2] == 9


@pytest.mark.parametrize("event", [b"{}\0", b"\0", b'{"parameters":{"event":\0', b"[[[\0", b"no JSON\0"])
def test_what_is_no_event_is_python_s(event: bytes, service: Service) -> None:
    def see(way: Sequence[str]) -> Seen:
        process, connection = launched(way, service)
        step = connection.begin()
        step.write(event)
        step.close()
        call = connection.receive()
        if call is not None:
            connection.reply({"record": {"reason": "gone", "exit_status": 4}})
        seen = finish(process)
        connection.close()
        return seen

    assert see(QUICK) == see(PYTHON)


def test_reply_without_pipes_is_no_step(way: tuple[str, ...], service: Service) -> None:
    process, connection = launched(way, service)
    reader, writer = os.pipe()
    connection.reply({"job": 7, "step": 0}, [reader])
    output, errors, status = finish(process)
    assert (output, status) == (b"", 1)
    assert errors == b"nodectl: error: Launch: the reply came without the pipes of the step\n"
    os.close(reader)
    os.close(writer)


def test_nothing_is_left_in_the_environment(service: Service) -> None:
    process, connection = launched(QUICK, service)
    connection.send({"error": "org.nodectl.ServiceEnded", "parameters": {"reason": "over"}})
    connection.close()
    connection = service.accept()
    call = connection.launch()
    assert not [name for name in call["parameters"]["request"]["environment"] if "LAUNCHED" in name]
    connection.send({"error": "org.nodectl.NotPermitted", "parameters": {"reason": "no"}})
    assert finish(process)[2] == 1


@pytest.mark.parametrize("word", ["", "x", "0", "99", "-1"])
def test_variable_that_nobody_left_is_refused(word: str, service: Service) -> None:
    environment = {"PATH": "/bin", "_NODECTL_LAUNCHED": word}
    output, errors, status = finish(start(QUICK, ["run", "true"], service, env=environment))
    assert (output, status) == (b"", 1)
    assert errors.startswith(b"nodectl: error: _NODECTL_LAUNCHED: ")
