"""The maps of a job's user namespace."""

from __future__ import annotations

import os

import pytest

from nodectl.launch.container.user_namespace import identity_map


def test_ids_that_follow_each_other_share_a_line() -> None:
    assert identity_map([1000]) == "1000 1000 1\n"
    assert identity_map([7, 4, 5, 6, 100]) == "4 4 4\n100 100 1\n"
    assert identity_map(range(2_000)) == "0 0 2000\n"


def test_more_lines_than_the_kernel_takes_are_refused_with_their_number() -> None:
    assert identity_map(range(0, 680, 2)).count("\n") == 340
    with pytest.raises(OSError, match="341 groups apart are more than a gid_map holds: 340 lines"):
        identity_map(range(0, 682, 2))


def test_long_numbers_fill_a_map_before_its_lines_are_used_up() -> None:
    """It is written at once, and the kernel takes less than a page: user_namespaces(7)."""
    page = os.sysconf("SC_PAGE_SIZE")
    first = 4_000_000_000  # a line of 24 bytes, of which 340 are more than 4,096
    with pytest.raises(OSError, match=f"more than a gid_map holds: 340 lines in less than {page} bytes"):
        identity_map(range(first, first + 2 * (page // 24 + 1), 2))
    if page == 4096:
        assert len(identity_map(range(first, first + 2 * (page // 24), 2))) < page
