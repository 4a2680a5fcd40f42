"""A cache of layouts: where steps are short, the same request comes a thousand times.

The key is the parsed request, not the user's wording. The cache is bounded in bytes: a step of many tasks, or with long
lists, has a layout of hundreds of KiB. Used only from the event loop; no I/O.
"""

from collections.abc import Callable, Iterable

from nodectl.placement.binding.layout import Layout
from nodectl.placement.binding.request import LayoutRequest

_MOST = 4 << 20  # bytes
_ONE = _MOST // 8  # a larger one would push out all the others
# Bytes of Python objects, roughly.
_FIXED, _TASK, _TEXT, _NUMBER = 4096, 320, 64, 48


class LayoutCache:
    """The cache. `make` makes a layout of a request and the usable CPUs; an exception from `make` is not kept."""

    def __init__(self, make: Callable[[LayoutRequest, int], Layout], most: int = _MOST) -> None:
        self._make = make
        self._most = most
        self._kept: dict[tuple[LayoutRequest, int], tuple[Layout, int]] = {}  # the latest stands last
        self.size = 0

    def get(self, request: LayoutRequest, cpus: int) -> Layout:
        """Return the layout, from the cache or newly made."""
        key = request, cpus
        found = self._kept.pop(key, None)
        if found is None:
            layout = self._make(request, cpus)
            size = _size(request, layout)
            if size > min(_ONE, self._most):
                return layout
            found = layout, size
            self.size += size
        self._kept[key] = found
        while self.size > self._most:
            self.size -= self._kept.pop(next(iter(self._kept)))[1]
        return found[0]


def _size(request: LayoutRequest, layout: Layout) -> int:
    """Return an upper estimate of the bytes."""
    texts = [*request.nodelist, *request.exclude, *request.hosts, *layout.environment.values(), layout.rule]
    numbers: list[int] = []
    for bind in (request.cpu_bind, request.mem_bind):
        if bind is not None:
            texts.append(bind.listed)
            numbers += bind.entries
    for share in layout.nodes:
        texts.append(share.bind_list)
    for task in layout.tasks:
        texts.append(task.why)
        numbers += (task.mask, task.cpus, task.mems)
    return _FIXED + _TASK * len(layout.tasks) + _of_texts(texts) + _of_numbers(numbers)


def _of_texts(texts: Iterable[str]) -> int:
    return sum(_TEXT + len(text) for text in texts)


def _of_numbers(numbers: Iterable[int]) -> int:
    return sum(_NUMBER + number.bit_length() // 8 for number in numbers)
