"""Directories of agents: one for each place, and nothing stays of those that were killed."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodectl.client import cluster_gateway
from nodectl.client.command import Failed
from nodectl.cluster.agent import directory

_TAKE = """
import sys
sys.path[:0] = {path!r}
from nodectl.cluster.agent import directory
directory.take(sys.argv[1])
print("taken", flush=True)
sys.stdin.read()
"""

_COME_AND_GO = """
import os, sys
sys.path[:0] = {path!r}
from nodectl.cluster.agent import directory
from nodectl.cluster.start import holders
from nodectl.cluster.start.place import HoldersPlace
for _ in range(60):
    directory.take(sys.argv[1]).remove()
    assert holders.ask_status(7) is None
    place = HoldersPlace(int(sys.argv[2]))
    lock = place.take()
    place.remove()
    os.close(lock)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "nodectl" / "cluster"


def agent(name: str) -> subprocess.Popen[str]:
    """A process that has a directory."""
    words = [sys.executable, "-c", _TAKE.format(path=sys.path), name]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_place_is_one_agents(place: Path) -> None:
    own = directory.take("7.n1")
    other = directory.take("7.n2")
    assert sorted(path.name for path in place.iterdir()) == ["7.n1", "7.n2"]
    own.remove()
    other.remove()
    assert not place.parent.exists()


def test_another_agent_of_the_same_place_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_PATIENCE", 0.1)
    own = directory.take("7.n1")
    with pytest.raises(Failed, match="another agent serves"):
        directory.take("7.n1")
    assert (place / "7.n1").is_dir()
    own.remove()


def test_one_that_serves_and_goes_on_is_not_waited_for_and_one_that_does_not_serve_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is of another cluster of the job; the second is about to end."""
    monkeypatch.setattr(directory, "_SERVED_SECONDS", 0.0)
    own = directory.take("7.n1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gateway:
        gateway.bind(str(place / "7.n1" / "nodectl.sock"))
        gateway.listen()
        with pytest.raises(Failed, match="another agent serves"):
            directory.take("7.n1")
    looks = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            own.remove()

    monkeypatch.setattr("time.sleep", pause)
    directory.take("7.n1").remove()
    assert len(looks) == 3


def test_who_comes_next_has_a_directory_in_which_nobody_removes_anything(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = []
    own = directory.take("7.n1")
    with monkeypatch.context() as slow:
        slow.setattr("shutil.rmtree", lambda path, **_: removed.append(Path(path)))
        own.remove()
    following = directory.take("7.n1")
    assert [path.parent for path in removed] == [place]
    assert place / "7.n1" not in removed
    following.remove()
    assert not place.parent.exists()


def with_a_container(name: str, owner: Path) -> directory.Directory:
    """The directory of an agent whose node has left one, while the next one's node has the path of its steps."""
    own = directory.take(name)
    container = Path(own.path, "state/containers/n1/5")
    container.mkdir(parents=True)
    (container / "owner").write_text(str(owner))
    return own


def containers(place: Path) -> list[Path]:
    return list(place.glob("*/state/containers/n1/*5*"))


def test_containers_go_also_where_the_next_node_is_quick(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, rename = place / "7.n1/node/steps", os.rename
    own = with_a_container("7.n1", steps)

    def rename_and_begin(source: str, target: str, **at: int) -> None:
        rename(source, target, **at)
        steps.mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(os, "rename", rename_and_begin)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)  # which the user may not do in all of them
    own.remove()
    assert containers(place) == []


def test_containers_go_that_a_killed_agent_was_about_to_remove(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory has its last name."""
    steps = place / "7.n1/node/steps"
    os.close(with_a_container("7.n1.12345", steps)._lock)
    steps.mkdir(parents=True)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    directory.take("8.n1").remove()
    assert containers(place) == []


def test_an_agent_that_waits_for_its_place_can_be_told_to_end(place: Path) -> None:
    own = directory.take("7.n1")
    waiting = agent("7.n1")
    waiting.communicate()  # the end of its standard input
    assert waiting.returncode == 1
    assert (place / "7.n1").is_dir()
    own.remove()


def test_what_killed_agents_have_left_goes(place: Path) -> None:
    with agent("7.n1") as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "taken\n"
        killed.kill()
    (place / "7.n1" / "nodectl.sock").touch()
    directory.take("8.n1").remove()
    assert not place.parent.exists()


def test_agents_that_begin_together_leave_each_other_alone(place: Path) -> None:
    agents = [agent(f"7.n{number}") for number in range(8)]
    said = [one.stdout.readline() for one in agents if one.stdout is not None]
    assert said == ["taken\n"] * 8
    assert len(list(place.iterdir())) == 8
    for one in agents:
        one.communicate()


def before_lock(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None], *, waits: bool = False) -> None:
    """Before the next lock is taken. `waits`: only where somebody waits for it."""
    lock = fcntl.flock

    def locked(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        if not (waits and how & fcntl.LOCK_NB):
            happens()
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", locked)


def test_the_last_one_removes_what_another_had_to_leave_because_of_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = directory.take("7.n1")
    turn = os.open(place, os.O_RDONLY)
    fcntl.flock(turn, fcntl.LOCK_EX)  # another one, which has found our directory in it
    before_lock(monkeypatch, lambda: os.close(turn), waits=True)
    own.remove()
    assert not place.parent.exists()


def test_who_leaves_late_does_not_remove_what_was_made_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an agent that has its turn there, and nothing yet in it."""
    own = directory.take("7.n1")

    def others() -> None:
        place.rmdir()
        place.mkdir(0o700)

    before_lock(monkeypatch, others)
    own.remove()
    assert place.is_dir()


def test_who_comes_and_goes_beside_others_leaves_no_empty_directory(place: Path) -> None:
    """Agents, holders, and who asks one."""
    code = _COME_AND_GO.format(path=sys.path)
    words = [[sys.executable, "-c", code, f"7.n{number}", str(number)] for number in range(4)]
    others = [subprocess.Popen(one, stderr=subprocess.PIPE, text=True) for one in words]
    assert [(one.communicate()[1], one.returncode) for one in others] == [("", 0)] * 4
    assert not place.parent.exists()


def test_nothing_is_made_behind_a_link_that_somebody_else_may_have_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "link"
    link.symlink_to(elsewhere)
    monkeypatch.setattr(cluster_gateway, "bases", lambda: ["/nowhere/nodectl", str(link)])
    with pytest.raises(Failed, match="is not a directory"):
        directory.take("7.n1")
    assert not list(elsewhere.iterdir())


def test_the_gateway_is_found_where_salloc_was_typed_on_a_node(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no variable says that this machine is one."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for name in ("SLURMD_NODENAME", cluster_gateway.CLUSTER):
        monkeypatch.delenv(name, raising=False)
    own = directory.take(f"7.{os.uname().nodename}")
    assert not cluster_gateway.socket()
    gateway = Path(own.path, "nodectl.sock")
    gateway.touch()
    assert cluster_gateway.socket() == str(gateway)
    guest = directory.take(f"7.{cluster_gateway.NO_NODE}")
    Path(guest.path, "nodectl.sock").touch()
    assert cluster_gateway.socket() == f"{guest.path}/nodectl.sock"
    for one in (own, guest):
        one.remove()
