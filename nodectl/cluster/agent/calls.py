"""Calls of org.nodectl to the daemon of the agent's own node, which may restart in between."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.client.api.async_session import AsyncSession, may_ask_again
from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.session import Gone, NotTaken

_MOST_IDLE = 64
_PATIENCE = 60.0  # seconds for the restart of a daemon
_AGAIN = 0.05


class Calls:
    """The calls to a daemon's socket. Each running call has a separate connection."""

    def __init__(self, path: str) -> None:
        self._settings = GlobalOptions()
        self._settings.config, self._settings.socket = None, path
        self._idle: list[AsyncSession] = []

    async def ask(
        self, method: str, parameters: Mapping[str, object], fds: Sequence[int] = ()
    ) -> tuple[Mapping[str, Any], list[int]]:
        """Return the reply and the descriptors sent along, which then belong to the caller. Raises Failed."""
        while True:
            session = self._idle.pop() if self._idle else await self._connected()
            keep = False
            try:
                reply = await session.request(method, fds, parameters)
                keep = True
                return reply, session.take_descriptors()
            except Gone as gone:
                # A launch that was not taken leaves its descriptors here.
                if not may_ask_again(method, gone, fds) and not isinstance(gone, NotTaken):
                    raise
            except Failed as failed:
                keep = bool(failed.name)
                raise
            finally:  # after a cancellation the answer may come later, and must not be taken for that of another call
                if keep and len(self._idle) < _MOST_IDLE:
                    self._idle.append(session)
                else:
                    session.close()

    async def _connected(self) -> AsyncSession:
        until = asyncio.get_running_loop().time() + _PATIENCE
        while True:
            try:
                return AsyncSession(self._settings, start_private=False)
            except Failed:
                if asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(_AGAIN)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()
