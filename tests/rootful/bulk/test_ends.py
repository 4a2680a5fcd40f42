"""What ends a bulk before all of it has been run, and what `--resume` makes of that: no command is lost, and none that
is known to have ended runs again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from nodectl.bulk import joblog
from rootful.node import NOBODY, PATIENCE, Node, wait_until

NUMBER, FREE = 200, 60
# Commands after the first ones wait at a gate, so that a bulk does not reach its end before what is to end it.
SCRIPT = f"echo {{}} >> begun; sleep 0.02; [ {{}} -le {FREE} ] || : < gate; echo {{}} >> done"


class Play:
    """One bulk of many commands, which is ended in its midst and resumed."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.place = node.scratch / name
        self.place.mkdir()
        os.chown(self.place, NOBODY.pw_uid, NOBODY.pw_gid)
        values = "".join(f"{number}\n" for number in range(1, NUMBER + 1))
        (self.place / "values").write_text(values)
        os.mkfifo(self.place / "gate")
        (self.place / "gate").chmod(0o644)
        self.words = ("bulk", "-n2", "--joblog", "log", "-a", "values", "--tmpdir", str(self.place))

    def begin(self, *more: str) -> subprocess.Popen[str]:
        """Starts it, and waits until some commands have ended and others run."""
        command = subprocess.Popen(
            self.node.command(*self.words, *more, SCRIPT), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, env=self.node.environment(), cwd=self.place, user=NOBODY.pw_uid,
            group=NOBODY.pw_gid, extra_groups=[],
        )  # fmt: skip
        wait_until(lambda: len(self.counted("done")) > 20, "some have ended")
        return command

    def open_gate(self) -> None:
        """Lets all commands through, those that wait at the gate too."""
        gate, passage = self.place / "gate", self.place / "passage"
        passage.touch()
        held = os.open(gate, os.O_RDWR)
        passage.rename(gate)
        os.close(held)

    def counted(self, name: str) -> Counter[int]:
        path = self.place / name
        return Counter(map(int, path.read_text().split())) if path.exists() else Counter()

    def known(self) -> set[int]:
        known = joblog.read(str(self.place / "log"))
        return {number for number in range(1, NUMBER + 1) if known.has_ended(number)}

    def resume(self) -> None:
        """All that is left runs; what was known to have ended has run once."""
        self.node.assert_clean()
        known = self.known()
        assert 0 < len(known) < NUMBER
        self.open_gate()
        again = self.node.nodectl(*self.words, "--resume", SCRIPT, user=NOBODY, cwd=str(self.place))
        assert again.returncode == 0, again.stderr
        assert set(self.counted("done")) == set(range(1, NUMBER + 1))
        twice = {number for number, times in self.counted("begun").items() if times > 1}
        assert not twice & known
        assert len(twice) <= 70  # those that ran, or whose end was under way
        assert self.known() == set(range(1, NUMBER + 1))
        assert not [path for path in self.place.iterdir() if path.is_dir()]  # also what a killed client has left


def stepd(node: Node) -> int:
    """The first of this name; tasks have it until they are their programs."""
    return min(pid for pid, name in node.processes() if name.startswith("stepd"))


def test_after_a_killed_client(served: Node) -> None:
    play = Play(served, "client")
    client = play.begin()
    client.kill()
    client.communicate(timeout=PATIENCE)
    play.resume()


def test_after_a_killed_stepd(served: Node) -> None:
    play = Play(served, "stepd")
    client = play.begin()
    os.kill(stepd(served), signal.SIGKILL)
    _, said = client.communicate(timeout=PATIENCE)
    assert client.returncode == 255, said
    play.resume()


def test_a_killed_daemon_is_not_noticed(node: Node) -> None:
    play = Play(node, "daemon")
    client = play.begin()
    node.restart(signal.SIGKILL)
    play.open_gate()
    _, said = client.communicate(timeout=2 * PATIENCE)
    assert client.returncode == 0, said
    assert play.counted("done") == Counter(range(1, NUMBER + 1))


