"""What the tasks of a step tell each other by way of the PMI server: a key-value space, a barrier, names.

Bounded in all: a task that stores too much is refused, and so are the others when there is no room left.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_KEY = 64
LONGEST_VALUE = 1024
MOST_KEYS = 4096  # of one task
MOST_BYTES = 64 << 20  # of all
_OVERHEAD = 200  # bytes that an entry takes beside its text


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


class World:
    """The tasks of a step. `tell` passes a word on to the step runner."""

    def __init__(self, size: int, job: str, tell: "Callable[[str], None]") -> None:
        self.size = size
        self.job = job.encode("ascii")
        self.mapping = b"(vector,(0,1,%d))" % size  # all tasks are on one node
        self.values = KeyValues()
        self.of_node = KeyValues()
        self.names = KeyValues()
        self._tell = tell
        self._told: set[str] = set()
        self._waiting: dict[int, Callable[[], None]] = {}  # in the barrier: how each learns of its end
        self._for_keys: dict[bytes, list[tuple[int, Callable[[], None]]]] = {}
        self._gone: set[int] = set()

    def tell(self, word: str) -> None:
        """Tells the step runner, once."""
        if word not in self._told:
            self._told.add(word)
            self._tell(word)

    def enter_barrier(self, rank: int, leave: "Callable[[], None]") -> None:
        """`leave` is called when all are in it. Raises ValueError for a task that is in it already."""
        if rank in self._waiting:
            raise ValueError("it is in the barrier")
        self._waiting[rank] = leave
        self._look()
        if len(self._waiting) == self.size:
            waiting, self._waiting = self._waiting, {}
            for one in waiting.values():
                one()

    def await_key(self, rank: int, key: bytes, come: "Callable[[], None]") -> None:
        """`come` is called when this key of the node is there. Raises ValueError for a task that waits for too many."""
        waiting = self._for_keys.setdefault(key, [])
        if len(key) > LONGEST_KEY or sum(one == rank for them in self._for_keys.values() for one, _ in them) >= 16:
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
        self._look()

    def _look(self) -> None:
        if self._waiting and self._gone:
            self.tell(f"stuck {min(self._gone)}")
