"""What goes from node to node over the network cannot be read there."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.cluster.agent import addresses
from rootful.cluster.agents import GIVEN_UP, Agents

pytestmark = pytest.mark.rootful

_RELAY = "import sys; sys.path.append({path!r}); from unit.cluster.overhearing import main; main()"


class Overheard(Agents):
    """Agents that reach the first one by way of a relay, which keeps all bytes in `heard`."""

    def _line(self, rank: int) -> str:
        line = super()._line(rank)
        word, _, places = line.partition(" ")
        if word != "leader":
            return line
        host, port = addresses.read(places.split()[0])
        self.heard = self.dir / "heard"
        self.relay = subprocess.Popen(
            [sys.executable, "-P", "-c", _RELAY.format(path=str(Path(__file__).parents[2])), host, str(port),
             str(self.heard)], stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.relay.stdout is not None
        return f"leader 127.0.0.1:{self.relay.stdout.readline().strip()}"

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.relay.kill()
            self.relay.communicate()


@pytest.fixture
def overheard() -> Iterator[Overheard]:
    cluster = Overheard(2)
    try:
        cluster.start()
        yield cluster
    finally:
        with contextlib.suppress(AttributeError):
            cluster.close()


def test_output_input_and_environment_of_a_task_cannot_be_read_on_the_network(overheard: Overheard) -> None:
    script = 'read line; echo "$VALUE-of-the-environment, $line, $(seq -s- 5000)"'
    how = overheard.how(0, VALUE="variable")
    client = overheard.popen("run", "-N2", "-n2", "-l", "sh", "-c", script, stdin=subprocess.PIPE, **how)
    out, error = client.communicate("typed-words\n", GIVEN_UP)
    assert (client.returncode, error) == (0, "")
    lines = sorted(out.splitlines())
    assert [line[:50] for line in lines] == [
        f"{task}: variable-of-the-environment, typed-words, 1-2-3" for task in (0, 1)
    ]
    heard = overheard.heard.read_bytes()
    assert len(heard) > len(lines[1])  # the task's output has passed there
    readable = [
        word for word in (b"variable", b"environment", b"typed", b"SLURM", b"seq", b"-4999-5000") if word in heard
    ]
    assert not readable
    assert bytes.fromhex(overheard.secret) not in heard
