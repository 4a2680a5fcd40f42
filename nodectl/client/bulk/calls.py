"""The calls of a bulk to its step: sent between signals, and by the handler of one."""

from nodectl.client.command import Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.client.session import Events
    from nodectl.client.signals import Signals

_NOT_RUN = 255  # exit status: what became of the commands nobody knows


class Calls:
    """To one step. A step that has ended needs none: its last event is on the way."""

    __slots__ = ("_events", "_signals")

    def __init__(self, events: "Events", signals: "Signals") -> None:
        self._events = events
        self._signals = signals

    def send(self, data: bytes) -> None:
        """A message, whole before a signal's handler may send one. Raises Failed."""
        self._signals.hold()
        try:
            self._events.send(data)
        except ConnectionError:
            pass
        except OSError as error:  # the step would wait for ever for what it did not get
            raise Failed(f"send commands to the step: {error.strerror}", _NOT_RUN) from error
        finally:
            self._signals.release()

    def call(self, method: str) -> None:
        """A call without parameters. Raises Failed."""
        self.send(self._events.message(method))

    def pass_on(self, number: int, before: str = "") -> None:
        """A signal, 0 for none, behind the call `before`: by a signal's handler, which may tell the step at once, as no
        message is half written. Raises Failed.
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
