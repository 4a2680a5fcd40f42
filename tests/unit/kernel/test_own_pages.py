"""Pages that a fork has copied."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from nodectl.kernel.own_pages import own_pages, touch

COUNT = 64
SHARED = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS


def runs(pages: bytes) -> list[tuple[int, int]]:
    numbers = [int.from_bytes(pages[at : at + 8], "little") for at in range(0, len(pages), 8)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def has(address: int) -> bool:
    return any(start <= address < start + size for start, size in runs(own_pages()))


def in_a_fork(*outcomes: object) -> list[object]:
    """What callables return in one child, in their order."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, repr([outcome() if callable(outcome) else None for outcome in outcomes]).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    assert os.waitpid(pid, 0)[1] == 0
    return list(map(bool, eval(text)))  # noqa: S307  # our own child's words


def test_a_page_is_a_forks_own_once_it_is_written_to_or_touched() -> None:
    memory = mmap.mmap(-1, COUNT * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(COUNT):
        memory[page * mmap.PAGESIZE] = 1
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    first, last = start, start + (COUNT - 1) * mmap.PAGESIZE

    def write() -> None:
        memory[0] = 2

    def touch_last() -> None:
        word = last.to_bytes(8, "little") + mmap.PAGESIZE.to_bytes(8, "little")
        touch(word)

    found = in_a_fork(lambda: has(first), write, lambda: has(first), lambda: has(last), touch_last, lambda: has(last))
    if found[2] and not found[5]:
        pytest.skip("this kernel has no MADV_POPULATE_WRITE")
    assert found == [False, False, True, False, False, True]


def test_pages_that_are_not_there_are_passed_over() -> None:
    assert in_a_fork(lambda: touch(bytes(16))) == [False]


def test_pages_of_all_mappings_are_seen_where_a_plugin_has_added_many() -> None:
    mappings = [mmap.mmap(-1, mmap.PAGESIZE, flags=SHARED) for _ in range(COUNT * 4)]  # each has its own line
    memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[0] = 1
    last = max(start for start, _ in runs(own_pages()))
    with open("/proc/self/maps", encoding="ascii") as file:
        stack = next(line for line in file if "[stack]" in line).split("-")[0]
    assert last >= int(stack, 16)  # all of it may be its own
    assert has(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    for mapping in mappings:
        mapping.close()
