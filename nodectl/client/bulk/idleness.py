"""For how long a step has had nothing to do: until it is given back."""

import time

_MOST = 1.0  # seconds without a command


class Idleness:
    """Of one step. `seconds`: how many are left of those that it may be idle, None while it is busy."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: float | None = None

    def note(self, *, idle: bool) -> None:
        """Whether it has something to do now."""
        if not idle:
            self._until = None
        elif self._until is None:
            self._until = time.monotonic() + _MOST

    @property
    def seconds(self) -> float | None:
        """See the class."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the step is to be given back."""
        return self._until is not None and time.monotonic() >= self._until
