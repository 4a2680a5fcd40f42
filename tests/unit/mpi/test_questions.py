"""What a task has stored is asked of the server of its node, over agents that may lose what is on its way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodectl.model import mpi_frames as frames
from nodectl.mpi import questions
from nodectl.mpi.others import Apart, TooMuch
from nodectl.mpi.questions import Questions
from unit.mpi.servers import Nodes

LARGE = bytes(range(256)) * 4000  # of several letters


class Asked:
    """Three nodes with two tasks each. `stored`: what tasks have; `late`: who was asked for what is not there yet."""

    def __init__(self) -> None:
        self.nodes = Nodes(3)
        self.stored: dict[int, bytes | None] = {}
        self.late: list[tuple[int, Callable[[bytes | None], None]]] = []
        self.got: list[bytes | None] = []
        self.all: list[Questions] = []
        for node, others in enumerate(self.nodes.servers):
            self.all.append(Questions(others, range(2 * node, 2 * node + 2), self.look_up))
            others.read_letters(self.all[-1])

    def look_up(self, rank: int, then: Callable[[bytes | None], None]) -> None:
        if rank in self.stored:
            then(self.stored[rank])
        else:
            self.late.append((rank, then))

    def ask(self, node: int, rank: int) -> None:
        self.all[node].ask(rank, rank // 2, self.got.append)
        self.nodes.run()

    def mend(self) -> None:
        """The way between nodes 0 and 2 was broken, and is whole again."""
        self.nodes.cut = set()
        for node, about in ((0, 2), (2, 0)):
            self.nodes.tell(node, about, frames.AGAIN)
        self.nodes.run()


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.mark.parametrize("data", [LARGE, b"x", b"", None])
@pytest.mark.parametrize(("node", "rank"), [(0, 5), (2, 0), (1, 4), (2, 3)])
def test_who_asks_gets_what_the_task_has_stored(asked: Asked, node: int, rank: int, data: bytes | None) -> None:
    asked.stored[rank] = data
    asked.ask(node, rank)
    assert asked.got == [data]
    asked.nodes.close()


def test_the_answer_waits_until_the_task_has_stored_something(asked: Asked) -> None:
    asked.ask(1, 4)
    asked.ask(1, 4)
    assert (asked.got, [rank for rank, _ in asked.late]) == ([], [4])
    asked.late[0][1](b"at last")
    asked.nodes.run()
    assert asked.got == [b"at last"] * 2
    asked.nodes.close()


@pytest.mark.parametrize("node", [0, 1])
def test_a_question_that_was_lost_is_asked_again(asked: Asked, node: int) -> None:
    asked.stored[4] = LARGE
    asked.nodes.cut = {2}
    asked.ask(node, 4)
    assert not asked.got
    asked.mend()
    assert asked.got == [LARGE]
    asked.nodes.close()


def test_an_answer_that_was_lost_is_asked_for_again(asked: Asked) -> None:
    asked.ask(1, 4)
    asked.nodes.cut = {2}
    asked.late.pop()[1](LARGE)
    asked.nodes.run()
    asked.stored[4] = LARGE
    asked.mend()
    assert asked.got == [LARGE]
    asked.nodes.close()


def test_a_question_that_comes_twice_while_it_waits_is_answered_once(asked: Asked) -> None:
    asked.ask(1, 4)
    asked.mend()
    assert len(asked.late) == 1
    asked.nodes.close()


def test_a_node_that_is_gone_answers_nothing(asked: Asked) -> None:
    asked.ask(1, 4)
    asked.all[1].lose_node(2)
    asked.ask(1, 5)
    assert asked.got == [None, None]
    asked.late[0][1](b"too late")
    asked.nodes.run()
    assert asked.got == [None, None]
    asked.nodes.close()


def test_nobody_answers_when_the_first_node_is_gone_by_way_of_which_all_speak(asked: Asked) -> None:
    asked.ask(1, 4)
    asked.all[1].lose_node(0)
    asked.ask(1, 5)
    assert asked.got == [None, None]
    asked.nodes.close()


@pytest.mark.parametrize("letter", [b"", b"?", b"?\0\0\0\x04", b"?\0\0\0\x01more", b"!", b"!\0\0\0\x01", b"what"])
def test_a_letter_that_is_none_ends_the_talk(asked: Asked, letter: bytes) -> None:
    with pytest.raises(Apart):
        asked.all[0].hear(1, letter)
    asked.nodes.close()


def test_an_answer_has_its_bounds(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "MOST_GATHERED", 1000)
    asked.stored[4] = LARGE
    with pytest.raises(TooMuch):
        asked.ask(0, 4)
    with pytest.raises(TooMuch):
        asked.all[0].hear(2, questions._REPLY.pack(b"!", 4, True, 0, 1001))
    asked.nodes.close()


def test_an_answer_to_no_question_does_nothing(asked: Asked) -> None:
    asked.all[0].hear(2, questions._REPLY.pack(b"!", 4, True, 0, 0))
    asked.ask(0, 4)
    asked.all[0].hear(1, questions._REPLY.pack(b"!", 4, True, 0, 0))  # by whom it was not asked
    asked.all[0].hear(2, questions._REPLY.pack(b"!", 4, True, 7, 9) + b"ab")  # whose beginning never came
    assert not asked.got
    asked.nodes.close()
