"""Shares of CPU time and of disks as numbers: compared, merged with the configuration, written for the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.launch.cgroup import shares
from nodectl.service.config_file.reader import build

DISKS = sorted(path.read_text().strip() for path in Path("/sys/block").glob("*/dev"))
OWN = {"cpu.max": 10, "pids.max": 64}
NAMES = ("cpu.max", "cpu.weight", "io.weight", "io.max 8:0 rbps", "io.max 8:0 wiops", "pids.max", "hugetlb.2MB.max")
SHARES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10_000))


@pytest.mark.parametrize(
    ("given", "files"),
    [
        ({}, {}),
        ({"cpu.max": 150}, {"cpu.max": "150000 100000"}),
        ({"cpu.max": 0}, {"cpu.max": "max 100000"}),
        ({"pids.max": 40, "hugetlb.2MB.max": 1 << 21}, {"pids.max": "40", "hugetlb.2MB.max": "2097152"}),
        ({"pids.max": 0, "hugetlb.1GB.max": 0}, {"pids.max": "max", "hugetlb.1GB.max": "max"}),
        ({"cpu.weight": 20, "io.weight": 0}, {"cpu.weight": "20", "io.weight": "default 100"}),
        (
            {"io.max 8:0 rbps": 1024, "io.max 8:16 wiops": 5, "io.max 8:0 wbps": 0},
            {"io.max": "8:0 rbps=1024 wbps=max riops=max wiops=max\n8:16 rbps=max wbps=max riops=max wiops=5"},
        ),
    ],
)
def test_shares_are_files_of_a_cgroup(given: dict[str, int], files: dict[str, str]) -> None:
    assert shares.files(given, {}) == files


def test_job_has_a_little_more_cpu_time_and_processes_than_its_step() -> None:
    assert shares.files({"cpu.max": 1, "pids.max": 40}, OWN) == {"cpu.max": "11000 100000", "pids.max": "104"}
    assert shares.files({"cpu.max": 0, "pids.max": 0}, OWN) == {"cpu.max": "max 100000", "pids.max": "max"}


@pytest.mark.parametrize(
    ("one", "other", "more"),
    [
        ({}, {}, ""),
        ({"cpu.max": 100}, {}, ""),
        ({}, {"cpu.max": 100}, "cpu.max"),
        ({"cpu.max": 0}, {"cpu.max": 100}, "cpu.max"),
        ({"cpu.max": 100}, {"cpu.max": 100}, ""),
        ({"cpu.weight": 100}, {}, ""),
        ({"pids.max": 41}, {"pids.max": 40}, "pids.max"),
        ({"pids.max": 0}, {"pids.max": 40}, "pids.max"),
        ({"hugetlb.2MB.max": 1}, {"hugetlb.2MB.max": 1 << 21}, ""),
        ({"hugetlb.2MB.max": 0}, {"hugetlb.2MB.max": 1 << 21}, "hugetlb.2MB.max"),
        ({"cpu.weight": 101}, {}, "cpu.weight"),
        ({}, {"io.weight": 50}, "io.weight"),
        ({"io.max 8:0 rbps": 2}, {"io.max 8:0 rbps": 1}, "io.max 8:0 rbps"),
        ({"io.max 8:0 rbps": 1}, {"io.max 8:0 wbps": 1}, "io.max 8:0 wbps"),
    ],
)
def test_what_is_more_is_found(one: dict[str, int], other: dict[str, int], more: str) -> None:
    assert shares.beyond(one, other) == more


@given(SHARES, SHARES)
def test_nothing_is_both_more_and_less(one: dict[str, int], other: dict[str, int]) -> None:
    assert shares.beyond(one, one) == ""
    # What is given beside the rest of another set is more than that set only where it is itself.
    merged = {**other, **one}
    more = shares.beyond(merged, other)
    assert not more or more in one


@pytest.mark.parametrize(("word", "number"), [("0", 0), ("7", 7), ("4k", 4096), ("2M", 2 << 20), ("1T", 1 << 40)])
def test_amounts_are_read(word: str, number: int) -> None:
    assert shares.amount(word) == number


@pytest.mark.parametrize("word", ["", "K", "-1", "1.5M", "1KB", "٣", "9" * 19, "999999999999T"])
def test_what_is_no_amount_is_none(word: str) -> None:
    assert shares.amount(word) is None


def test_configuration_is_what_every_job_has() -> None:
    assert shares.configured(build({})) == {}
    assert shares.configured(build({"cpu_max": 150, "cpu_weight": 50})) == {"cpu.max": 150, "cpu.weight": 50}


def test_huge_pages_are_limited_by_their_size() -> None:
    limits = shares.asked({"hugetlb_max": ["2MB:1G", "1GB:max", "64KB:0"], "pids_max": 7})
    # None at all is less than one page, which the kernel rounds down: 0 stands for no limit.
    assert limits == {"hugetlb.2MB.max": 1 << 30, "hugetlb.1GB.max": 0, "hugetlb.64KB.max": 1, "pids.max": 7}
    assert {shares.parameter_of(name) for name in limits} == {"hugetlb_max", "pids_max"}


@pytest.mark.parametrize("line", ["", "2MB", "2MB:", "2MB:lots", ":1G", "../x:1G", "2 MB:1G", "٣MB:1G"])
def test_what_is_no_limit_of_huge_pages_is_refused(line: str) -> None:
    with pytest.raises(shares.BadShare, match="is no size and its limit, as 2MB:1G") as refused:
        shares.hugetlb_max([line])
    assert refused.value.parameter == "hugetlb_max"


@pytest.mark.skipif(not DISKS, reason="this machine has no block device")
def test_disk_is_known_by_its_numbers() -> None:
    assert shares.io_max([f"{DISKS[0]}:rbps=1M,wiops=max"]) == {
        f"io.max {DISKS[0]} rbps": 1 << 20,
        f"io.max {DISKS[0]} wiops": 0,
    }


def test_partition_is_refused_with_the_name_of_its_disk() -> None:
    partitions = list(Path("/sys/class/block").glob("*/partition"))
    if not partitions:
        pytest.skip("this machine has no partition")
    place = partitions[0].parent
    with pytest.raises(shares.BadShare, match=f"is a partition; .*/dev/{os.path.basename(place.resolve().parent)}"):
        shares.io_max([f"{(place / 'dev').read_text().strip()}:rbps=1"])
