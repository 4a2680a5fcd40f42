"""What is done to a running step, whoever waits for it and how."""

import signal


class Control:
    """Of a step with a way to it."""

    def signal(self, number: int) -> None:
        """Signals its tasks; SIGKILL reaches everything that they started. Nothing happens when it has ended."""
        self._call("Signal", signal=int(number), forwarded=True)

    def cancel(self) -> None:
        """It is to end: SIGTERM, later SIGKILL. Nobody waits for that here."""
        self._call("End")

    def kill(self) -> None:
        """SIGKILL to all of it."""
        self.signal(signal.SIGKILL)

    def _call(self, method: str, **parameters: object) -> None:
        """Calls a method of org.nodectl.step, and wants no answer."""
        raise NotImplementedError
