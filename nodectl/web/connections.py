"""How many connections there are: every user of the machine can make some to a port of 127.0.0.1, and say nothing."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST = 64
_open: dict[H11Protocol, None] = {}  # who has said something last is the last one


class Connection(H11Protocol):
    """One of at most `MOST`. A new one takes the place of who has been silent for longest, which is not who waits for
    an answer: so nobody keeps out the page's own user.
    """

    def connection_made(self, transport: Any) -> None:
        """It has come."""
        super().connection_made(transport)
        if len(_open) >= MOST:
            silent = next((one for one in _open if not _waits(one)), next(iter(_open)))
            del _open[silent]
            silent.transport.abort()
        _open[self] = None

    def data_received(self, data: bytes) -> None:
        """It says something."""
        if self not in _open:
            return  # it had to leave
        del _open[self]
        _open[self] = None
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        _open.pop(self, None)
        super().connection_lost(exc)


def _waits(one: H11Protocol) -> bool:
    """For its answer."""
    cycle: RequestResponseCycle | None = one.cycle
    return cycle is not None and not cycle.response_complete
