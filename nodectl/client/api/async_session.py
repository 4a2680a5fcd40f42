"""A session for use in an event loop: no call blocks the loop."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from nodectl.client.command import Failed
from nodectl.client.session import ONCE, Gone, NotTaken, Session
from nodectl.model.wire import framing
from nodectl.model.wire.names import NODE


async def _until(add: Callable[..., object], remove: Callable[[int], object], fd: int) -> None:
    """Wait until `add` reports the descriptor ready."""
    ready = asyncio.Event()
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)


async def readable(fd: int) -> None:
    """Wait until the descriptor has data, or is at the end."""
    loop = asyncio.get_running_loop()
    await _until(loop.add_reader, loop.remove_reader, fd)


async def _writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    await _until(loop.add_writer, loop.remove_writer, fd)


class AsyncSession(Session):
    """A session with awaitable calls, a single call at a time. Connects at once, which a local socket permits."""

    __slots__ = ()

    async def request(self, method: str, fds: Sequence[int], parameters: Mapping[str, object]) -> Mapping[str, object]:
        """Call a method like `call`, but leave asking the next service to the caller. Raises Failed."""
        message = framing.encode({"method": f"{NODE}.{method}", "parameters": parameters})
        self._sock.setblocking(False)
        unread = False
        try:
            try:
                await self._send(message, fds)
            except ConnectionError:
                unread = True  # what closed the connection may have said why
            reply = await self._receive()
        except ConnectionError:
            reply, unread = None, True
        except (OSError, framing.BrokenWire) as error:
            raise Failed(f"{method}: the connection to the service broke: {error}") from None
        return self._answer(method, reply, unread=unread)

    async def _send(self, message: bytes, fds: Sequence[int]) -> None:
        while message:
            try:
                message = message[framing.send_some(self._sock, message, fds) :]
                fds = ()
            except BlockingIOError:
                await _writable(self._sock.fileno())

    async def _receive(self) -> Mapping[str, object] | None:
        while (message := self._inbox.next()) is None:
            try:
                alive = self._inbox.receive(self._sock)
            except BlockingIOError:
                await readable(self._sock.fileno())
                continue
            if not alive:
                if self._inbox.partial:
                    raise framing.BrokenWire("the connection ended inside a message")
                return None
        return message


def may_ask_again(method: str, failed: Failed, fds: Sequence[int]) -> bool:
    """Return True if the caller may send the same call to the next service."""
    return isinstance(failed, Gone) and not fds and (isinstance(failed, NotTaken) or method not in ONCE)
