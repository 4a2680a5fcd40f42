"""scontrol show hostnames and hostlist."""

from __future__ import annotations

import pytest

from nodectl.client.command import Failed
from nodectl.slurm.commands.host_names import compressed, expanded


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3],m", ["n1", "n2", "n3", "m"]),
        ("n[08-11,7]", ["n08", "n09", "n10", "n11", "n7"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu[1,3]-ib,x", ["gpu1-ib", "gpu3-ib", "x"]),
        ("", []),
    ],
)
def test_ranges_become_names_in_their_order(text: str, names: list[str]) -> None:
    assert expanded(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n[3-1]", "n[a-b]", "n]1[", "n[[1]]", "n[1-999999999]"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(Failed, match="Invalid hostlist"):
        expanded(text)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1", "n2", "n3", "m"], "n[1-3],m"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n8", "n09", "n10", "n010"], "n8,n[09-10],n010"),
        (["n" + "7" * 5000], "n" + "7" * 5000),
        (["n3", "n1"], "n[1,3]"),
        (["n7"], "n7"),
        ([], ""),
    ],
)
def test_names_become_ranges(names: list[str], text: str) -> None:
    assert compressed(names) == text
    assert sorted(expanded(text)) == sorted(names)


def test_a_list_keeps_its_order_where_that_is_asked_for() -> None:
    assert compressed(["n3", "n1", "n2"], in_order=True) == "n[3,1-2]"
