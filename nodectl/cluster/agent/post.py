"""What agents send each other through, and what they send: kinds of messages with a header, most of them of a step."""

from collections.abc import Mapping
from typing import Any, Protocol

Header = Mapping[str, Any]
Key = tuple[int, int]  # job and step


class Post(Protocol):
    """The mesh, as far as it is used here."""

    rank: int

    def send(self, to: int, kind: str, header: Mapping[str, object], body: bytes = b"") -> None:
        """See `nodectl.cluster.mesh.mesh`."""

    def send_each(self, kind: str, common: Mapping[str, object], each: Mapping[int, object], body: bytes = b"") -> None:
        """Likewise."""


class LargePost(Post, Protocol):
    """For who sends much."""

    def room(self, to: int) -> bool:
        """Likewise."""

    async def drained(self, to: int) -> None:
        """Likewise."""
