"""The addresses under which the cluster's nodes reach this node, as text, the likeliest first."""

import socket
from collections.abc import Iterator

_FIB = "/proc/net/fib_trie"
_IPV6 = "/proc/net/if_inet6"
_GLOBAL = "00"  # scope
_ANY_PORT = 9


def own(towards: str = "") -> list[str]:
    """Return the addresses of this machine, or the loopback's where there are none.

    `towards` is an address of another machine; this machine's address on the way there comes first.
    """
    found = [*_on_the_way(towards), *_ipv4(), *_ipv6()]
    return list(dict.fromkeys(found)) or ["127.0.0.1"]


def _on_the_way(towards: str) -> Iterator[str]:
    """Yield the source address which the kernel would use for this destination; nothing is sent."""
    if not towards:
        return
    family = socket.AF_INET6 if ":" in towards else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((towards, _ANY_PORT))
            address = sock.getsockname()[0]
    except OSError:
        return
    if not address.startswith("127.") and address != "::1":
        yield address


def _ipv4() -> Iterator[str]:
    """Yield the local IPv4 addresses. In the file, the line of an address precedes the line of the type."""
    address = ""
    for line in _lines(_FIB):
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"] and not address.startswith("127."):
            yield address


def _ipv6() -> Iterator[str]:
    for line in _lines(_IPV6):
        digits, _, _, scope, *_ = line.split()
        if scope == _GLOBAL and digits.strip("0") != "1":
            yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().splitlines()
    except OSError:
        return []


def written(address: tuple[str, int]) -> str:
    """Return HOST:PORT, or [HOST]:PORT for IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT or [HOST]:PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{text!r} is no address")
    return host.strip("[]"), int(port)
