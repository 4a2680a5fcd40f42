"""The language of `--cpu-bind`, and what a task and its user are told about their binding.

Owns: reading `[quiet|verbose,]none|threads|cores|sockets|map_cpu:<list>|mask_cpu:<list>` into a
value, the variables SLURM_CPU_BIND*, the line of the verbose report. Runs in the client, the daemon
and the stepd, as anyone. Lean processes import it: neither `re` nor what imports `re` (dataclasses,
typing) belongs here.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

# A repetition as `0*1000000000` must not cost memory, neither here nor in the environment.
MAX_ENTRIES = 65_536
MAX_TEXT = 1 << 20
MAX_CPU = 65_535

_WAYS = "none, threads, cores, sockets, map_cpu:<list> or mask_cpu:<list>"
_HEX = frozenset("0123456789abcdefABCDEF")
_DECIMAL = frozenset("0123456789")


class BadCpuBind(ValueError):
    """The text is not in the language; the message is one line and names the word."""


class Unit(enum.Enum):
    """What a task is bound to; the values are the words of the command line, AUTO has none."""

    AUTO = "auto"
    NONE = "none"
    THREADS = "threads"
    CORES = "cores"
    SOCKETS = "sockets"
    MAP = "map_cpu"
    MASK = "mask_cpu"


_VERBOSITY = {"v": True, "verbose": True, "q": False, "quiet": False}
_WORDS = {
    "no": Unit.NONE,
    "none": Unit.NONE,
    "threads": Unit.THREADS,
    "cores": Unit.CORES,
    "sockets": Unit.SOCKETS,
}
_LISTS = {"map_cpu": Unit.MAP, "mask_cpu": Unit.MASK}


class CpuBind:
    """One request for binding, immutable.

    `ids`: machine CPUs, one a task and reused in turn, only for MAP. `masks`: masks of machine CPUs
    likewise, only for MASK; 0 stands for the whole allocation, as in Slurm.
    """

    __slots__ = ("ids", "masks", "unit", "verbose")

    unit: Unit
    verbose: bool
    ids: tuple[int, ...]
    masks: tuple[int, ...]

    def __init__(
        self,
        unit: Unit = Unit.AUTO,
        *,
        verbose: bool = False,
        ids: tuple[int, ...] = (),
        masks: tuple[int, ...] = (),
    ) -> None:
        if bool(ids) != (unit is Unit.MAP) or bool(masks) != (unit is Unit.MASK):
            raise ValueError(f"{unit.value} with {len(ids)} CPU numbers and {len(masks)} masks")
        for name, value in (("unit", unit), ("verbose", verbose), ("ids", ids), ("masks", masks)):
            object.__setattr__(self, name, value)

    def _key(self) -> tuple[object, ...]:
        return (self.unit, self.verbose, self.ids, self.masks)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"CpuBind is immutable: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"CpuBind is immutable: {name}")

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, CpuBind) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> str | tuple[object, ...]:
        # copy.deepcopy() would otherwise set the slots of an empty one, which is refused.
        return (_remake, self._key())

    def __repr__(self) -> str:
        return f"CpuBind({self.unit}, verbose={self.verbose}, ids={self.ids}, masks={self.masks})"


def _remake(unit: Unit, verbose: bool, ids: tuple[int, ...], masks: tuple[int, ...]) -> CpuBind:
    return CpuBind(unit, verbose=verbose, ids=ids, masks=masks)


def parse(text: str) -> CpuBind:
    """Read the value of `--cpu-bind`; words in any case of letters.

    The last of several verbosities holds; a second way to bind is refused. After map_cpu: or
    mask_cpu: every part up to the next word of the language belongs to the list. Only verbosity:
    AUTO. BadCpuBind otherwise.
    """
    if len(text) > MAX_TEXT:
        raise BadCpuBind(f"--cpu-bind: longer than {MAX_TEXT} characters")
    if not text:
        raise BadCpuBind(f"--cpu-bind=: says nothing; give {_WAYS}")
    verbose = False
    unit = Unit.AUTO
    given = ""
    entries: list[int] = []
    in_list = False
    for part in text.split(","):
        word, colon, rest = part.partition(":")
        word = word.lower()
        if not colon and word in _VERBOSITY:
            verbose = _VERBOSITY[word]
            in_list = False
            continue
        named = _WORDS.get(word) if not colon else _LISTS.get(word)
        if named is not None:
            if given:
                raise _bad(text, part, f"contradicts {_shown(given)}")
            unit, given, in_list = named, part, bool(colon)
        if in_list:
            element = part if named is None else rest
            entries += _entry(text, unit, element, room=MAX_ENTRIES - len(entries))
        elif named is None:
            raise _bad(text, part, _what_is_wrong(word, colon))
    if unit is Unit.MAP:
        return CpuBind(unit, verbose=verbose, ids=tuple(entries))
    return CpuBind(unit, verbose=verbose, masks=tuple(entries))


def _shown(word: str) -> str:
    """Return a word of the user's as it may stand in a one-line message: quoted, bounded."""
    return repr(word if len(word) <= 60 else word[:57] + "...")


