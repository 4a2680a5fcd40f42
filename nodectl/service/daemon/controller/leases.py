"""Leases of jobs with waiting clients: the daemon cancels a job some time after the client has gone.

A waiting client asks again and again (Await). It may lose its connection and come back, even over a restart of the
daemon. Used only from the event loop.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Lease:
    __slots__ = ("asking", "latest", "timer")

    def __init__(self, now: float) -> None:
        self.asking = 0
        self.latest = now
        self.timer: asyncio.TimerHandle | None = None


class Leases:
    """The leases of the node. When `seconds` pass between two questions of a client, `over(job)` is called, once."""

    def __init__(self, seconds: float, over: Callable[[int], None]) -> None:
        self._seconds = seconds
        self._over = over
        self._leases: dict[int, _Lease] = {}

    def begin(self, job: int) -> None:
        """Begin a job's lease: the client must ask from now on."""
        if job not in self._leases:
            loop = asyncio.get_running_loop()
            lease = self._leases[job] = _Lease(loop.time())
            lease.timer = loop.call_later(self._seconds, self._look, job)

    def __contains__(self, job: int) -> bool:
        return job in self._leases

    def end(self, job: int) -> None:
        """End a job's lease: the first step has begun, or the job has ended."""
        lease = self._leases.pop(job, None)
        if lease is not None and lease.timer is not None:
            lease.timer.cancel()

    def end_all(self) -> None:
        """End all leases, because the daemon ends. The next daemon begins the leases anew."""
        for job in list(self._leases):
            self.end(job)

    @contextmanager
    def asked(self, job: int) -> Iterator[None]:
        """Keep the lease alive while the client's question is open, and for `seconds` afterwards."""
        lease = self._leases.get(job)
        if lease is None:
            yield
            return
        lease.asking += 1
        try:
            yield
        finally:
            lease.asking -= 1
            lease.latest = asyncio.get_running_loop().time()

    def _look(self, job: int) -> None:
        lease = self._leases.get(job)
        if lease is None:
            return
        loop = asyncio.get_running_loop()
        left = self._seconds if lease.asking else lease.latest + self._seconds - loop.time()
        if left > 0:
            lease.timer = loop.call_later(left, self._look, job)
            return
        del self._leases[job]
        self._over(job)
