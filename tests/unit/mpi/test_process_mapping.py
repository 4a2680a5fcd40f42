"""PMI_process_mapping, as MPICH reads it."""

from __future__ import annotations

import re

import pytest

from nodectl.mpi.process_mapping import mapping_of


def read(text: bytes, size: int) -> list[int]:
    """The node of each task, as MPICH reads it: block for block, and from the first one again."""
    blocks = [tuple(map(int, found)) for found in re.findall(rb"\((\d+),(\d+),(\d+)\)", text)]
    places: list[int] = []
    while len(places) < size:
        for first, nodes, tasks in blocks:
            places += [node for node in range(first, first + nodes) for _ in range(tasks)]
    return places[:size]


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([[0, 1]], b"(vector,(0,1,2))"),
        ([[0, 1], [2, 3], [4, 5]], b"(vector,(0,3,2))"),
        ([[0, 1], [2, 3], [4]], b"(vector,(0,2,2),(2,1,1))"),
        ([[0, 3], [1, 4], [2, 5]], b"(vector,(0,3,1))"),
        ([[0, 2], [1]], b"(vector,(0,2,1))"),
        ([[2], [0, 1]], b"(vector,(1,1,2),(0,1,1))"),
        ([[0, 1, 4, 5], [2, 3, 6]], b"(vector,(0,2,2))"),
    ],
)
def test_every_task_is_read_back_on_its_node(nodes: list[list[int]], text: bytes) -> None:
    found = mapping_of(nodes, 1024)
    places = {task: node for node, tasks in enumerate(nodes) for task in tasks}
    assert found == text
    assert read(found, len(places)) == [places[task] for task in range(len(places))]


def test_what_is_too_long_is_not_told() -> None:
    irregular = [[task for task in range(400) if task.bit_count() % 3 == node] for node in range(3)]
    assert mapping_of(irregular, 100) == b""
