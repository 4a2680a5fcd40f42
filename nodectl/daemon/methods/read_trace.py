"""Trace: the flight recorder's lines of a step that runs or has ended, in replies that keep nobody else waiting."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from nodectl.wire import lean_json
from nodectl.wire.dispatch import Call
from nodectl.wire.shape import Optional, integer

if TYPE_CHECKING:
    from nodectl.daemon.node import Node
    from nodectl.wire.shape import Shape

_ROOM = 1 << 20  # bytes of lines in one reply: decoded, they are some ten times as large


class Traces:
    """The method of one node."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def methods(self) -> "dict[str, tuple[Shape, Callable[[Call], object]]]":
        """Rows of the table of methods."""
        which = {"job": integer(1, 2**32 - 1), "step": integer(0, 2**32 - 1)}
        return {"Trace": ({**which, "begin": Optional(integer(0, 2**31))}, self._trace)}

    def _trace(self, call: Call) -> Mapping[str, object]:
        key = call.parameters["job"], call.parameters["step"]
        live = self._node.find_live(call)
        if live is None:
            self._node.find_ended(call)
            ending = self._node.jobs.ending.get(key)
            live = None if ending is None else ending.live
        raw = self._node.batch.trace(*key) if live is None else live.files.trace()
        begin = call.parameters.get("begin", 0)
        end = len(raw) if len(raw) - begin <= _ROOM else raw.rfind(b"\n", begin, begin + _ROOM) + 1
        return {"trace": list(_lines(raw[begin:end])), "next": end if begin < end < len(raw) else 0}


def _lines(raw: bytes) -> Iterator[object]:
    """The whole lines of a trace; one that a full disk cut off says nothing."""
    for line in raw.splitlines():
        try:
            yield lean_json.load_object(line)
        except lean_json.BadJson:
            continue
