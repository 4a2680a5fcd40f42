"""The one way in which a request is turned down."""


class Refused(Exception):
    """The request cannot be met or makes no sense; `reason` is one line for its user."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
