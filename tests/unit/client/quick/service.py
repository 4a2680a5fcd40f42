"""The service's side of a `nodectl run`, in the hands of a test: what was asked for, and what is answered to it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sysconfig
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodectl.model.wire import framing

SCRIPTS = Path(sysconfig.get_paths()["scripts"])
QUICK = (str(SCRIPTS / "nodectl"),)
PYTHON = (str(SCRIPTS / "python3"), "-IS", str(SCRIPTS / "nodectl-python"))
SECONDS = 60.0
HELLO: Mapping[str, object] = {"version": "0", "node": "here", "stack": [], "warnings": []}
REFUSED: Mapping[str, object] = {"error": "org.nodectl.NotPermitted", "parameters": {"reason": "not today"}}
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/"}


class Service:
    """Listens at `path`; a test accepts, reads and answers in its own order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.greeted = 0  # of those to whom nothing was launched
        self.quick: list[bool] = []  # of the calls that were refused, whether without an interpreter
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._listener.settimeout(SECONDS)

    def close(self) -> None:
        """Nobody listens any more."""
        self._listener.close()
        self.path.unlink()

    def accept(self) -> Connection:
        """The next client."""
        sock, _ = self._listener.accept()
        return Connection(sock)

    def greet(self, hello: Mapping[str, object] = HELLO) -> Connection:
        """The next client, whose question who this is was answered."""
        connection = self.accept()
        while (call := connection.receive()) is None:  # it has thought better of it
            connection.close()
            connection = self.accept()
        assert call["method"] == "org.nodectl.Hello"
        connection.reply(hello)
        return connection

    @contextlib.contextmanager
    def refusing(self, hello: Mapping[str, object] = HELLO) -> Iterator[list[object]]:
        """Serves whoever comes, and launches nothing; what they asked for beyond who this is."""
        calls: list[object] = []
        reader, writer = os.pipe()
        thread = threading.Thread(target=self._refuse, args=(reader, calls, hello))
        thread.start()
        try:
            yield calls
        finally:
            os.close(writer)
            thread.join()
            os.close(reader)

    def _refuse(self, over: int, calls: list[object], hello: Mapping[str, object]) -> None:
        while over not in select.select([self._listener.fileno(), over], [], [])[0]:
            connection = self.accept()
            while (call := connection.receive()) is not None:
                if call["method"] == "org.nodectl.Hello":
                    self.greeted += 1
                    connection.reply(hello)
                else:
                    calls.append(call)
                    self.quick.append(connection.is_quick())
                    connection.send(REFUSED)
            connection.close()


class Connection:
    """A client."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(SECONDS)
        self.sock = sock
        self.inbox = framing.Inbox(1 << 24)
        self.pid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    def receive(self) -> Any:
        """The next call; None where the client has gone."""
        return framing.receive(self.sock, self.inbox)

    def launch(self) -> Any:
        """The call Launch, which has to come now."""
        call = self.receive()
        assert call["method"] == "org.nodectl.Launch"
        fds = self.inbox.take_descriptors()
        assert len(fds) == 3
        framing.close(fds)
        return call

    def reply(self, parameters: Mapping[str, object], fds: Sequence[int] = ()) -> None:
        """A reply without error."""
        self.send({"parameters": parameters}, fds)

    def send(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> None:
        """Any message."""
        framing.send(self.sock, message, fds)

    def begin(self) -> Step:
        """Answers Launch: there is a step."""
        reader, events = os.pipe()
        calls, writer = os.pipe()
        self.reply({"job": 7, "step": 0}, (reader, writer))
        os.close(reader)
        os.close(writer)
        return Step(events, calls)

    def is_quick(self) -> bool:
        """Whether no interpreter runs there."""
        return Path(os.readlink(f"/proc/{self.pid}/exe")).name == "nodectl"

    def close(self) -> None:
        """The service has gone."""
        self.inbox.close()
        self.sock.close()


class Step:
    """A step's side of its pipes."""

    def __init__(self, events: int, calls: int) -> None:
        self._events = events
        self._calls = calls
        self._inbox = framing.Inbox(1 << 24)

    def tell(self, *events: Mapping[str, object]) -> None:
        """Events, written at once."""
        os.write(self._events, b"".join(map(encoded, events)))

    def write(self, data: bytes) -> None:
        """Bytes."""
        os.write(self._events, data)

    def call(self) -> Any:
        """What it is asked for next; None where nobody asks any more."""
        while (message := self._inbox.next()) is None:
            if not (data := os.read(self._calls, 65536)):
                return None
            self._inbox.feed(data)
        return message

    def close(self) -> None:
        """It has gone."""
        os.close(self._events)
        os.close(self._calls)


def encoded(event: Mapping[str, object]) -> bytes:
    """The bytes of an event."""
    return framing.encode({"parameters": {"event": event}, "continues": True})


START: Mapping[str, object] = {"event": "start", "pids": [4]}


def ended(status: int = 0, **record: object) -> Mapping[str, object]:
    """A step's last event."""
    return {"event": "end", "record": {"argv": ["a", '"exit_status":1'], **record, "exit_status": status}}


def exited(status: int = 0, *, oom: bool = False) -> Mapping[str, object]:
    """Task 0 has ended."""
    return {"event": "exit", "tasks": [0], "status": status, "out_of_memory": oom}


def start(way: Sequence[str], words: Sequence[str], service: Service, **how: Any) -> subprocess.Popen[bytes]:
    """Starts `nodectl run` in a way."""
    environment: dict[str, str] = {"NODECTL_SOCKET": str(service.path), **how.pop("env", ENVIRONMENT)}
    default: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*way, *words], env=environment, **{**default, **how})


def finish(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, int]:
    """What it wrote, and how it ended."""
    output, errors = process.communicate(timeout=SECONDS)
    return output, errors, process.returncode


def told(way: Sequence[str], words: Sequence[str], service: Service, **how: Any) -> tuple[Any, bool, Any]:
    """What a refused `nodectl run` asked for, whether without an interpreter, and what its user saw of it."""
    hello = how.pop("hello", HELLO)
    process = start(way, words, service, **how)
    connection = service.greet(hello)
    call = connection.receive()
    if call is None:  # it goes the other way
        connection.close()
        connection = service.greet()
        call = connection.receive()
    quick = connection.is_quick()
    framing.close(connection.inbox.take_descriptors())
    connection.send(REFUSED)
    seen = finish(process)
    connection.close()
    return call, quick, seen


def both(words: Sequence[str], service: Service, *, shows: bool = True, **how: Any) -> bool:
    """Both ways ask for the same, in the same order of variables, and show the same. Returns whether one was quick."""
    ours, quick, seen = told(QUICK, words, service, **how)
    theirs, slow, shown = told(PYTHON, words, service, **how)
    assert not slow
    assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)
    of_ours, of_theirs = ours["parameters"]["request"], theirs["parameters"]["request"]
    assert list(of_ours["environment"]) == list(of_theirs["environment"])
    assert seen == shown or not shows
    return quick


@contextlib.contextmanager
def signals_at(numbers: Sequence[int], what: signal.Handlers) -> Iterator[None]:
    """These signals, for who is started meanwhile."""
    before = {number: signal.signal(number, what) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
