"""Messages for steps still unknown here, since a node may be quicker than the leader. Runs in the client's agent.

Memory for the messages is bounded. Nodes still have the rest, and repeat it when asked.
"""

import asyncio
from collections.abc import Callable

from nodectl.cluster.agent.post import Header, Key

_MOST = 16 << 20  # bytes, in all
_OF_EACH = 1 << 10  # bytes that a message takes beside its body
_SECONDS = 60.0

Heard = tuple[str, int, Header, bytes]  # kind, from which rank, header, body


class EarlyMessages:
    """The early messages of all unknown steps.

    `on_unwanted` is called with a step that no client here has launched, and the ranks that sent messages for it.
    `is_awaited`: whether a launch waits for its answer; the messages may be for it.
    """

    def __init__(self, on_unwanted: Callable[[Key, set[int]], None]) -> None:
        self.is_awaited: Callable[[], bool] = lambda: False
        self._on_unwanted = on_unwanted
        self._kept: dict[Key, list[Heard]] = {}
        self._missed: dict[Key, set[int]] = {}
        self._size = 0
        self._loop = asyncio.get_running_loop()

    def keep(self, key: Key, heard: Heard) -> None:
        """Keep a message; without room, record only the sender's rank as missed."""
        if key not in self._kept:
            self._kept[key], self._missed[key] = [], set()
            self._loop.call_later(_SECONDS, self._look, key)
        if (size := self._size + _size(heard)) > _MOST:
            self._missed[key].add(heard[1])
        else:
            self._size = size
            self._kept[key].append(heard)

    def take(self, key: Key) -> tuple[list[Heard], set[int]]:
        """Return the messages for a step, and the ranks with missed messages."""
        kept = self._kept.pop(key, [])
        self._size -= sum(map(_size, kept))
        return kept, self._missed.pop(key, set())

    def _look(self, key: Key) -> None:
        if key not in self._kept:
            return
        if self.is_awaited():
            self._loop.call_later(_SECONDS, self._look, key)
            return
        kept, missed = self.take(key)
        self._on_unwanted(key, missed | {rank for _, rank, _, _ in kept})


def _size(heard: Heard) -> int:
    return _OF_EACH + len(heard[3])
