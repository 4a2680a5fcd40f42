"""The interface by which agents send messages: kinds with a header, mostly about a step."""

from collections.abc import Mapping
from typing import Any, Protocol

Header = Mapping[str, Any]
Key = tuple[int, int]  # job and step


class Post(Protocol):
    """The part of the mesh used here."""

    rank: int

    def send(self, to: int, kind: str, header: Mapping[str, object], body: bytes = b"") -> None:
        """See `nodectl.cluster.mesh.mesh`."""

    def send_each(self, kind: str, common: Mapping[str, object], each: Mapping[int, object], body: bytes = b"") -> None:
        """See `nodectl.cluster.mesh.mesh`."""


class LargePost(Post, Protocol):
    """The interface for senders of much data."""

    def room(self, to: int) -> bool:
        """See `nodectl.cluster.mesh.mesh`."""

    async def drained(self, to: int) -> None:
        """See `nodectl.cluster.mesh.mesh`."""
