"""What one task has stored, asked of the server of its node, for a step over several: PMIx's direct modex.

Who asks keeps the question until it is answered, and asks again where letters may have been lost. Who is asked answers
as often as it is asked.
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
_REPLY = Struct(">cI?QQ")  # whose it is, whether there is anything, the first byte's place in the whole, its length
_PIECE = LONGEST_LETTER - _REPLY.size


class _Open:
    """A question that has no answer yet."""

    __slots__ = ("node", "pieces", "then")

    def __init__(self, node: int, then: "Then") -> None:
        self.node = node
        self.then = [then]
        self.pieces: Pieces | None = None


class Questions:
    """Those of this node and to it. `ranks`: the tasks here. `look_up` finds what one of them has stored, now or later,
    and passes that on; None for nothing.
    """

    def __init__(self, others: "Others", ranks: "Container[int]", look_up: "LookUp") -> None:
        self._others = others
        self._ranks = ranks
        self._look_up = look_up
        self._open: dict[int, _Open] = {}
        self._gone: set[int] = set()
        self._looked_up: set[tuple[int, int]] = set()  # who has asked, and for whom

    def ask(self, rank: int, node: int, then: "Then") -> None:
        """`then` is given what a task of that node has stored; None for nothing."""
        if not self._reaches(node):
            then(None)
        elif rank in self._open:
            self._open[rank].then.append(then)
        else:
            self._open[rank] = _Open(node, then)
            self._others.write_letter(node, _QUESTION.pack(_ASK, rank))

    def lose_node(self, node: int) -> None:
        """Nobody is there any more who could answer, or pass on what others say."""
        self._gone.add(node)
        for rank in [rank for rank, one in self._open.items() if not self._reaches(one.node)]:
            self._close(rank, None)

    def _reaches(self, node: int) -> bool:
        return self._gone.isdisjoint((node, FIRST))  # letters go by way of the first

    def _close(self, rank: int, found: "bytes | None") -> None:
        for then in self._open.pop(rank).then:
            then(found)

    def ask_again(self) -> None:
        """Letters may have been lost."""
        for rank, one in self._open.items():
            self._others.write_letter(one.node, _QUESTION.pack(_ASK, rank))

    def hear(self, node: int, letter: bytes) -> None:
        """A letter from another node. Raises Apart, TooMuch."""
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
            return  # it was asked twice
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
