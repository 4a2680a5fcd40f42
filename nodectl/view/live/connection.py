"""The connection for repeated looks at the service."""

from __future__ import annotations

from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.session import Session

_PATIENCE = 10.0  # seconds


class Connections:
    """The connections of several threads, ended without waiting for a service that hangs."""

    def __init__(self, settings: GlobalOptions) -> None:
        self._settings = settings
        self._made: list[Session] = []
        self._left = False

    def connect(self) -> Session:
        """Make a connection. Raises Failed."""
        if self._left:
            raise Failed("it is being left")
        session = connect(self._settings)
        self._made = [one for one in self._made if one.is_open] + [session]
        return session

    def leave(self) -> None:
        """End all connections; threads waiting for an answer wait no longer."""
        self._left = True
        for session in self._made:
            session.hang_up()


def connect(settings: GlobalOptions) -> Session:
    """Make a connection with a time limit for each answer, without starting a private node. Raises Failed."""
    session = Session(settings, start_private=False)
    session.wait_at_most(_PATIENCE)
    return session
