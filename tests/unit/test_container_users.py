"""The maps of a job's user namespace."""

from __future__ import annotations

import pytest

from nodectl.container.users import identity_map


def test_ids_that_follow_each_other_share_a_line() -> None:
    assert identity_map([1000]) == "1000 1000 1\n"
    assert identity_map([7, 4, 5, 6, 100]) == "4 4 4\n100 100 1\n"
    assert identity_map(range(2_000)) == "0 0 2000\n"


def test_more_lines_than_the_kernel_takes_are_refused_with_their_number() -> None:
    assert identity_map(range(0, 680, 2)).count("\n") == 340
    with pytest.raises(OSError, match="341 groups apart are more than the 340 lines of a gid_map"):
        identity_map(range(0, 682, 2))
