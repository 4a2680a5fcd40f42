"""Reports the daemon's state to the service manager, by datagrams as of sd_notify(3). In the daemon's event loop.

The loop never waits for the manager: a manager that reads nothing would hold up every user's calls. The socket is
opened once, so that a daemon without a free descriptor still feeds the watchdog.
"""

from __future__ import annotations

import asyncio
import collections
import os
import socket

from nodectl import messages

_AGAIN = 0.5  # seconds until a state is sent again to a manager that reads nothing
_MOST_UNSENT = 16  # states kept for such a manager


class ServiceManager:
    """The manager named by NOTIFY_SOCKET, if any. The constructor raises OSError where no socket can be opened."""

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
        self._unsent: collections.deque[str] = collections.deque(maxlen=_MOST_UNSENT)
        self._later: asyncio.TimerHandle | None = None

    def tell(self, state: str) -> None:
        """Send a state. States arrive in order, and later where the manager does not read now."""
        if self._socket is not None:
            self._unsent.append(state)
            self._send_unsent()

    def feed_watchdog(self) -> None:
        """Report that the daemon lives. A manager that does not read now misses only this report."""
        if self._socket is not None and not self._unsent:
            self._send(self._socket, "WATCHDOG=1")

    def _send_unsent(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        while self._unsent and self._socket is not None:
            if not self._send(self._socket, self._unsent[0]):
                self._later = asyncio.get_running_loop().call_later(_AGAIN, self._send_unsent)
                return
            self._unsent.popleft()

    def _send(self, sender: socket.socket, state: str) -> bool:
        """Send a datagram. Return False while the manager's queue is full."""
        try:
            sender.sendto(state.encode(), socket.MSG_DONTWAIT, self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            messages.tell("manager-not-told", f"notify the service manager: {error.strerror}")
        return True
