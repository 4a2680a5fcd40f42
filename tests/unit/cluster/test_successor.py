"""Who leads next, as successors find out by the files of a directory: at most one of them, and none while one leads."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.cluster.leader.tenure import Superseded, Tenure
from nodectl.cluster.succession.directory import LEASE, RENEWAL, Epoch, JobDirectory
from nodectl.cluster.succession.successor import PATIENCE, Successor
from nodectl.model.wire import lean_json

AT = (("10.0.0.1", 4000),)


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    made = JobDirectory(str(tmp_path / "cluster" / "7.abc"))
    made.make(AT)
    made.renew(0)
    return made


def successor(directory: JobDirectory, rank: int, nodes: int = 1, epoch: int = 0) -> Successor:
    return Successor(JobDirectory(directory.path), epoch, rank, (("10.0.0.9", rank),), nodes)


def looked(one: Successor, start: float = 0.0, seconds: float = PATIENCE + LEASE) -> tuple[float, Epoch | str]:
    """What it finds, and when."""
    now = start
    while now <= start + seconds:
        if (found := one.look(now)) is not None:
            return now - start, found
        now += 1
    raise AssertionError("it has found nothing")


def test_a_leader_that_says_nothing_any_more_is_followed_by_the_successor(directory: JobDirectory) -> None:
    waited, found = looked(successor(directory, 3))
    assert found == Epoch(1, 3, (("10.0.0.9", 3),)) == directory.epoch(1)
    assert LEASE <= waited <= LEASE + 3


def test_one_that_has_said_that_it_ends_is_not_waited_for(directory: JobDirectory) -> None:
    directory.renew(0, over=True)
    waited, found = looked(successor(directory, 3))
    assert isinstance(found, Epoch)
    assert waited <= 2


def test_nobody_takes_the_place_of_a_leader_that_leads_on(directory: JobDirectory) -> None:
    """Who cannot reach it is cut off."""
    one, now = successor(directory, 3), 0.0
    while (found := one.look(now)) is None:
        directory.renew(0)
        now += RENEWAL
    assert found == "its leader leads on, and cannot be reached from here"
    assert now >= PATIENCE
    assert directory.epoch(1) is None


def test_the_lowest_rank_that_misses_it_leads(directory: JobDirectory) -> None:
    successors = [successor(directory, rank) for rank in (5, 3, 4)]
    found: list[Epoch | str] = []
    for now in range(60):
        found += [said for one in successors if (said := one.look(now)) is not None]
    assert {one.rank for one in found if isinstance(one, Epoch)} == {3}


def test_a_lower_rank_that_died_while_it_looked_keeps_nobody_waiting_for_ever(directory: JobDirectory) -> None:
    successor(directory, 1).look(0)
    assert looked(successor(directory, 2))[1] == Epoch(1, 2, (("10.0.0.9", 2),))


def test_a_guest_leads_nobody_and_follows(directory: JobDirectory) -> None:
    guest, other = successor(directory, 9, nodes=0), successor(directory, 3)
    for now in range(30):
        assert guest.look(now) is None
    looked(other)
    assert guest.look(31.0) == directory.epoch(1)
    assert 9 not in directory.claims(0)


def test_who_comes_late_follows_the_latest(directory: JobDirectory) -> None:
    directory.take(Epoch(1, 3, AT))
    directory.take(Epoch(2, 4, AT))
    assert successor(directory, 5).look(0) == Epoch(2, 4, AT)


def test_one_that_began_an_epoch_and_was_lost_at_once_is_followed_too(directory: JobDirectory) -> None:
    directory.take(Epoch(1, 3, AT))
    assert looked(successor(directory, 5, epoch=1))[1] == Epoch(2, 5, (("10.0.0.9", 5),))


def test_of_many_who_take_an_epoch_at_once_one_has_it(directory: JobDirectory) -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; from nodectl.cluster.succession import directory as it; "
        f"sys.stdin.readline(); print(it.JobDirectory({directory.path!r}).take(it.Epoch(1, int(sys.argv[1]), ())).rank)"
    )
    words = [sys.executable, "-c", code]
    takers = [
        subprocess.Popen([*words, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in range(1, 5)
    ]
    for taker in takers:
        assert taker.stdin is not None
        taker.stdin.write("go\n")
        taker.stdin.flush()
    ranks = [taker.communicate()[0] for taker in takers]
    assert len(set(ranks)) == 1
    assert ranks[0].strip() in {"1", "2", "3", "4"}


def test_a_cluster_that_has_ended_has_no_successors(directory: JobDirectory) -> None:
    one = successor(directory, 3)
    assert one.look(0) is None
    directory.remove()
    assert one.look(1) == "the cluster has ended"


def test_a_leader_that_was_superseded_leads_no_more(directory: JobDirectory) -> None:
    tenure = Tenure(directory, 0)
    tenure.renew([0, 1, 2], 0)
    directory.take(Epoch(1, 2, AT))
    with pytest.raises(Superseded, match="rank 2 leads since"):
        tenure.renew([0, 1, 2], 1)


@pytest.mark.parametrize("there", [[0], [0, 1, 2], [0, 2]])
def test_a_leader_that_most_nodes_miss_makes_room_for_another(directory: JobDirectory, there: list[int]) -> None:
    """Whether it knows that they are gone, or not yet."""
    tenure, successors = Tenure(directory, 0), [successor(directory, 1), successor(directory, 2)]
    for one in successors:
        one.look(0)
    tenure.renew(there, 0)  # not all who are there have spoken yet
    for one in successors:
        one.look(LEASE - 1)
    with pytest.raises(Superseded, match="2 nodes cannot reach it, and 1 can"):
        tenure.renew(there, LEASE)
    assert [one.look(LEASE + 1) for one in successors] == [None, None]
    assert successors[0].look(LEASE + 2) == Epoch(1, 1, (("10.0.0.9", 1),))


def test_a_leader_stays_where_one_node_of_two_misses_it(directory: JobDirectory) -> None:
    tenure, one = Tenure(directory, 0), successor(directory, 1)
    for now in range(20):
        one.look(now)
        tenure.renew([0] if now % 2 else [0, 1], now)


def test_a_node_speaks_for_those_behind_it(directory: JobDirectory) -> None:
    tenure = Tenure(directory, 0)
    one = successor(directory, 1, nodes=17)
    tenure.renew([1], 0)
    one.look(LEASE)
    tenure.renew([1, *range(100, 133)], LEASE)
    with pytest.raises(Superseded, match="17 nodes cannot reach it, and 16 can"):
        tenure.renew([1, *range(100, 132)], LEASE + 1)


def test_who_missed_it_and_died_is_not_counted_for_ever(directory: JobDirectory) -> None:
    tenure = Tenure(directory, 0)
    successor(directory, 1, nodes=5).look(0)
    tenure.renew([], 0)
    tenure.renew([0], LEASE + 1)


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_no_epoch_has_two_leaders_and_a_lower_one_ends(directory: JobDirectory, seed: int) -> None:
    """Leaders and successors act in an order of chance; some stand still for long."""
    chance = random.Random(seed)  # noqa: S311  # a play
    now = 0.0
    leaders = {0: Tenure(directory, 0)}
    successors = {rank: successor(directory, rank) for rank in range(1, 4)}
    began = {0: 0}
    for _ in range(300):
        now += chance.choice([0.1, 1.0, 1.0, 5.0])
        if leaders and chance.random() < 0.5:
            number = chance.choice([*leaders])
            try:
                leaders[number].renew([*range(chance.randrange(4))], now)
                assert number == max(began), "it leads on, though there is a later one"
            except Superseded:
                del leaders[number]
        elif successors:
            rank = chance.choice([*successors])
            found = successors[rank].look(now)
            if isinstance(found, Epoch):
                assert began.setdefault(found.number, found.rank) == found.rank
                assert set(began) == set(range(max(began) + 1))
                successors[rank] = successor(directory, rank, epoch=found.number)
                if found.rank == rank and found.number not in leaders and chance.random() < 0.9:
                    leaders[found.number] = Tenure(JobDirectory(directory.path), found.number)
            elif found is not None:
                del successors[rank]


def test_an_successor_that_is_let_go_leaves_nothing(directory: JobDirectory) -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; from nodectl.cluster.succession import successor; successor.main()"
    )
    told = {"directory": directory.path, "epoch": 0, "rank": 2, "at": [["h", 1]], "nodes": 1}
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(lean_json.dumps(told).encode() + b"\n")
        process.stdin.flush()
        while 2 not in directory.claims(0):
            assert process.poll() is None
        out, _ = process.communicate()
    assert (out, process.returncode, dict(directory.claims(0))) == (b"", 0, {})


def test_an_successor_says_what_it_has_found(directory: JobDirectory) -> None:
    directory.take(Epoch(1, 3, AT))
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; from nodectl.cluster.succession import successor; successor.main()"
    )
    told = {"directory": directory.path, "epoch": 0, "rank": 2, "at": [["h", 1]], "nodes": 1}
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lean_json.dumps(told).encode() + b"\n")
        process.stdin.flush()
        assert lean_json.load_object(process.stdout.readline()) == {"epoch": 1, "rank": 3, "at": [["10.0.0.1", 4000]]}
        process.send_signal(signal.SIGKILL)


def test_directories_of_clusters_that_were_killed_are_removed_a_day_later(directory: JobDirectory) -> None:
    above = Path(directory.path).parent
    for name, age in (("old", 90_000), ("young", 600)):
        (above / name).mkdir()
        (above / name / "tenure").touch()
        at = (above / name / "tenure").stat().st_mtime - age
        os.utime(above / name / "tenure", (at, at))
    JobDirectory(f"{above}/8.abc").make(AT)
    assert sorted(path.name for path in above.iterdir()) == ["7.abc", "8.abc", "young"]


def test_its_name_does_not_tell_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/home/alice/state")
    secret = bytes(range(32))
    one, other = JobDirectory.of(7, secret), JobDirectory.of(7, bytes(32))
    assert one.path.startswith("/home/alice/state/nodectl/cluster/7.")
    assert one.path != other.path
    assert secret.hex()[:8] not in one.path
