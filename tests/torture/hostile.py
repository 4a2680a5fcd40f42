"""Clients of an ordinary user that keep others from being served by what they do with connections."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable

from nodectl.model.wire import framing
from rootful.raw import REQUEST, call, launch
from torture.foe import HELLO, Foe

_MANY = 110  # connections, of the 128 that a user may hold
_SUBORDINATE = 100_000  # the first of the uids that newuidmap(1) gives to the users of this machine
_STRANGERS = 50


def silent(foe: Foe) -> None:
    """Holds connections, and says nothing."""
    held = [foe.connect() for _ in range(_MANY)]
    time.sleep(5)
    del held


def slow(foe: Foe) -> None:
    """One byte of many messages after the other."""
    held = [foe.connect() for _ in range(_MANY)]
    for byte in HELLO:
        for sock in held:
            sock.send(bytes([byte]))
        time.sleep(0.05)


def flood(foe: Foe) -> None:
    """Comes and goes."""
    for _ in range(200):
        with foe.connect() as sock:
            if foe.rng.random() < 0.5:
                sock.send(HELLO)
    time.sleep(0.02)


def half(foe: Foe) -> None:
    """Half a message with descriptors, and away."""
    for _ in range(50):
        with foe.connect() as sock:
            fds = foe.odd.some(sock)
            with contextlib.suppress(OSError):
                socket.send_fds(sock, [HELLO[: foe.rng.randrange(1, len(HELLO))]], fds)
            foe.odd.drop(fds)
    time.sleep(0.01)


def descriptors(foe: Foe) -> None:
    """As many descriptors as there may be, with every call of many connections."""
    held = [foe.connect() for _ in range(_MANY // 2)]
    for sock in held:
        fds = foe.odd.some(sock)
        with contextlib.suppress(OSError):
            socket.send_fds(sock, [foe.rng.choice((HELLO, launch(), launch(ntasks=0)))], fds)
            sock.recv(65536)
        foe.odd.drop(fds)


def lingering(foe: Foe) -> None:
    """Descriptors whose close(2) takes a minute."""
    with foe.connect() as sock:
        fds = [foe.odd.lingering() for _ in range(foe.rng.choice((1, 4, 16)))]
        with contextlib.suppress(OSError):
            socket.send_fds(sock, [foe.rng.choice((HELLO, launch(), HELLO[:9]))], fds)
        foe.odd.drop(fds)


def unanswered(foe: Foe) -> None:
    """Descriptors whose close(2) never ends."""
    if foe.odd.unanswered < 0:
        time.sleep(1)
        return
    with foe.connect() as sock, contextlib.suppress(OSError):
        socket.send_fds(sock, [foe.rng.choice((HELLO, launch(), HELLO[:9]))], [foe.odd.unanswered] * 4)
        sock.recv(65536)
    time.sleep(0.01)


def huge(foe: Foe) -> None:
    """Messages as long as they may be, complete all at one moment, that mean a thousand times more."""
    text = b'{"method":"org.nodectl.Hello","parameters":{"x":[' + b"[]," * 80_000 + b"[]]}}"
    held = [foe.connect() for _ in range(30)]
    for sock in held:
        with contextlib.suppress(OSError):
            sock.sendall(text)
    for sock in held:
        with contextlib.suppress(OSError):
            sock.send(b"\0")
    for sock in held:
        with contextlib.suppress(OSError):
            sock.recv(65536)
        sock.close()


def long_texts(foe: Foe) -> None:
    """Launches whose layout is long to read."""
    size = foe.rng.choice((3000, 100_000, 1_000_000))
    layout = {foe.rng.choice(("nodelist", "exclude", "distribution", "hint", "gres", "junk")): "a," * (size // 2)}
    with foe.connect() as sock, contextlib.suppress(OSError):
        sock.sendall(launch(layout=layout, cpu_bind="map_cpu:" + "0," * (size // 4) + "0"))
        sock.recv(65536)


def unread(foe: Foe) -> None:
    """Asks for long answers and reads none."""
    ask = call("org.varlink.service.GetInterfaceDescription", parameters={"interface": "org.nodectl"}) * 60
    held = [foe.connect() for _ in range(30)]
    for sock in held:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.send(ask)
    time.sleep(1)


def steps(foe: Foe) -> None:
    """Steps, as many and as fast as may be."""
    with foe.connect() as sock, contextlib.suppress(OSError):
        for _ in range(20):
            sock.sendall(launch(name="hostile", argv=[foe.rng.choice(("true", "false"))]))
            sock.recv(65536)
    time.sleep(0.2)


def runners(foe: Foe) -> None:
    """Crowds the sockets of other users' steps, with descriptors that take long to close."""
    held = []
    for path in list(foe.steps.glob("*.sock")) * 16:
        sock = foe.connect(path)
        held.append(sock)
        fds = [foe.odd.lingering()]
        with contextlib.suppress(OSError):
            socket.send_fds(sock, [framing.encode({"method": "org.nodectl.step.Status"}) * 20], fds)
        foe.odd.drop(fds)
    time.sleep(0.1)


def strangers(foe: Foe) -> None:
    """Root, as newuidmap(1) would be: many users without an account come and stay, each with a number of its own."""
    children = []
    for _ in range(_STRANGERS):
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                uid = _SUBORDINATE + foe.rng.randrange(65_536) + os.getpid() % 1000
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                with foe.connect() as sock:
                    sock.sendall(HELLO)
                    sock.recv(65536)
                    time.sleep(2)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


KINDS: dict[str, Callable[[Foe], None]] = {
    kind.__name__: kind
    for kind in (silent, slow, flood, half, descriptors, lingering, unanswered, huge, long_texts, unread, steps,
                 runners, strangers)
}  # fmt: skip
AS_ROOT = {"strangers"}
assert REQUEST["argv"] == ["true"]
