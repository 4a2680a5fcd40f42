"""What a step may use of memory: Slurm's formulas, with numbers recorded on a machine of 3,917 MiB."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.launch.cgroup.constraints import memory_limits
from nodectl.model.number import mebibytes
from nodectl.service.config_file.reader import build

TOTAL = 3917
MIB = 1 << 20
_PAGE = 4096


def limits(memory: int, *, ram: bool = True, swap: bool = True, **config: Any) -> tuple[int | None, ...]:
    """(memory.max, memory.high, memory.swap.max) as the kernel keeps them: whole pages."""
    files = memory_limits(memory, TOTAL, build(config), ram=ram, swap=swap)
    names = ("memory.max", "memory.high", "memory.swap.max")
    return tuple(int(files[name]) // _PAGE * _PAGE if name in files else None for name in names)


# Recorded: memory.max and memory.high of a job and of its step. What 22.05 wrote to memory.swap.max was RAM and swap
# together; today's Slurm, and nodectl, write the difference.
@pytest.mark.parametrize(
    ("memory", "config", "recorded"),
    [
        (300, {}, 314572800),
        (0, {}, 4107272192),
        (300, {"allowed_ram_space": 50, "allowed_swap_space": 20}, 157286400),
        (300, {"max_ram_percent": 5, "min_ram_space": 10}, 205361152),
    ],
)
def test_memory_is_limited_as_recorded(memory: int, config: dict[str, Any], recorded: int) -> None:
    assert limits(memory, **config)[:2] == (recorded, recorded)


def test_swap_space_is_what_is_allowed_beyond_memory() -> None:
    assert limits(300)[2] == 0
    assert limits(300, allowed_ram_space=50, allowed_swap_space=20)[2] == 60 * MIB
    assert limits(3000, allowed_swap_space=200, max_ram_percent=90, max_swap_percent=10)[2] == (TOTAL - 3000) * MIB


def test_memory_is_limited_early_where_more_is_allowed_than_asked_for() -> None:
    assert limits(300, allowed_ram_space=110)[:2] == (330 * MIB, 300 * MIB)


def test_no_step_gets_less_than_the_least() -> None:
    assert limits(1)[:2] == (30 * MIB, 30 * MIB)


def test_swap_space_alone_is_limited_by_both_together() -> None:
    assert limits(300, ram=False, allowed_swap_space=50, allowed_ram_space=10) == (450 * MIB, 450 * MIB, 0)


def test_step_that_asked_for_none_has_no_limit_but_of_swap_space() -> None:
    assert memory_limits(0, TOTAL, build({}), ram=True, swap=False) == {}
    assert limits(0)[2] == 0
    assert limits(0, swap=False, max_ram_percent=50)[0] == TOTAL * MIB // 2 // _PAGE * _PAGE


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64", 64),
        ("64M", 64),
        ("64MB", 64),
        ("64MiB", 64),
        ("1g", 1024),
        ("2T", 2 << 20),
        ("1K", 1),
        ("1025K", 2),
        ("0", 0),
    ],
)
def test_amount_of_memory_is_read_in_mebibytes(text: str, size: int) -> None:
    assert mebibytes(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "1.5G", "64X", "6 4", "\N{SUPERSCRIPT TWO}", "9" * 30])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid numeric value"):
        mebibytes(text)