def interrupt(client: subprocess.Popen[str]) -> None:
    client.send_signal(signal.SIGINT)


def terminate_twice(client: subprocess.Popen[str]) -> None:
    client.send_signal(signal.SIGTERM)
    client.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(("end", "status"), [(interrupt, 130), (terminate_twice, 143)])
def test_after_signals(served: Node, end: Callable[[subprocess.Popen[str]], None], status: int) -> None:
    play = Play(served, end.__name__)
    client = play.begin()
    end(client)
    _, said = client.communicate(timeout=PATIENCE)
    assert client.returncode == status, said
    assert "no more commands are begun" in said
    assert said.endswith("nodectl: the same command with --resume runs the others\n")
    assert re.search(r"^nodectl: \d+( of \d+)? commands? ended, ", said, re.MULTILINE)
    assert Path(play.place / "log").read_text().count("\t0\t0\techo") == len(play.known())  # none of those interrupted
    play.resume()


def test_after_it_was_cancelled(served: Node) -> None:
    play = Play(served, "cancelled")
    client = play.begin()
    assert served.nodectl("cancel", str(served.last_job())).returncode == 0
    _, said = client.communicate(timeout=PATIENCE)
    assert client.returncode == 255, said
    play.resume()


@pytest.mark.parametrize("retries", ["1", "2"])
@pytest.mark.parametrize("values", [("exec sleep 100",), ("false", "exec sleep 100")])
def test_a_cancelled_one_is_not_taken_for_one_whose_commands_have_ended(
    served: Node, retries: str, values: tuple[str, ...]
) -> None:
    commands = [f"echo >> begun-{retries}; {value}" for value in values]
    command = subprocess.Popen(
        served.command("bulk", "-n2", "--retries", retries, ":::", *commands),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=served.environment(), cwd=served.scratch,
    )  # fmt: skip
    begun = served.scratch / f"begun-{retries}"
    failed = values.count("false") * int(retries)
    wait_until(lambda: begun.exists() and len(begun.read_text()) == failed + 1, "all have begun")
    assert served.nodectl("cancel", str(served.last_job())).returncode == 0
    _, said = command.communicate(timeout=PATIENCE)
    begun.unlink()
    assert command.returncode == 255, said


def test_after_the_machine_was_lost_in_the_midst_of_a_line(served: Node) -> None:
    play = Play(served, "torn")
    client = play.begin()
    client.kill()
    client.communicate(timeout=PATIENCE)
    log = play.place / "log"
    log.write_bytes(log.read_bytes()[:-9] + bytes(300))
    play.resume()


def test_only_what_failed_runs_again(served: Node) -> None:
    words = ("bulk", "-n2", "--joblog", "failed.log")
    script = "echo {} >> again; [ {} != b ] || [ -e there ]"
    first = served.nodectl(*words, script, ":::", "a", "b", user=NOBODY)
    assert first.returncode == 1, first.stderr
    (served.scratch / "there").touch()
    more = served.nodectl(*words, "--resume-failed", script, ":::", "a", "b", "c", user=NOBODY)
    assert more.returncode == 0, more.stderr
    assert sorted((served.scratch / "again").read_text().split()) == ["a", "b", "b", "c"]


def test_failed_commands_are_taken_from_the_log(served: Node) -> None:
    words = ("bulk", "-n2", "--joblog", "retry.log")
    assert served.nodectl(*words, "[ -e now ] #", ":::", "a", "b c", user=NOBODY).returncode == 2
    (served.scratch / "now").touch()
    again = served.nodectl(*words, "--retry-failed", "-v", user=NOBODY)
    assert (again.returncode, sorted(again.stdout.splitlines())) == (0, ["[ -e now ] # 'b c'", "[ -e now ] # a"])
    assert served.nodectl(*words, "--retry-failed", "-v", user=NOBODY).stdout == ""
