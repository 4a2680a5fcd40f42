"""The service of a client, and the state both kinds of clients keep of a step."""

import os
from collections.abc import Sequence

from nodectl.client.api.values import Record
from nodectl.client.command import GlobalOptions


class ApiSettings(GlobalOptions):
    """The settings of a program: arguments override NODECTL_SOCKET and NODECTL_CONFIG."""

    __slots__ = ()

    def __init__(self, socket: str | os.PathLike[str] | None, config: str | os.PathLike[str] | None) -> None:
        super().__init__()
        if config is not None:
            self.config, self.socket = os.fsdecode(config), None
        if socket is not None:
            self.socket = os.fsdecode(socket)


class Heard:
    """The events of a step so far: pids of the tasks, lines of nodectl and plugins, and finally the step's record."""

    def __init__(self) -> None:
        self.pids: Sequence[int] = ()
        self.messages: list[str] = []
        self.record: Record | None = None
        self.over = False  # no more comes

    def take(self, messages: Sequence[Record], *, alive: bool) -> None:
        """Add messages read from the step's events."""
        for message in messages:
            event = message["parameters"]["event"]
            if event["event"] == "start":
                self.pids = tuple(event["pids"])
            elif event["event"] == "message":
                self.messages.append(event["text"])
            elif event["event"] == "end":
                self.record = event["record"]
        self.over = self.over or not alive or self.record is not None