def _bad(text: str, word: str, why: str) -> BadCpuBind:
    # The whole value only where it can be read at a glance; between the quotes of repr() stands no
    # line end.
    whole = f"--cpu-bind={text}" if len(text) <= 60 and text.isprintable() else "--cpu-bind"
    return BadCpuBind(f"{whole}: {_shown(word)} {why}")


def _what_is_wrong(word: str, colon: str) -> str:
    if colon and word in _WORDS:
        return "takes no list"
    if not colon and word in _LISTS:
        return "needs a list, as map_cpu:0,1 or mask_cpu:0x3,0xc"
    return f"is no way to bind; give {_WAYS}"


def _entry(text: str, unit: Unit, part: str, *, room: int) -> list[int]:
    """Read one element, `value` or `value*times`; `room` is how many entries may still come."""
    value_text, star, count_text = part.partition("*")
    value = _cpu(value_text) if unit is Unit.MAP else _mask(value_text)
    if value is None:
        raise _bad(text, value_text, "is not a CPU " + ("number" if unit is Unit.MAP else "mask"))
    if value >> MAX_CPU + 1 if unit is Unit.MASK else value > MAX_CPU:
        raise _bad(text, value_text, f"names a CPU above {MAX_CPU}")
    count = 1
    if star:
        if not count_text or not _DECIMAL.issuperset(count_text) or not count_text.strip("0"):
            raise _bad(text, part, "does not repeat a positive number of times")
        # Bounded in digits first: int() of thousands of them is slow.
        count = int(count_text) if len(count_text) <= 9 else MAX_ENTRIES + 1
    if count > room:
        raise _bad(text, part, f"makes the list longer than {MAX_ENTRIES} entries")
    return [value] * count


def _cpu(text: str) -> int | None:
    """Read a CPU number, decimal or 0x hexadecimal; leading zeros are decimal."""
    if text[:2] in ("0x", "0X"):
        return _mask(text)
    if not text or not _DECIMAL.issuperset(text):
        return None
    return int(text) if len(text) <= 9 else MAX_CPU + 1


def _mask(text: str) -> int | None:
    digits = text[2:] if text[:2] in ("0x", "0X") else text
    if not digits or not _HEX.issuperset(digits):
        return None
    return int(digits, 16)


def format_mask(mask: int, width: int = 1) -> str:
    """Write a mask as Slurm does: upper-case digits, as many as `width` CPUs need."""
    return f"0x{mask:0{(width + 3) // 4}X}"


def environment(bind: CpuBind, masks: Sequence[int], *, width: int = 1) -> dict[str, str]:
    """Return the four SLURM_CPU_BIND variables of a step's tasks, all in Slurm's formats.

    `masks`: one a task, as placed, 0 for one that inherits. `width`: CPUs of the machine, which
    decides the digits of the masks nodectl made up; the lists a user typed are repeated as typed,
    expanded, masks bare.
    """
    verbosity = "verbose" if bind.verbose else "quiet"
    kind, entries = _told(bind, masks, width)
    listed = ",".join(entries)
    return {
        "SLURM_CPU_BIND": f"{verbosity},{kind}{listed}",
        "SLURM_CPU_BIND_VERBOSE": verbosity,
        "SLURM_CPU_BIND_TYPE": kind,
        "SLURM_CPU_BIND_LIST": listed,
    }


def _told(bind: CpuBind, masks: Sequence[int], width: int) -> tuple[str, list[str]]:
    if bind.unit is Unit.MAP:
        return "map_cpu:", [str(cpu) for cpu in bind.ids]
    if bind.unit is Unit.MASK:
        # An empty mask stands for the allocation, and is told as what it became where a task has
        # it.
        placed = [*masks[: len(bind.masks)], *[0] * (len(bind.masks) - len(masks))]
        pairs = zip(bind.masks, placed, strict=True)
        return "mask_cpu:", [f"{asked or got:x}" for asked, got in pairs]
    if not any(masks):
        return "none", []
    # One mask for everybody is told once; masks cut by a unit are told one by one even if equal.
    shared = bind.unit in (Unit.AUTO, Unit.NONE) and len(set(masks)) == 1
    return "mask_cpu:", [format_mask(mask, width) for mask in (masks[:1] if shared else masks)]


def report_line(
    bind: CpuBind,
    *,
    node: str,
    task: int,
    local: int,
    pid: int,
    mask: int,
    inherited: int = 0,
    failed: bool = False,
) -> str:
    """Return the line of the verbose report about one task, in Slurm's format, without line end.

    `task` is its number in the step, `local` on the node. `mask`: what it was bound to; 0 if to
    nothing, then `inherited` is the affinity it kept and is shown. `failed`: the kernel refused the
    mask.
    """
    if not mask:
        kind, action = "NONE", ""
    else:
        # The blank after MAP is Slurm's: scripts cut these lines by columns.
        kind, action = ("MAP " if bind.unit is Unit.MAP else "MASK"), " set"
    result = " FAILED" if failed else ""
    return f"cpu-bind={kind} - {node}, task {task:2d} {local:2d} [{pid}]: mask {mask or inherited:#x}{action}{result}"
