"""The language of `--mem-bind`, and the variables SLURM_MEM_BIND*.

Lean: the report line is made in the tasks, so nothing is imported here.
"""

from __future__ import annotations

from nodectl.placement.binding.entries import MAX_NODE, Entries
from nodectl.placement.binding.language import Value, read
from nodectl.placement.binding.no_layout import NoLayout

NONE, RANK, LOCAL, MAP, MASK = "none", "rank", "local", "map_mem", "mask_mem"
_WORDS = {"no": NONE, "none": NONE, "rank": RANK, "local": LOCAL}
_FLAGS = {
    "v": ("verbose", True),
    "verbose": ("verbose", True),
    "q": ("verbose", False),
    "quiet": ("verbose", False),
    "p": ("prefer", True),
    "prefer": ("prefer", True),
    "sort": ("sort", True),
    "nosort": ("sort", False),
}


class MemBind(Value):
    """A request for memory binding.

    `entries`: NUMA nodes of MAP, masks of NUMA nodes of MASK, repetitions expanded; `listed`: the same in the words of
    the user.
    """

    __slots__ = ("entries", "listed", "mode", "prefer", "sort", "verbose")

    def __init__(
        self,
        mode: str = "",
        *,
        entries: tuple[int, ...] = (),
        listed: str = "",
        verbose: bool = False,
        prefer: bool = False,
        sort: bool = False,
    ) -> None:
        self.mode = mode
        self.entries = entries
        self.listed = listed
        self.verbose = verbose
        self.prefer = prefer
        self.sort = sort


def parse_mem_bind(text: str) -> MemBind:
    """Read `[quiet|verbose,][prefer,][sort|nosort,]none|rank|local|map_mem:LIST|mask_mem:LIST`. Raises NoLayout."""
    said = read("--mem-bind", text, _FLAGS, _WORDS, _LISTS)
    bind = MemBind(said.word, entries=said.entries, listed=said.listed, **said.flags)
    if bind.mode == MASK and 0 in bind.entries:
        raise NoLayout("--mem-bind=mask_mem: an empty mask leaves a task without memory")
    return bind


def _entries(mode: str, *, masks: bool) -> Entries:
    return Entries(f"--mem-bind={mode}", masks=masks, highest=MAX_NODE, noun="NUMA nodes")


_LISTS = {MAP: lambda: _entries(MAP, masks=False), MASK: lambda: _entries(MASK, masks=True)}
