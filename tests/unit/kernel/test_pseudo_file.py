"""Files that the kernel makes up."""

from __future__ import annotations

import mmap

from nodectl.kernel import pseudo_file

SHARED = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS


def test_a_file_is_read_to_its_end_though_the_kernel_gives_a_page_at_a_time() -> None:
    mappings = [mmap.mmap(-1, mmap.PAGESIZE, flags=SHARED) for _ in range(200)]  # each has its own line
    assert b"[stack]" in pseudo_file.read("/proc/self/maps")
    for mapping in mappings:
        mapping.close()
