"""What something takes in memory: all objects that are reached from it, and their bytes."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any, NamedTuple

_NOT_ITS_OWN = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.MethodType,
    types.FrameType,
)  # fmt: skip


class Footprint(NamedTuple):
    objects: int
    bytes: int


def footprint(*roots: Any, without: tuple[Any, ...] = ()) -> Footprint:
    """`without`: where it does not go on."""
    seen = {id(one) for one in without}
    waiting = [one for one in roots if id(one) not in seen]
    seen.update(map(id, waiting))
    size = count = 0
    while waiting:
        one = waiting.pop()
        count += 1
        size += sys.getsizeof(one)
        for other in gc.get_referents(one):
            if id(other) not in seen and not isinstance(other, _NOT_ITS_OWN):
                seen.add(id(other))
                waiting.append(other)
    return Footprint(count, size)
