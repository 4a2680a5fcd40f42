"""The daemon's event loop: asyncio's, over an epoll(7) set that is told numbers of descriptors and nothing else.

The selector of the standard library takes anything that has a descriptor and looks it up again and again, which is a
good part of what a short step costs the daemon. This one relies on asyncio, which names each by its number.
"""

import asyncio
import math
import select
from collections.abc import Mapping
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from typing import Any

_READ, _WRITE = ~select.EPOLLOUT, ~select.EPOLLIN  # an error is both


def make() -> asyncio.AbstractEventLoop:
    """A new loop."""
    return asyncio.SelectorEventLoop(Numbers())


class Numbers(BaseSelector):
    """A selector of descriptors by number."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[int, SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        """Raises KeyError for one that is there, OSError for one that epoll does not take, TypeError for an object that
        has one: what happens there would be nobody's.
        """
        if fileobj.__class__ is not int:
            raise TypeError(f"not the number of a descriptor: {fileobj!r}")
        if fileobj in self._keys:
            raise KeyError(fileobj)
        self._epoll.register(fileobj, _mask(events))
        key = self._keys[fileobj] = SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> SelectorKey:
        """Raises KeyError. One that was closed has gone by itself."""
        key = self._keys.pop(fileobj)
        try:
            self._epoll.unregister(fileobj)
        except OSError:
            pass
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        """Raises KeyError."""
        if events != self._keys[fileobj].events:
            self._epoll.modify(fileobj, _mask(events))
        key = self._keys[fileobj] = SelectorKey(fileobj, fileobj, events, data)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """What is ready, within so many seconds (None: whenever that is)."""
        # epoll_wait(2) counts in milliseconds; a little later is better than again and again a little too early.
        wait = -1.0 if timeout is None else math.ceil(max(timeout, 0) * 1e3) * 1e-3
        ready, keys = [], self._keys
        for fd, event in self._epoll.poll(wait, len(keys) or 1):
            key = keys.get(fd)
            if key is not None:
                events = (EVENT_READ if event & _READ else 0) | (EVENT_WRITE if event & _WRITE else 0)
                ready.append((key, events & key.events))
        return ready

    def get_key(self, fileobj: Any) -> SelectorKey:
        """Raises KeyError."""
        return self._keys[fileobj]

    def get_map(self) -> Mapping[Any, SelectorKey]:
        """By number."""
        return self._keys

    def close(self) -> None:
        """No more."""
        self._epoll.close()
        self._keys.clear()


def _mask(events: int) -> int:
    return (select.EPOLLIN if events & EVENT_READ else 0) | (select.EPOLLOUT if events & EVENT_WRITE else 0)
