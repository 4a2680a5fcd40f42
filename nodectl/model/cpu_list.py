"""CPU masks and CPU lists: an int whose bit n is machine CPU n, and the kernel's notation `0-3,8`.

Pure. Separate from `topology`, because tasks use these functions and must not pay for dataclasses.
"""

from nodectl.model.number import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_CPU = 65_535
_LARGEST = 999_999_999
_PART_BITS = 512
_PART = (1 << _PART_BITS) - 1


def mask_of(cpus: "Iterable[int]") -> int:
    """Return the mask with the bits of `cpus`; ValueError for a negative number."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


def lowest(mask: int) -> int:
    """Return the number of the lowest bit of `mask`, -1 for an empty mask."""
    return (mask & -mask).bit_length() - 1


def cpus_of(mask: int) -> tuple[int, ...]:
    """Return the numbers of the bits of `mask`, ascending."""
    cpus = []
    first = 0
    while mask:
        # A part at a time: each step on the whole of a mask costs as much as the mask is long.
        part = mask & _PART
        while part:
            low = part & -part
            cpus.append(first + low.bit_length() - 1)
            part ^= low
        mask >>= _PART_BITS
        first += _PART_BITS
    return tuple(cpus)


def parse_cpulist(text: str) -> frozenset[int]:
    """Read the kernel's list format, as `0-3,8`; blank is the empty set.

    ValueError names the part that is no number or range, runs backwards, or is above MAX_CPU.
    """
    return frozenset(cpus_of(mask_of_list(text)))


def format_cpulist(cpus: "Iterable[int]") -> str:
    """Write numbers in the kernel's list format, ascending, runs joined: `0-3,8`."""
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs_of(sorted(set(cpus))))


def runs_of(numbers: "Iterable[int]") -> list[list[int]]:
    """Return the first and the last number of each run of consecutive numbers, in the given order."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def mask_of_list(text: str) -> int:
    """Return the mask of a list in the kernel's notation, without making a set."""
    mask = 0
    for first, last in _ranges(text):
        mask |= (1 << (last + 1)) - (1 << first)
    return mask


def _ranges(text: str) -> "Iterator[tuple[int, int]]":
    for part in text.strip().split(","):
        if not part.strip():
            if text.strip():
                raise ValueError(f"CPU list {_shown(text)}: empty part between commas")
            return
        low, dash, high = part.strip().partition("-")
        first, last = whole(low, _LARGEST), whole(high if dash else low, _LARGEST)
        if first is None or last is None:
            raise ValueError(f"CPU list: {_shown(part)} is not a number or a range")
        if last < first:
            raise ValueError(f"CPU list: {_shown(part)} runs backwards")
        if last > MAX_CPU:
            raise ValueError(f"CPU list: {_shown(part)} is above {MAX_CPU}")
        yield first, last


def _shown(text: str) -> str:
    return repr(text.strip()[:60])
