"""`nodectl bcast` over three agents. They share this machine's disks, so each of them writes the same file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rootful.cluster.agents import GIVEN_UP, JOB, Agents, agents
from rootful.node import wait_until

pytestmark = pytest.mark.rootful
_RECEIVER = "nodectl.cluster.bcast.receiver"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    with agents() as started:
        yield started


@pytest.fixture
def place(cluster: Agents, request: pytest.FixtureRequest) -> Path:
    """An empty directory of the user's."""
    path: Path = cluster.home / request.node.name[-40:]
    path.mkdir()
    os.chown(path, cluster.user.pw_uid, cluster.user.pw_gid)
    return path


@pytest.fixture
def source(cluster: Agents) -> Path:
    path = cluster.home / "source"
    if not path.exists():
        path.write_bytes(os.urandom(3_000_000))
        path.chmod(0o754)
        os.chown(path, cluster.user.pw_uid, cluster.user.pw_gid)
        os.utime(path, ns=(1_000_000_000, 2_000_000_000))
    return path


@pytest.mark.parametrize("rank", [0, 2])
def test_a_file_arrives_whole_with_its_mode_and_its_times(
    cluster: Agents, place: Path, source: Path, rank: int
) -> None:
    done = cluster.nodectl("bcast", "--force", "--preserve", "source", f"{place.name}/copy", rank=rank)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    copy = place / "copy"
    assert copy.read_bytes() == source.read_bytes()
    status = copy.stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_mtime_ns) == (0o754, cluster.user.pw_uid, 2_000_000_000)
    assert os.listdir(place) == ["copy"]


def test_an_empty_file_arrives(cluster: Agents, place: Path) -> None:
    (place / "empty").touch(0o644)
    done = cluster.nodectl("bcast", "--force", f"{place}/empty", f"{place}/copy")
    assert (done.returncode, (place / "copy").read_bytes()) == (0, b""), done.stderr


def test_each_node_that_cannot_is_named_with_its_reason(cluster: Agents, place: Path, source: Path) -> None:
    del source
    done = cluster.nodectl("bcast", "source", f"{place}/copy")  # who is first has it
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (1, 2), lines
    assert all(line.endswith(": File exists; --force replaces it") for line in lines)
    assert {line.partition(" on ")[2].partition(":")[0] for line in lines} < {*cluster.names}
    done = cluster.nodectl("bcast", "source", "/nonexistent/copy")
    assert sorted(done.stderr.splitlines()) == [
        f"nodectl: error: bcast /nonexistent/copy on {name}: No such file or directory" for name in cluster.names
    ]


def test_what_is_no_file_and_what_is_of_another_job_is_refused(cluster: Agents, place: Path, source: Path) -> None:
    del source
    for words, why in (
        (("/dev/null", "x"), "bcast /dev/null: not a regular file"),
        (("--job=7", "source", "x"), f"no job 7 is here: this is the cluster of job {JOB}"),
    ):
        done = cluster.nodectl("bcast", *words, cwd=place.parent)
        assert (done.returncode, done.stderr.partition(" -> ")[0].strip()) == (1, f"nodectl: error: {why}")


def test_a_program_is_copied_to_all_nodes_before_its_step_begins(cluster: Agents, place: Path) -> None:
    program = place / "program"
    program.write_text("#!/bin/sh\necho $0\n")
    program.chmod(0o755)
    done = cluster.nodectl("run", "-N3", "-n3", f"--bcast={place}/copy", str(program))
    assert (done.returncode, done.stdout) == (0, f"{place}/copy\n" * 3), done.stderr
    done = cluster.nodectl("run", "-N3", "-n3", "--bcast=/nonexistent/copy", str(program))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 4), done.stderr
    assert done.stderr.endswith("--bcast: the program is not on all nodes\n")


def test_nothing_is_there_of_a_copy_whose_command_is_killed(cluster: Agents, place: Path) -> None:
    source = cluster.home / "endless"
    with source.open("wb") as file:
        file.truncate(1 << 40)
    os.chown(source, cluster.user.pw_uid, cluster.user.pw_gid)
    command = cluster.popen("bcast", "endless", f"{place}/copy")
    wait_until(lambda: len(writing(cluster)) == 3, "all nodes write")
    command.kill()
    command.communicate(timeout=GIVEN_UP)
    wait_until(lambda: not receivers(cluster), "nobody writes")
    assert not os.listdir(place)
    source.unlink()


def test_a_file_that_becomes_shorter_meanwhile_is_not_taken_for_whole(cluster: Agents, place: Path) -> None:
    source = cluster.home / "shrinks"
    with source.open("wb") as file:
        file.truncate(1 << 40)
    os.chown(source, cluster.user.pw_uid, cluster.user.pw_gid)
    command = cluster.popen("bcast", "shrinks", f"{place}/copy")
    wait_until(lambda: len(writing(cluster)) == 3, "all nodes write")
    os.truncate(source, 0)
    _, said = command.communicate(timeout=GIVEN_UP)
    assert (command.returncode, len(said.splitlines())) == (1, 3)
    assert f"bytes of {1 << 40} have come" in said
    assert not os.listdir(place)
    source.unlink()


def receivers(cluster: Agents) -> list[psutil.Process]:
    return [process for rank, _ in enumerate(cluster.names) for process in cluster.children(rank, _RECEIVER)]


def writing(cluster: Agents) -> list[psutil.Process]:
    """Those that have written something."""
    found = []
    for process in receivers(cluster):
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            if process.io_counters().write_chars > 1 << 20:
                found.append(process)
    return found
