"""Requests to remote nodes' servers for a task's stored data, in a step over several nodes: PMIx's direct modex.

The asking server keeps a question until it is answered, and asks again where letters may have been lost. The asked
server answers as often as it is asked.
"""

from struct import Struct

from nodectl.mpi.others import FIRST, LONGEST_LETTER, MOST_GATHERED, Apart, Pieces, TooMuch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from nodectl.mpi.others import Others

    Then = Callable[[bytes | None], None]
    LookUp = Callable[[int, Then], None]

_ASK, _ANSWER = b"?", b"!"
_QUESTION = Struct(">cI")
_REPLY = Struct(">cI?QQ")  # the rank, whether there is data, the first byte's offset in the whole, the whole's length
_PIECE = LONGEST_LETTER - _REPLY.size


class _Open:
    """An unanswered question."""

    __slots__ = ("node", "pieces", "then")

    def __init__(self, node: int, then: "Then") -> None:
        self.node = node
        self.then = [then]
        self.pieces: Pieces | None = None


class Questions:
    """The questions of this node, and the questions to this node.

    `ranks`: the tasks here. `look_up` finds the data stored by a task, now or later, and passes the data on; None for
    nothing.
    """

    def __init__(self, others: "Others", ranks: "Container[int]", look_up: "LookUp") -> None:
        self._others = others
        self._ranks = ranks
        self._look_up = look_up
        self._open: dict[int, _Open] = {}
        self._gone: set[int] = set()
        self._looked_up: set[tuple[int, int]] = set()  # the asking node, and the rank it asks for

    def ask(self, rank: int, node: int, then: "Then") -> None:
        """Call `then` with the data stored by task `rank` of `node`; None for nothing."""
        if not self._reaches(node):
            then(None)
        elif rank in self._open:
            self._open[rank].then.append(then)
        else:
            self._open[rank] = _Open(node, then)
            self._others.write_letter(node, _QUESTION.pack(_ASK, rank))

    def lose_node(self, node: int) -> None:
        """Give up the questions to a lost node; without node 0, all questions, because letters go by way of node 0."""
        self._gone.add(node)
        for rank in [rank for rank, one in self._open.items() if not self._reaches(one.node)]:
            self._close(rank, None)

    def _reaches(self, node: int) -> bool:
        return self._gone.isdisjoint((node, FIRST))  # letters go by way of the first

    def _close(self, rank: int, found: "bytes | None") -> None:
        for then in self._open.pop(rank).then:
            then(found)

    def ask_again(self) -> None:
        """Ask all open questions again: letters may have been lost."""
        for rank, one in self._open.items():
            self._others.write_letter(one.node, _QUESTION.pack(_ASK, rank))

    def hear(self, node: int, letter: bytes) -> None:
        """Handle a letter from a remote node. Raises Apart, TooMuch."""
        if letter[:1] == _ASK and len(letter) == _QUESTION.size:
            self._hear_question(node, _QUESTION.unpack(letter)[1])
        elif letter[:1] == _ANSWER and len(letter) >= _REPLY.size:
            self._hear_answer(node, letter)
        else:
            raise Apart

    def _hear_question(self, node: int, rank: int) -> None:
        if rank not in self._ranks:
            raise Apart
        if (node, rank) not in self._looked_up:
            self._looked_up.add((node, rank))
            self._look_up(rank, lambda data: self._answer(node, rank, data))

    def _hear_answer(self, node: int, letter: bytes) -> None:
        _, rank, found, at, total = _REPLY.unpack_from(letter)
        if total > MOST_GATHERED:
            raise TooMuch
        one = self._open.get(rank)
        if one is None or one.node != node:
            return  # the answer to a repeated question
        if at == 0:
            one.pieces = Pieces(total)
        if one.pieces is None:
            return
        one.pieces.add(at, letter[_REPLY.size :])
        if one.pieces.is_whole:
            self._close(rank, bytes(one.pieces) if found else None)

    def _answer(self, node: int, rank: int, data: "bytes | None") -> None:
        self._looked_up.discard((node, rank))
        whole = data or b""
        if len(whole) > MOST_GATHERED:
            raise TooMuch
        for at in range(0, len(whole) or 1, _PIECE):
            head = _REPLY.pack(_ANSWER, rank, data is not None, at, len(whole))
            self._others.write_letter(node, head + whole[at : at + _PIECE])
