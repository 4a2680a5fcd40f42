"""Trace: the flight recorder's lines of a running or ended step, in replies short enough to delay no other call."""

from collections.abc import Iterator, Mapping

from nodectl.model.wire import lean_json
from nodectl.model.wire.dispatch import Call
from nodectl.model.wire.shape import Optional, integer
from nodectl.service.daemon.jobs.registry import WHICH, Registry

TRACE = {**WHICH, "begin": Optional(integer(0, 2**31))}
_ROOM = 1 << 17  # bytes of lines in one reply: decoded lines are some ten times as large


class ReadTrace:
    """The Trace method of the node."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def trace(self, call: Call) -> Mapping[str, object]:
        """Return the lines from `begin` on; `next` is the beginning of the next reply, 0 at the end."""
        key = self._registry.which(call)
        live = self._registry.find_live(call)
        if live is None:
            self._registry.find_ended(call)
            ending = self._registry.ending.get(key)
            live = None if ending is None else ending.live
        raw = self._registry.batch.trace(*key) if live is None else live.files.trace()
        begin = call.parameters.get("begin", 0)
        end = len(raw) if len(raw) - begin <= _ROOM else raw.rfind(b"\n", begin, begin + _ROOM) + 1
        return {"trace": list(_lines(raw[begin:end])), "next": end if begin < end < len(raw) else 0}


def _lines(raw: bytes) -> Iterator[object]:
    """Yield the complete lines of a trace, without a line cut off by a full disk."""
    for line in raw.splitlines():
        try:
            yield lean_json.load_object(line)
        except lean_json.BadJson:
            continue
