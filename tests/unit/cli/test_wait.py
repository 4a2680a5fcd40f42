"""`nodectl wait`: how long it waits."""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.cli import wait
from nodectl.model.wire import framing

PATIENCE = 60  # seconds
COMMAND = "from nodectl.cli.main import command; command()"
RECORD = {"job": 7, "state": "RUNNING", "array_job": 0}


@pytest.mark.parametrize("goes", [False, True])
def test_the_wait_ends_in_time_while_the_service_hangs_or_is_away(tmp_path: Path, *, goes: bool) -> None:
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with subprocess.Popen(
            [sys.executable, "-P", "-c", COMMAND, "--socket", str(path), "wait", "--timeout=1s", "7"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={"PATH": "/usr/bin:/bin"},
        ) as waiter:  # fmt: skip
            try:
                service, _ = listener.accept()
                inbox = framing.Inbox(1 << 20)
                asked = framing.receive(service, inbox)
                assert asked is not None
                assert asked["method"] == "org.nodectl.ShowJob"
                if goes:
                    framing.send(service, {"parameters": {"record": RECORD}})
                    framing.receive(service, inbox)
                    path.unlink()
                    service.close()
                assert waiter.wait(PATIENCE) == 124
            finally:
                waiter.kill()
            service.close()


def test_a_time_of_thousands_of_years_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object, **__: object) -> None:
        raise KeyError

    before = signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr(wait, "Session", ends)
    parser = argparse.ArgumentParser()
    wait.add_arguments(parser)
    arguments = parser.parse_args(["--timeout=99999999-0", "7"])
    arguments.settings = None
    try:
        with pytest.raises(KeyError):
            wait.main(arguments)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 1e9
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
