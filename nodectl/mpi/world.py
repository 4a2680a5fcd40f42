"""The tasks' common data, kept by the PMI server: a key-value space, a barrier, names.

Everything is bounded: a task that stores too much is refused, and the other tasks are too when there is no room left.

In a step over several nodes this is the world of one node. The data stored by its tasks goes to the other nodes when
all its tasks are in the barrier, which ends when those of all nodes are in it. Before everything else, the nodes tell
each other which tasks they have.
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
_ENTRY = struct.Struct(">IBH")  # of a key for other nodes: the owner, the lengths of key and value
_MOST_WAITS = 16  # of one task, for keys of its node


class NoRoom(Exception):
    """A value is not stored; str() is a word for the task."""


class KeyValues:
    """A space of keys. Any task may store a key anew and then owns the key."""

    __slots__ = ("_bytes", "_counts", "_values")

    def __init__(self) -> None:
        self._values: dict[bytes, tuple[int, bytes]] = {}
        self._counts: dict[int, int] = {}
        self._bytes = 0

    def put(self, rank: int, key: bytes, value: bytes) -> None:
        """Store a value. Raises NoRoom."""
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
        """Return the value, None where there is none."""
        found = self._values.get(key)
        return None if found is None else found[1]

    def remove(self, key: bytes) -> bool:
        """Remove a key; return True where the key was present."""
        found = self._values.pop(key, None)
        if found is None:
            return False
        rank, value = found
        self._counts[rank] -= 1
        self._bytes -= len(key) + len(value) + _OVERHEAD
        return True


class NoNames(KeyValues):
    """The name space of a step over several nodes. Refuses all names: a name would be known on a single node."""

    __slots__ = ()

    def put(self, rank: int, key: bytes, value: bytes) -> None:
        """Refuse the name. Raises NoRoom."""
        raise NoRoom("names_are_kept_for_a_step_on_one_node_only")


class World:
    """The world of the step's tasks on this node, `ranks`, of `size` tasks in all.

    `tell` passes a word on to the step runner. `mapping`: PMI's text on which tasks share a node, None until it is
    known.
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
        self._waiting: dict[int, Callable[[], None]] = {}  # tasks in the barrier, with the call at the barrier's end
        self._for_keys: dict[bytes, list[tuple[int, Callable[[], None]]]] = {}
        self._for_mapping: dict[int, Callable[[], None]] = {}
        self._fresh: dict[bytes, int] = {}  # keys that other nodes do not have yet, with their owners
        self._gone: set[int] = set()
        self._gone_nodes: set[int] = set()

    def begin(self, others: "Others | None", listed: str) -> None:
        """Set up the exchange with remote nodes. `listed`: the ranks here as a list, for remote nodes."""
        self._others = others
        if others is None:
            self.mapping = b"(vector,(0,1,%d))" % self.size
            return
        self.names = NoNames()
        others.gather(b"%b\n" % listed.encode("ascii"), self._learn_places)

    def _learn_places(self, said: bytes) -> None:
        """Record the tasks of all nodes, in the order of nodes, and answer the tasks waiting for the mapping."""
        try:
            nodes = [numbers_of(line, self.size, self.size) for line in said.decode("ascii").splitlines()]
            self.mapping = mapping_of(nodes, LONGEST_VALUE)
        except (ValueError, IndexError):
            raise Apart from None
        waiting, self._for_mapping = self._for_mapping, {}
        for one in waiting.values():
            one()

    def tell(self, word: str) -> None:
        """Report a word to the step runner, once."""
        if word not in self._told:
            self._told.add(word)
            self._tell(word)

    def put(self, rank: int, key: bytes, value: bytes) -> None:
        """Store a key. Remote nodes have the key after the next barrier. Raises NoRoom."""
        self.values.put(rank, key, value)
        if self._others is not None:
            self._fresh[key] = rank

    def await_mapping(self, rank: int, come: "Callable[[], None]") -> None:
        """Call `come` when the mapping is known. Raises ValueError where the task already waits."""
        if self.mapping is not None:
            come()
            return
        if rank in self._for_mapping:
            raise ValueError("it waits for that")
        self._for_mapping[rank] = come
        self._look()

    def enter_barrier(self, rank: int, leave: "Callable[[], None]") -> None:
        """Call `leave` when all tasks are in the barrier. Raises ValueError where the task is in already; TooMuch."""
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
        """Record the stored values of all nodes and end the barrier."""
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
        """Call `come` when the node has this key. Raises ValueError where a task waits for too many keys."""
        waiting = self._for_keys.setdefault(key, [])
        mine = sum(one == rank for them in self._for_keys.values() for one, _ in them)
        if len(key) > LONGEST_KEY or mine >= _MOST_WAITS:
            raise ValueError("it waits for too much")
        waiting.append((rank, come))

    def put_of_node(self, rank: int, key: bytes, value: bytes) -> None:
        """Store a key of the node, and answer the tasks waiting for the key. Raises NoRoom."""
        self.of_node.put(rank, key, value)
        for _, come in self._for_keys.pop(key, ()):
            come()

    def leave(self, rank: int) -> None:
        """Handle the end of a task's connection: further tasks may wait in vain."""
        self._gone.add(rank)
        self._waiting.pop(rank, None)
        self._for_mapping.pop(rank, None)
        self._look()

    def lose_node(self, node: int) -> None:
        """Handle the loss of all tasks of a remote node."""
        self._gone_nodes.add(node)
        self._look()

    def _look(self) -> None:
        if self._waiting and self._gone:
            self.tell(f"stuck {min(self._gone)}")
        elif (self._waiting or self._for_mapping) and self._gone_nodes:
            self.tell(f"deserted {min(self._gone_nodes)}")
