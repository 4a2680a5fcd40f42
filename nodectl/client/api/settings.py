"""Which service a client speaks to, and what both kinds of clients know of it."""

import os
from collections.abc import Sequence

from nodectl.client.api.values import Record
from nodectl.client.command import GlobalOptions


class Settings(GlobalOptions):
    """Those of a program: what is given goes before NODECTL_SOCKET and NODECTL_CONFIG."""

    __slots__ = ()

    def __init__(self, socket: str | os.PathLike[str] | None, config: str | os.PathLike[str] | None) -> None:
        super().__init__()
        if config is not None:
            self.config, self.socket = os.fsdecode(config), None
        if socket is not None:
            self.socket = os.fsdecode(socket)


class Heard:
    """What a step has told so far: the pids of its tasks, lines of nodectl and its plugins, at the end its record."""

    def __init__(self) -> None:
        self.pids: Sequence[int] = ()
        self.messages: list[str] = []
        self.record: Record | None = None
        self.over = False  # no more comes

    def take(self, messages: Sequence[Record], *, alive: bool) -> None:
        """What was read of its events."""
        for message in messages:
            event = message["parameters"]["event"]
            if event["event"] == "start":
                self.pids = tuple(event["pids"])
            elif event["event"] == "message":
                self.messages.append(event["text"])
            elif event["event"] == "end":
                self.record = event["record"]
        self.over = self.over or not alive or self.record is not None
