"""Launches that wait for nodes, in the order in which they came.

A queue of its own, and not `nodectl.scheduler`: that one is about jobs, which have priorities, limits, dependencies and
a life on the disk, and it decides once in a round. A step waits for what other steps of the same user hold for
milliseconds; srun's rule for it is that it waits, and starts when it fits. A launch that fits passes those before it
that do not, but each of these no more than `_PASSES` times: then what becomes free is kept for that one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from nodectl.cluster.leader.asked import Asked
from nodectl.cluster.leader.steps import Caller

_MOST = 16_384
_MOST_BYTES = 128 << 20
_PASSES = 256
_MOST_KINDS = 64  # looked at in one round


class Waiting:
    """One launch that waits: since when, until when (0: for ever), how many bytes it takes, how often it was passed.
    `number`: of the step that it will be, -1 until it has to wait.
    """

    __slots__ = ("asked", "call", "number", "passed", "place", "since", "size", "streams", "until")

    def __init__(self, call: Caller, asked: Asked, size: int, since: float, *, streams: bool) -> None:
        self.call = call
        self.asked = asked
        self.size = size
        self.since = since
        self.until = 0.0 if asked.immediate is None else since + asked.immediate
        self.streams = streams
        self.number = -1
        self.passed = 0
        self.place = 0


class Line:
    """All that wait. Those that need the same wait behind one another: where the first has no room, none has."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], OrderedDict[Caller, Waiting]] = {}
        self._by_call: dict[Caller, Waiting] = {}
        self._limited: dict[Caller, Waiting] = {}  # those that do not wait for ever
        self._bytes = 0
        self._count = 0

    def __len__(self) -> int:
        return len(self._by_call)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(sorted(self._by_call.values(), key=lambda one: one.place))

    def has_room(self, size: int) -> bool:
        """Whether one more of so many bytes can wait."""
        return len(self._by_call) < _MOST and self._bytes + size <= _MOST_BYTES

    def add(self, one: Waiting) -> None:
        """At the end."""
        self._count += 1
        one.place = self._count
        self._kinds.setdefault(one.asked.alike, OrderedDict())[one.call] = one
        self._by_call[one.call] = one
        if one.until:
            self._limited[one.call] = one
        self._bytes += one.size

    def remove(self, call: Caller) -> Waiting | None:
        """It waits no more; None for one that does not wait."""
        one = self._by_call.pop(call, None)
        self._limited.pop(call, None)
        if one is not None:
            kind = self._kinds[one.asked.alike]
            del kind[call]
            if not kind:
                del self._kinds[one.asked.alike]
            self._bytes -= one.size
        return one

    def get(self, call: Caller) -> Waiting | None:
        """Who waits for the answer to this call."""
        return self._by_call.get(call)

    def deadline(self) -> float | None:
        """When the next one gives up waiting."""
        return min((one.until for one in self._limited.values()), default=None)

    def overdue(self, now: float) -> list[Waiting]:
        """Those that have waited as long as they may."""
        return [one for one in self._limited.values() if one.until <= now]

    def go(self, start: Callable[[Waiting], bool]) -> None:
        """Something has become free: `start` starts a launch and removes it, or says that it does not fit."""
        blocked: set[tuple[object, ...]] = set()
        passed: list[Waiting] = []
        for _ in range(len(self._by_call)):
            heads = [next(iter(kind.values())) for key, kind in self._kinds.items() if key not in blocked]
            if not heads or len(blocked) >= _MOST_KINDS:
                return
            head = min(heads, key=lambda one: one.place)
            if start(head):
                for one in passed:
                    one.passed += 1
                    if one.passed >= _PASSES:
                        return
            else:
                if head.passed >= _PASSES:
                    return
                blocked.add(head.asked.alike)
                passed.append(head)

    def may_pass(self, alike: tuple[object, ...]) -> bool:
        """Whether a launch that has just come, and needs this, may start before those that wait."""
        heads = (next(iter(kind.values())) for kind in self._kinds.values())
        return alike not in self._kinds and all(head.passed < _PASSES for head in heads)

    def was_passed(self) -> None:
        """One has."""
        for kind in self._kinds.values():
            next(iter(kind.values())).passed += 1
