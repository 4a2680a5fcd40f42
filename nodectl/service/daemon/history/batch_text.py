"""The text with which a batch job starts, plain and compressed for the history.

A script may have megabytes, and the event loop compresses it. So both directions are generators: the event loop serves
other calls between two pieces. Functions of values, in the daemon.
"""

import zlib
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from nodectl.model.wire.lean_json import dumps
from nodectl.service.daemon.history.decoding import decoded, malformed

_PIECE = 64 << 10  # bytes, which take a millisecond or two
_QUICKLY = 1  # of zlib
_WHOSE = "a job's script"
_T = Generator[None, None, bytes]


class BatchText(NamedTuple):
    """The text of a batch job. `request` holds the parameters of Submit, the caller, and the level of confinement."""

    uid: int
    request: Mapping[str, Any]
    script: bytes


class PackedText(NamedTuple):
    """A compressed BatchText. `size` is the number of bytes before compression."""

    uid: int
    size: int
    script: bytes
    request: bytes


def packing(text: BatchText) -> Generator[None, None, PackedText]:
    """Compress the text and return the result. The generator may be dropped at any yield."""
    words = dumps(text.request).encode("ascii")
    if len(words) > _PIECE:
        yield
    script = yield from _compressed(text.script)
    request = yield from _compressed(words)
    return PackedText(text.uid, len(words) + len(text.script), script, request)


def unpacking(text: PackedText) -> Generator[None, None, BatchText]:
    """Expand a packed text. Raises Malformed for data not made by `packing`."""
    try:
        words = yield from _expanded(text.request)
        script = yield from _expanded(text.script)
    except (zlib.error, ValueError) as error:
        raise malformed(_WHOSE, error) from None
    return BatchText(text.uid, decoded(words, _WHOSE), script)


def _compressed(data: bytes) -> _T:
    if len(data) <= _PIECE:
        return zlib.compress(data, _QUICKLY)
    compressor = zlib.compressobj(_QUICKLY)
    parts = []
    for begin in range(0, len(data), _PIECE):
        parts.append(compressor.compress(data[begin : begin + _PIECE]))
        yield
    return b"".join([*parts, compressor.flush()])


def _expanded(data: bytes) -> _T:
    expander = zlib.decompressobj()
    parts = []
    while not expander.eof:
        part = expander.decompress(data, _PIECE)
        data = expander.unconsumed_tail
        if not part and not data and not expander.eof:
            raise ValueError("the text ends too early")
        parts.append(part)
        yield
    return b"".join(parts)
