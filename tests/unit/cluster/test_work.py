"""What an agent does when it hears of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodectl.cluster.agent.main import Work
from nodectl.cluster.agent.place import Place
from nodectl.service.config_file.reader import load


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


def test_a_guest_that_is_lost_is_no_mistake_and_no_node(tmp_path: Path) -> None:
    async def play() -> None:
        post: Any = Post()
        config = load("/nonexistent", must_exist=False)
        work = Work(post, Place(7, 0, ["n0", "n1"], ["login"]), str(tmp_path), f"{tmp_path}/node.sock", config)
        known: list[object] = []
        for rank in (2, 1):
            for told in post.lost:
                told(rank, "it has not been heard for too long")
            known.append(dict(work._hello.answer())["cluster"])
        assert known == [{"job": 7, "nodes": 2}, {"job": 7, "nodes": 2, "lost": 1}]

    asyncio.run(play())
