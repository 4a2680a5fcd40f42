"""A limit of connections: every user of the machine can open connections to a port of 127.0.0.1, and stay silent."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST = 64
_open: dict[H11Protocol, None] = {}  # ordered by last activity, the most recent last


class Connection(H11Protocol):
    """A connection, of at most `MOST`.

    A new connection replaces the connection with the longest silence, but no connection with a request in progress if
    there is another. So no user can keep the page's own user out.
    """

    def connection_made(self, transport: Any) -> None:
        """Add the connection, and abort a silent connection at the limit."""
        super().connection_made(transport)
        if len(_open) >= MOST:
            silent = next((one for one in _open if not _waits(one)), next(iter(_open)))
            del _open[silent]
            silent.transport.abort()
        _open[self] = None

    def data_received(self, data: bytes) -> None:
        """Note the activity, and pass the data on."""
        if self not in _open:
            return  # it was aborted
        del _open[self]
        _open[self] = None
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        _open.pop(self, None)
        super().connection_lost(exc)


def _waits(one: H11Protocol) -> bool:
    """Return True if the connection waits for an answer."""
    cycle: RequestResponseCycle | None = one.cycle
    return cycle is not None and not cycle.response_complete
