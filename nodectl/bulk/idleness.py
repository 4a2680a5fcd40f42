"""The idle time of a step, until the step is given back."""

import time

_MOST = 1.0  # seconds without a command


class Idleness:
    """The idle time of a step. `seconds`: the seconds left to idle, None while the step is busy."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: float | None = None

    def note(self, *, idle: bool) -> None:
        """Note whether the step is idle now."""
        if not idle:
            self._until = None
        elif self._until is None:
            self._until = time.monotonic() + _MOST

    @property
    def seconds(self) -> float | None:
        """The seconds left to idle, None while busy."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the step should be given back."""
        return self._until is not None and time.monotonic() >= self._until
