"""Puts off the handlers of signals, such as the KeyboardInterrupt of Ctrl-C, while a reply must not get lost."""

import signal
from collections.abc import Callable
from types import FrameType

_Handler = Callable[[int, FrameType | None], object]


class LateHandlers:
    """A `with` block that calls the program's handlers of signals at its end, because they may raise.

    A second signal of the same number calls its handler at once: the program may not want to wait for the reply. The
    block does nothing unless `wanted`, and in other threads than the main one, where no handler runs.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._handlers: dict[int, _Handler] = {}
        self._noted: dict[int, FrameType | None] = {}

    def __enter__(self) -> None:
        if not self._wanted:
            return
        try:
            self._replace()
        except ValueError:  # this is not the main thread
            self._handlers.clear()
        except BaseException:  # of a handler that was not replaced yet
            self._restore()
            raise

    def _replace(self) -> None:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in self._noted:
            self._handlers[number](number, frame)
        self._noted[number] = frame

    def __exit__(self, *_: object) -> None:
        try:
            try:
                self._restore()
            except BaseException:  # of a handler that is in its place already
                self._restore()
                raise
        finally:
            self._call_noted()

    def _call_noted(self) -> None:
        """Call the handlers of the noted signals, all of them, even if one raises."""
        if self._noted:
            number = next(iter(self._noted))
            frame = self._noted.pop(number)
            try:
                self._handlers[number](number, frame)
            finally:
                self._call_noted()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
