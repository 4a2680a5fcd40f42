"""The connection of who looks at the service again and again."""

from __future__ import annotations

from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.session import Session

_PATIENCE = 10.0  # seconds


class Connections:
    """Those of who looks in several threads, and leaves without waiting for a service that hangs."""

    def __init__(self, settings: GlobalOptions) -> None:
        self._settings = settings
        self._made: list[Session] = []
        self._left = False

    def connect(self) -> Session:
        """One more. Raises Failed."""
        if self._left:
            raise Failed("it is being left")
        session = connect(self._settings)
        self._made = [one for one in self._made if one.is_open] + [session]
        return session

    def leave(self) -> None:
        """Who waits for an answer in one of them waits no longer."""
        self._left = True
        for session in self._made:
            session.hang_up()


def connect(settings: GlobalOptions) -> Session:
    """One that gives up when the service hangs; no private node is started. Raises Failed."""
    session = Session(settings, start_private=False)
    session.wait_at_most(_PATIENCE)
    return session
