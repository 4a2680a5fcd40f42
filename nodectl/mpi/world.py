"""What the tasks of a step tell each other by way of the PMI server: a key-value space, a barrier, names.

Bounded in all: a task that stores too much is refused, and so are the others when there is no room left.

Of a step over several nodes this is the world of one of them. What its tasks have stored goes to the others when they
are all in the barrier, whose end waits for those of all nodes. First of all the nodes tell each other which tasks they
have.
"""

import struct

from nodectl.model.part import numbers_of
from nodectl.mpi.others import Apart, TooMuch
from nodectl.mpi.process_mapping import mapping_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nodectl.mpi.others import Others

LONGEST_KEY = 64
LONGEST_VALUE = 1024
MOST_KEYS = 4096  # of one task
MOST_BYTES = 64 << 20  # of all
_OVERHEAD = 200  # bytes that an entry takes beside its text
_ENTRY = struct.Struct(">IBH")  # of a key for other nodes: whose it is, the lengths of key and value
_MOST_WAITS = 16  # of one task, for keys of its node


class NoRoom(Exception):
    """Something is not stored; str() is a word for the task."""


class KeyValues:
    """One space of keys. Who stored a key may store it anew, and so may others: it is theirs then."""

    __slots__ = ("_bytes", "_counts", "_values")

    def __init__(self) -> None:
        self._values: dict[bytes, tuple[int, bytes]] = {}
        self._counts: dict[int, int] = {}
        self._bytes = 0

    def put(self, rank: int, key: bytes, value: bytes) -> None:
        """Raises NoRoom."""
        if not key or len(key) > LONGEST_KEY:
            raise NoRoom("invalid_key")
        if len(value) > LONGEST_VALUE:
            raise NoRoom("invalid_value")
        self.remove(key)
        size = len(key) + len(value) + _OVERHEAD
        count = self._counts.get(rank, 0)
        if count >= MOST_KEYS or self._bytes + size > MOST_BYTES:
            raise NoRoom("no_room")
        self._counts[rank] = count + 1
        self._bytes += size
        self._values[key] = rank, value

    def get(self, key: bytes) -> "bytes | None":
        """The value, None for none."""
        found = self._values.get(key)
        return None if found is None else found[1]

    def remove(self, key: bytes) -> bool:
        """True where it was there."""
        found = self._values.pop(key, None)
        if found is None:
            return False
        rank, value = found
        self._counts[rank] -= 1
        self._bytes -= len(key) + len(value) + _OVERHEAD
        return True


class NoNames(KeyValues):
    """Of a step over several nodes: a name would be known on one of them."""

    __slots__ = ()

    def put(self, rank: int, key: bytes, value: bytes) -> None:
        """Raises NoRoom."""
        raise NoRoom("names_are_kept_for_a_step_on_one_node_only")


