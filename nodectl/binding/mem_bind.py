"""The language of `--mem-bind`, and the variables SLURM_MEM_BIND*.

Lean: the report line is made in the tasks, so nothing is imported here.
"""

from __future__ import annotations

from nodectl.binding.refused import Refused

NONE, RANK, LOCAL, MAP, MASK = "none", "rank", "local", "map_mem", "mask_mem"
_WORDS = {"no": NONE, "none": NONE, "rank": RANK, "local": LOCAL}
_LISTS = {"map_mem": MAP, "mask_mem": MASK}
_FLAGS = ("prefer", "p", "sort", "nosort", "q", "quiet", "v", "verbose")
MAX_ENTRIES = 65_536
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


def parse_mem_bind(text: str) -> MemBind:
    """Read `[quiet|verbose,][prefer,][sort|nosort,]none|rank|local|map_mem:LIST|mask_mem:LIST`. Raises Refused."""
    mode = ""
    words: list[str] = []
    entries: list[int] = []
    verbose = prefer = sort = False
    in_list = False
    for part in text.split(","):
        word, colon, rest = part.partition(":")
        word = word.lower()
        if not colon and word in _FLAGS:
            verbose = word in ("v", "verbose") or (verbose and word not in ("q", "quiet"))
            prefer = prefer or word in ("p", "prefer")
            sort = word == "sort" or (sort and word != "nosort")
            in_list = False
            continue
        named = _LISTS.get(word) if colon else _WORDS.get(word)
        if named:
            mode, in_list = named, bool(colon)
            words, entries = [], []
        elif not in_list:
            raise Refused(f"unrecognized --mem-bind argument {text!r}")
        if in_list:
            element = rest if named else part
            value, times = _element(text, mode, element)
            if len(entries) + times > MAX_ENTRIES:
                raise Refused(f"--mem-bind: the list is longer than {MAX_ENTRIES} entries")
            entries += [value] * times
            words += [element.partition("*")[0]] * times
    return MemBind(mode, entries=tuple(entries), listed=",".join(words), verbose=verbose, prefer=prefer, sort=sort)


def _element(text: str, mode: str, element: str) -> tuple[int, int]:
    number, star, count = element.partition("*")
    try:
        value = int(number, 16) if mode == MASK or number[:2].lower() == "0x" else int(number)
        times = int(count) if star else 1
    except ValueError:
        raise Refused(f"--mem-bind={text[:60]}: {element[:60]!r} is no NUMA node") from None
    if times < 1 or value < 0 or (value.bit_length() > MAX_NODE + 1 if mode == MASK else value > MAX_NODE):
        raise Refused(f"--mem-bind={text[:60]}: {element[:60]!r} is no NUMA node")
    if mode == MASK and not value:
        raise Refused(f"--mem-bind={text[:60]}: mask {element[:60]!r} is empty")
    return value, min(times, MAX_ENTRIES + 1)
