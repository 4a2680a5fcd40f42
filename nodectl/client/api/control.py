"""Control of a running step: signal, cancel, kill."""

import signal


class Control:
    """The control methods of a step; a subclass provides `_call`."""

    def signal(self, number: int) -> None:
        """Send a signal to the step's tasks; SIGKILL reaches all processes started by the tasks.

        Do nothing when the step has ended.
        """
        self._call("Signal", signal=int(number), forwarded=True)

    def cancel(self) -> None:
        """Ask the step to end: SIGTERM, later SIGKILL. Do not wait for the end."""
        self._call("End")

    def kill(self) -> None:
        """Send SIGKILL to the tasks and all processes started by the tasks."""
        self.signal(signal.SIGKILL)

    def _call(self, method: str, **parameters: object) -> None:
        """Call a method of org.nodectl.step, without waiting for an answer."""
        raise NotImplementedError