class World:
    """The tasks of a step on this node, `ranks`, of `size` in all. `tell` passes a word on to the step runner.
    `mapping`: which tasks share a node, as PMI has it, None until that is known.
    """

    def __init__(self, size: int, job: str, tell: "Callable[[str], None]", ranks: "Sequence[int]") -> None:
        self.size = size
        self.job = job.encode("ascii")
        self.mapping: bytes | None = None
        self.values = KeyValues()
        self.of_node = KeyValues()
        self.names = KeyValues()
        self._ranks = ranks
        self._others: Others | None = None
        self._tell = tell
        self._told: set[str] = set()
        self._waiting: dict[int, Callable[[], None]] = {}  # in the barrier: how each learns of its end
        self._for_keys: dict[bytes, list[tuple[int, Callable[[], None]]]] = {}
        self._for_mapping: dict[int, Callable[[], None]] = {}
        self._fresh: dict[bytes, int] = {}  # keys that other nodes have not, and whose they are
        self._gone: set[int] = set()
        self._gone_nodes: set[int] = set()

    def begin(self, others: "Others | None", listed: str) -> None:
        """`listed`: the ranks here, as a list."""
        self._others = others
        if others is None:
            self.mapping = b"(vector,(0,1,%d))" % self.size
            return
        self.names = NoNames()
        others.gather(b"%b\n" % listed.encode("ascii"), self._learn_places)

    def _learn_places(self, said: bytes) -> None:
        """Which tasks each node has, in the nodes' order."""
        try:
            nodes = [numbers_of(line, self.size, self.size) for line in said.decode("ascii").splitlines()]
            self.mapping = mapping_of(nodes, LONGEST_VALUE)
        except (ValueError, IndexError):
            raise Apart from None
        waiting, self._for_mapping = self._for_mapping, {}
        for one in waiting.values():
            one()

    def tell(self, word: str) -> None:
        """Tells the step runner, once."""
        if word not in self._told:
            self._told.add(word)
            self._tell(word)

    def put(self, rank: int, key: bytes, value: bytes) -> None:
        """Stores a key, which other nodes have behind the next barrier. Raises NoRoom."""
        self.values.put(rank, key, value)
        if self._others is not None:
            self._fresh[key] = rank

    def await_mapping(self, rank: int, come: "Callable[[], None]") -> None:
        """`come` is called when the mapping is known. Raises ValueError for a task that waits already."""
        if self.mapping is not None:
            come()
            return
        if rank in self._for_mapping:
            raise ValueError("it waits for that")
        self._for_mapping[rank] = come
        self._look()

    def enter_barrier(self, rank: int, leave: "Callable[[], None]") -> None:
        """`leave` is called when all are in it. Raises ValueError for a task that is in it already; TooMuch."""
        if rank in self._waiting:
            raise ValueError("it is in the barrier")
        self._waiting[rank] = leave
        self._look()
        if len(self._waiting) < len(self._ranks):
            return
        if self._others is None:
            self._end_barrier()
        else:
            self._others.gather(self._told_to_others(), self._hear_others)

    def _told_to_others(self) -> bytes:
        fresh, self._fresh = self._fresh, {}
        pieces: list[bytes] = []
        for key, rank in fresh.items():
            value = self.values.get(key) or b""
            pieces += _ENTRY.pack(rank, len(key), len(value)), key, value
        return b"".join(pieces)

    def _hear_others(self, said: bytes) -> None:
        """What has been stored on all nodes, ours too."""
        at = 0
        ours = set(self._ranks)
        try:
            while at < len(said):
                rank, key, value = _ENTRY.unpack_from(said, at)
                at += _ENTRY.size
                if rank not in ours:
                    self.values.put(rank, said[at : at + key], said[at + key : at + key + value])
                at += key + value
        except struct.error:
            raise Apart from None
        except NoRoom:
            raise TooMuch from None
        self._end_barrier()

    def _end_barrier(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one()

    def await_key(self, rank: int, key: bytes, come: "Callable[[], None]") -> None:
        """`come` is called when this key of the node is there. Raises ValueError for a task that waits for too many."""
        waiting = self._for_keys.setdefault(key, [])
        mine = sum(one == rank for them in self._for_keys.values() for one, _ in them)
        if len(key) > LONGEST_KEY or mine >= _MOST_WAITS:
            raise ValueError("it waits for too much")
        waiting.append((rank, come))

    def put_of_node(self, rank: int, key: bytes, value: bytes) -> None:
        """Stores a key of the node, for which tasks may wait. Raises NoRoom."""
        self.of_node.put(rank, key, value)
        for _, come in self._for_keys.pop(key, ()):
            come()

    def leave(self, rank: int) -> None:
        """The task's connection has ended: the others may wait in vain."""
        self._gone.add(rank)
        self._waiting.pop(rank, None)
        self._for_mapping.pop(rank, None)
        self._look()

    def lose_node(self, node: int) -> None:
        """Likewise all tasks of another node."""
        self._gone_nodes.add(node)
        self._look()

    def _look(self) -> None:
        if self._waiting and self._gone:
            self.tell(f"stuck {min(self._gone)}")
        elif (self._waiting or self._for_mapping) and self._gone_nodes:
            self.tell(f"deserted {min(self._gone_nodes)}")
