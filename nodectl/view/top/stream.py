"""The lines of output of a step's tasks, read from the connection given by View."""

from __future__ import annotations

import select
import socket

from nodectl.model.wire import terminal_packets as packets
from nodectl.model.words import printable

_PIECE = 16384  # bytes that are taken at a time


class Stream:
    """A reader of output lines. Text without a line end becomes a line if no more output follows."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._rest: dict[tuple[bytes, int], bytes] = {}
        self.is_open = True

    def close(self) -> None:
        """Stop reading."""
        self.is_open = False
        self._sock.close()

    def read(self, milliseconds: int) -> list[str]:
        """Return the next lines, after `milliseconds` at the latest."""
        if not self._poll.poll(milliseconds):
            return self._unfinished()
        lines: list[str] = []
        got = 0
        while got < _PIECE:
            try:
                raw = self._sock.recv(packets.LONGEST + packets.HEAD)
            except BlockingIOError:
                break
            except OSError:
                raw = b""
            if not raw:
                self.close()
                return [*lines, *self._unfinished()]
            got += len(raw)
            lines += self._lines(*packets.split(raw))
        return lines

    def _lines(self, kind: bytes, task: int, data: bytes) -> list[str]:
        if kind == packets.NOTE:
            return [f"-- {_words(data)} --"]
        if kind not in (packets.OUT, packets.ERR):
            return []
        *whole, rest = (self._rest.pop((kind, task), b"") + data).split(b"\n")
        if rest:
            self._rest[kind, task] = rest[-packets.LONGEST :]
        return [_words(line) for line in whole]

    def _unfinished(self) -> list[str]:
        lines = [_words(rest) for rest in self._rest.values()]
        self._rest.clear()
        return lines


def _words(line: bytes) -> str:
    """Return the text of a line without characters able to move the reader's cursor."""
    return printable(line.decode("utf-8", "surrogateescape").rstrip("\r").expandtabs())
