"""The memory pages of a process alone, and copying such pages ahead of need.

After a fork each page that is written to is copied first, one at a time.
"""

import os

from nodectl.kernel import _kernel, pseudo_file

_PAGE = os.sysconf("SC_PAGESIZE")
_ENTRY = 8  # bytes of /proc/PID/pagemap for each page: kernel pagemap
_PRESENT, _OF_A_FILE, _OWN = 1 << 63, 1 << 61, 1 << 56
_WORD = 8


def own_pages() -> bytes:
    """Return the caller's pages not shared with another process, in the form taken by touch(). Raises OSError."""
    runs = []
    lines = _mappings()
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for line in lines:
            span, access = line.split()[:2]
            if access != b"rw-p":
                continue
            start, end = (int(word, 16) for word in span.split(b"-"))
            entries = os.pread(pagemap, (end - start) // _PAGE * _ENTRY, start // _PAGE * _ENTRY)
            runs += _runs(start, memoryview(entries).cast("Q"))
    finally:
        os.close(pagemap)
    return b"".join(number.to_bytes(_WORD, "little") for run in runs for number in run)


def _mappings() -> list[bytes]:
    fd = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return pseudo_file.read_on(fd).splitlines()
    finally:
        os.close(fd)


def _runs(start: int, entries: memoryview) -> list[tuple[int, int]]:
    """Return (address, bytes) of each stretch of own pages in a mapping beginning at `start`."""
    found: list[tuple[int, int]] = []
    for number, entry in enumerate(entries):
        if not (entry & _PRESENT and entry & _OWN) or entry & _OF_A_FILE:
            continue
        address = start + number * _PAGE
        if found and sum(found[-1]) == address:
            found[-1] = found[-1][0], found[-1][1] + _PAGE
        else:
            found.append((address, _PAGE))
    return found


def touch(pages: bytes) -> None:
    """Copy the `pages` for the caller alone, as far as mapped. The content does not change."""
    numbers = [int.from_bytes(pages[at : at + _WORD], "little") for at in range(0, len(pages), _WORD)]
    for start, size in zip(numbers[::2], numbers[1::2], strict=True):
        _kernel.touch(start, size)
