"""The calls of a bulk to the step: sent between signals, or by a signal's handler."""

from typing import TYPE_CHECKING

from nodectl.client.command import Failed

if TYPE_CHECKING:
    from nodectl.client.session import Events
    from nodectl.client.signals import Signals

_NOT_RUN = 255  # exit status: the fate of the commands is unknown


class Calls:
    """The calls to a step. An ended step needs no calls: the last event is on the way."""

    __slots__ = ("_events", "_signals")

    def __init__(self, events: "Events", signals: "Signals") -> None:
        self._events = events
        self._signals = signals

    def send(self, data: bytes) -> None:
        """Send a message whole, before a signal's handler may send another. Raises Failed."""
        self._signals.hold()
        try:
            self._events.send(data)
        except ConnectionError:
            pass
        except OSError as error:  # the step would wait for these commands for ever
            raise Failed(f"send commands to the step: {error.strerror}", _NOT_RUN) from error
        finally:
            self._signals.release()

    def call(self, method: str) -> None:
        """Send a call without parameters. Raises Failed."""
        self.send(self._events.message(method))

    def pass_on(self, number: int, before: str = "") -> None:
        """Send a signal, 0 for none, after the call `before`. Raises Failed.

        A signal's handler calls this at any moment, as no message is half written.
        """
        try:
            if before:
                self._events.call(before)
            if number:
                self._events.call("Signal", signal=number, forwarded=True)
        except ConnectionError:
            return
        except OSError as error:
            raise Failed(f"send a signal to the step: {error.strerror}", _NOT_RUN) from error
