"""What an agent does when it hears of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodectl.cluster.agent.main import Work
from nodectl.cluster.agent.place import Place


class Post:
    """The mesh of an agent that is alone."""

    rank = 0

    def __init__(self) -> None:
        self.lost: list[Callable[[int, str], None]] = []

    def handle(self, kind: str, handler: Callable[..., None]) -> None:
        """Nothing comes."""

    def on_lost(self, told: Callable[[int, str], None]) -> None:
        self.lost.append(told)

    def on_resumed(self, told: Callable[[int], None]) -> None:
        """Nothing is cut."""

    def send(self, *_: object) -> None:
        """Nobody is there."""

    send_each = send


def test_a_guest_that_is_lost_is_no_mistake(tmp_path: Path) -> None:
    async def play() -> None:
        post: Any = Post()
        Work(post, Place(7, 0, ["n0", "n1"], ["login"]), str(tmp_path), f"{tmp_path}/node.sock")
        for told in post.lost:
            told(2, "it has not been heard for too long")

    asyncio.run(play())
