"""Sends mutated messages with odd descriptors over many connections, and reads what comes back."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import prctl

from torture.foe import HOSTILE
from torture.messages import calls, mutated
from torture.odd import Odd

_CONNECTIONS = 24
_PATIENCE = 3  # ms that an answer is waited for; what takes longer is read later, or never
_BUSY = 100  # ms for room to send
_WITH_DESCRIPTORS = 0.25
_UNANSWERED = 0.002
_MOST_UNANSWERED = 1  # each costs the user a session until its file system is gone, and there are four
_LINGER = 1


@dataclass
class Weather:
    """What one sender has seen."""

    sent: int = 0
    descriptors: int = 0
    unanswered: int = 0  # more that may be sent of what is never closed: who sends many is soon served slowly
    replies: Counter[str] = field(default_factory=Counter)
    internal: list[str] = field(default_factory=list)


def begin(node_socket: Path, count: int, file: str, seed: int) -> tuple[int, int]:
    """Forks a sender of `count` messages: its pid, and a pipe on which it tells how many it has sent, at last all."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            prctl.set_pdeathsig(signal.SIGKILL)
            os.setgroups([])
            os.setgid(HOSTILE.pw_gid)
            os.setuid(HOSTILE.pw_uid)
            _send(str(node_socket), count, Odd(random.Random(seed), file, _LINGER), random.Random(seed), writer)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(writer)
    return pid, reader


def _send(path: str, count: int, odd: Odd, rng: random.Random, told: int) -> None:
    weather, valid = Weather(unanswered=_MOST_UNANSWERED if odd.unanswered >= 0 else 0), calls(rng)
    held: list[_Line | None] = [None] * _CONNECTIONS
    while weather.sent < count:
        place = rng.randrange(_CONNECTIONS)
        line = held[place]
        if line is None:
            try:
                line = held[place] = _Line(path)
            except OSError:
                select.select([], [], [], 0.02)
                continue
        if not line.exchange(mutated(rng, valid), odd, rng, weather) or rng.random() < 0.01:
            line.sock.close()
            held[place] = None
        weather.sent += 1
        if not weather.sent % 500:
            os.write(told, b"%d\n" % weather.sent)
    facts = {
        "sent": weather.sent,
        "descriptors": weather.descriptors,
        "replies": weather.replies,
        "internal": weather.internal[:20],
    }
    os.write(told, json.dumps(facts).encode() + b"\n")
    os.close(told)  # our own end may have to wait for the file that nobody answers for


class _Line:
    """One connection."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(path)
        self.sock.setblocking(False)
        self._partial = b""

    def exchange(self, data: bytes, odd: Odd, rng: random.Random, weather: Weather) -> bool:
        """Sends a message and reads what there is to read; False when the connection is over."""
        fds = odd.some(self.sock) if rng.random() < _WITH_DESCRIPTORS else []
        kept = [odd.unanswered] if weather.unanswered and rng.random() < _UNANSWERED else []
        weather.unanswered -= len(kept)
        try:
            sent = socket.send_fds(self.sock, [data], [*kept, *fds])
            weather.descriptors += len(kept) + len(fds)
            while sent < len(data):
                if not self._wait(select.POLLOUT, _BUSY):
                    return False  # a call of ours is waiting there, for a step perhaps
                sent += self.sock.send(data[sent:])
        except OSError:
            return False
        finally:
            odd.drop(fds)
        if not data.endswith(b"\0"):
            return rng.random() < 0.5
        return self._read(weather)

    def _wait(self, event: int, patience: int) -> bool:
        poll = select.poll()
        poll.register(self.sock, event)
        return bool(poll.poll(patience))

    def _read(self, weather: Weather) -> bool:
        if not self._wait(select.POLLIN, _PATIENCE):
            return True
        try:
            data = self.sock.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return False
        *whole, self._partial = (self._partial + data).split(b"\0")
        for reply in whole:
            name = reply.partition(b'"error":')[2].partition(b'"')[2].partition(b'"')[0].decode(errors="replace")
            weather.replies[name or "parameters"] += 1
            if "InternalError" in name:
                weather.internal.append(reply[:500].decode(errors="replace"))
        return bool(data)
