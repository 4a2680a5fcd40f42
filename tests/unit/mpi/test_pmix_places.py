"""Which tasks each node has: what PMIx servers tell each other, whatever it is."""

from __future__ import annotations

import pytest

from nodectl.mpi import pmix_places
from nodectl.mpi.others import Apart
from nodectl.mpi.words import Given


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """Of node 1 of three, with tasks 1 and 4 of six."""
    values = {"TASKS": "2", "SIZE": "6", "NUMBERS": "1,4", "NODE": "1", "NODES": "3", "NODE_NAME": "n1"}
    for name, value in {**values, "OTHERS": "-1", "JOB": "7.0", "LIFE": "0", "WORDS": "1"}.items():
        monkeypatch.setenv(f"NODECTL_MPI_{name}", value)
    return Given()


def test_all_know_the_same_of_each_node(given: Given) -> None:
    told = [b"0,3 n0 first\n", pmix_places.here(given), b"2,5 n2.example third\n"]
    places = pmix_places.of_all(given, b"".join(told))
    assert (places.names, places.tasks) == (["n0", "n1", "n2.example"], [[0, 3], [1, 4], [2, 5]])
    assert (places.namespace, places.size) == ("first", 6)
    assert [places.node_of(rank) for rank in range(7)] == [0, 1, 2, 0, 1, 2, None]


def test_no_namespace_can_be_guessed(given: Given) -> None:
    first, second = (pmix_places.here(given).split()[2] for _ in range(2))
    assert first != second
    assert first.startswith(b"nodectl-7.0-")
    assert len(first.rpartition(b"-")[2]) == 32


@pytest.mark.parametrize("name", ["a,b", "a b", "[1]", "", "é", "x" * 256])
def test_a_name_that_the_library_would_not_take_is_replaced(given: Given, name: str) -> None:
    given.node_name = name
    assert pmix_places.here(given).split()[:2] == [b"1,4", b"node1"]


@pytest.mark.parametrize(
    "said",
    [
        "",
        "0,3 n0 x\n1,4 n1 x\n",
        "0,3 n0 x\n1,4 n1 x\n2,5 n2 x\n6 n3 x\n",
        "0,3 n0 x\n1,4 n1 x\n2 n2 x\n",
        "0,3 n0 x\n1,4 n1 x\n3,5 n2 x\n",
        "1,4 n0 x\n0,3 n1 x\n2,5 n2 x\n",
        "0,3 n0 x\n1,4 n1\n2,5 n2 x\n",
        "0,3 n0 x\n1,4 n,1 x\n2,5 n2 x\n",
        "0,3 n0 x;y\n1,4 n1 x\n2,5 n2 x\n",
        "0-999999 n0 x\n1,4 n1 x\n2,5 n2 x\n",
        "0,3 n0 x\n1,4 é x\n2,5 n2 x\n",
    ],
)
def test_what_no_server_of_the_step_tells_is_not_believed(given: Given, said: str) -> None:
    with pytest.raises(Apart):
        pmix_places.of_all(given, said.encode())
