"""The language of `--mem-bind`, and the variables SLURM_MEM_BIND*.

Lean: the report line is made in the tasks, so nothing is imported here.
"""

from __future__ import annotations

from nodectl.binding.entries import Entries, shown
from nodectl.binding.refused import Refused

NONE, RANK, LOCAL, MAP, MASK = "none", "rank", "local", "map_mem", "mask_mem"
_WORDS = {"no": NONE, "none": NONE, "rank": RANK, "local": LOCAL}
_LISTS = {"map_mem": MAP, "mask_mem": MASK}
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
MAX_NODE = 1023


class MemBind:
    """One request for memory binding. `entries`: NUMA nodes of MAP, masks of them of MASK, repetitions expanded;
    `listed` the same in the words of the user.
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemBind) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__ if getattr(self, name))
        return f"MemBind({fields})"


def parse_mem_bind(text: str) -> MemBind:
    """Read `[quiet|verbose,][prefer,][sort|nosort,]none|rank|local|map_mem:LIST|mask_mem:LIST`. Raises Refused."""
    bind = MemBind()
    entries: Entries | None = None
    in_list = False
    for part in text.split(","):
        word, colon, rest = part.partition(":")
        word = word.lower()
        if not colon and word in _FLAGS:
            name, value = _FLAGS[word]
            setattr(bind, name, value)
            in_list = False
            continue
        named = _LISTS.get(word) if colon else _WORDS.get(word)
        if named:
            bind.mode, in_list = named, bool(colon)
            entries = _entries(named) if in_list else None
        elif not in_list:
            raise Refused(f"unrecognized --mem-bind argument {shown(part)}")
        if in_list and entries:
            entries.add(rest if named else part)
    if entries:
        bind.entries, bind.listed = entries.values, entries.listed
    if bind.mode == MASK and 0 in bind.entries:
        raise Refused("--mem-bind=mask_mem: an empty mask leaves a task without memory")
    return bind


def _entries(mode: str) -> Entries:
    return Entries(f"--mem-bind={mode}", masks=mode == MASK, highest=MAX_NODE, noun="NUMA nodes")
