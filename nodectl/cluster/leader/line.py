"""Launches waiting for nodes, in the order of arrival.

A queue of its own, and not `nodectl.scheduler`: the scheduler is for jobs, which have priorities, limits, dependencies
and a life on the disk, and decides once in a round. A step waits milliseconds for resources that other steps of the
same user hold; srun's rule for a step is to wait, and to start when it fits. A launch that fits passes earlier launches
that do not, but each of them at most `_PASSES` times: then free resources are kept for that launch.
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
    """A waiting launch: since when, until when (0: for ever), bytes, how often later launches have passed it.

    `number`: the number of its future step, -1 until the launch has to wait.
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
    """All waiting launches.

    Launches with the same needs wait behind one another: where the first has no room, none has.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], OrderedDict[Caller, Waiting]] = {}
        self._by_call: dict[Caller, Waiting] = {}
        self._limited: dict[Caller, Waiting] = {}  # launches with a time limit for waiting
        self._bytes = 0
        self._count = 0

    def __len__(self) -> int:
        return len(self._by_call)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(sorted(self._by_call.values(), key=lambda one: one.place))

    def has_room(self, size: int) -> bool:
        """Return whether another launch of `size` bytes can wait."""
        return len(self._by_call) < _MOST and self._bytes + size <= _MOST_BYTES

    def add(self, one: Waiting) -> None:
        """Add a launch at the end."""
        self._count += 1
        one.place = self._count
        self._kinds.setdefault(one.asked.alike, OrderedDict())[one.call] = one
        self._by_call[one.call] = one
        if one.until:
            self._limited[one.call] = one
        self._bytes += one.size

    def remove(self, call: Caller) -> Waiting | None:
        """Remove and return a waiting launch; None where the call has none."""
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
        """Return the waiting launch of this call; None for none."""
        return self._by_call.get(call)

    def deadline(self) -> float | None:
        """Return the time at which the next launch gives up; None for none."""
        return min((one.until for one in self._limited.values()), default=None)

    def overdue(self, now: float) -> list[Waiting]:
        """Return the launches past the end of the wait."""
        return [one for one in self._limited.values() if one.until <= now]

    def go(self, start: Callable[[Waiting], bool]) -> None:
        """Start all launches with room now.

        `start` starts and removes a launch and returns True, or returns False where the launch does not fit.
        """
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
        """Return whether a new launch with such needs may start before the waiting launches."""
        heads = (next(iter(kind.values())) for kind in self._kinds.values())
        return alike not in self._kinds and all(head.passed < _PASSES for head in heads)

    def was_passed(self) -> None:
        """Count a start of a new launch before the waiting launches."""
        for kind in self._kinds.values():
            next(iter(kind.values())).passed += 1
