"""The envelope of a message: sender, addressee, number. A member passes a message on without parsing JSON.

M sender to number kind | header as JSON, \\n, body
E sender number kind | common header | rank and length of each part | the parts | body
C JSON                                                  between two neighbours
B                                                       a heartbeat
"""

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import NamedTuple, TypeVar

from nodectl.cluster.link.frames import LONGEST
from nodectl.model.wire import lean_json

Header = Mapping[str, object]
MESSAGE, EACH, CONTROL, BEAT = b"M", b"E", b"C", b"B"
_MESSAGE = Struct(">ciiQB")
_EACH = Struct(">ciQBIIII")
_ENTRY = Struct(">iI")
_MOST_PARTS = 1 << 20  # bytes of one frame's parts, where there are several
Hop = TypeVar("Hop")


class BadMessage(Exception):
    """A malformed payload from a proven link: the far side runs another version."""


class Message(NamedTuple):
    """A received message."""

    sender: int
    number: int
    kind: str
    header: Header
    body: bytes


def message(sender: int, to: int, number: int, kind: str, header: Header, body: bytes) -> bytes:
    """Return the payload of a message. Raises ValueError or TypeError where the message cannot be encoded."""
    name = kind.encode("ascii")
    text = lean_json.dumps(header).encode("ascii")
    payload = b"%b%b%b\n%b" % (_MESSAGE.pack(MESSAGE, sender, to, number, len(name)), name, text, body)
    if len(payload) > LONGEST:
        raise ValueError(f"a message of {len(payload)} bytes is longer than {LONGEST}")
    return payload


def addressee(payload: bytes) -> int:
    """Return the rank to which a message goes. Raises BadMessage."""
    if len(payload) < _MESSAGE.size:
        raise BadMessage("a message without an envelope")
    return int.from_bytes(payload[5:9], "big", signed=True)


def opened(payload: bytes) -> Message:
    """Decode a message to this rank. Raises BadMessage."""
    _, sender, _, number, length = _MESSAGE.unpack_from(payload)
    start = _MESSAGE.size + length
    end = payload.find(b"\n", start)
    if end < 0:
        raise BadMessage("a message without a header")
    return Message(
        sender, number, payload[_MESSAGE.size : start].decode(), _read(payload[start:end]), payload[end + 1 :]
    )


def each(sender: int, number: int, kind: str, common: Header, parts: Mapping[int, object], body: bytes) -> list[bytes]:
    """Encode a message with a part for each rank; return the payloads."""
    texts = [(rank, lean_json.dumps(part).encode("ascii")) for rank, part in parts.items()]
    head = (sender, number, kind.encode("ascii"), lean_json.dumps(common).encode("ascii"), body)
    return _packed(head, texts)


def split(payload: bytes, hop_of: Callable[[int], Hop]) -> dict[Hop, list[bytes]]:
    """Split a message with parts for several ranks by next hop; return the payloads for each hop."""
    head, parts = _unpacked(payload)
    sorted_out: dict[Hop, list[tuple[int, bytes]]] = {}
    for rank, text in parts:
        sorted_out.setdefault(hop_of(rank), []).append((rank, text))
    return {hop: _packed(head, theirs) for hop, theirs in sorted_out.items()}


def opened_each(payload: bytes) -> Message:
    """Decode a message with a single part, the part of this rank. Raises BadMessage."""
    (sender, number, kind, common, body), parts = _unpacked(payload)
    if len(parts) != 1:
        raise BadMessage("a part for one has come with others")
    header = {**_read(common), "part": lean_json.loads(parts[0][1].decode("ascii"))}
    return Message(sender, number, kind.decode(), header, body)


_Head = tuple[int, int, bytes, bytes, bytes]


def _packed(head: _Head, parts: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """Encode the parts, in several payloads if large: no heartbeat should wait behind a frame of megabytes."""
    payloads: list[bytes] = []
    some: list[tuple[int, bytes]] = []
    size = 0
    for rank, text in parts:
        if some and size + len(text) > _MOST_PARTS:
            payloads.append(_pack(head, some))
            some, size = [], 0
        some.append((rank, text))
        size += len(text)
    if some:
        payloads.append(_pack(head, some))
    return payloads


def _pack(head: _Head, parts: list[tuple[int, bytes]]) -> bytes:
    sender, number, kind, common, body = head
    texts = [text for _, text in parts]
    index = b"".join([_ENTRY.pack(rank, len(text)) for rank, text in parts])
    fixed = _EACH.pack(EACH, sender, number, len(kind), len(common), len(parts), sum(map(len, texts)), len(body))
    payload = b"".join([fixed, kind, common, index, *texts, body])
    if len(payload) > LONGEST:
        raise ValueError(f"a message of {len(payload)} bytes is longer than {LONGEST}")
    return payload


def _unpacked(payload: bytes) -> tuple[_Head, list[tuple[int, bytes]]]:
    if len(payload) < _EACH.size:
        raise BadMessage("parts without an envelope")
    _, sender, number, name, common, count, parts, body = _EACH.unpack_from(payload)
    start = _EACH.size + name + common
    at = start + count * _ENTRY.size
    if at + parts + body != len(payload):
        raise BadMessage("parts of another length than was said")
    found = []
    for rank, length in _ENTRY.iter_unpack(payload[start:at]):
        found.append((rank, payload[at : at + length]))
        at += length
    kind = payload[_EACH.size : _EACH.size + name]
    return (sender, number, kind, payload[start - common : start], payload[at:]), found


def control(words: Header) -> bytes:
    """Encode a control message between two neighbours."""
    return CONTROL + lean_json.dumps(words).encode("ascii")


def control_words(payload: bytes) -> Header:
    """Decode a control message. Raises BadMessage."""
    return _read(payload[1:])


def _read(text: bytes) -> Header:
    try:
        return lean_json.load_object(text)
    except lean_json.BadJson as error:
        raise BadMessage(f"a header is {error}") from None
