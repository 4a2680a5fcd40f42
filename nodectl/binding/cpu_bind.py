"""The language of `--cpu-bind`.

Owns: reading `[quiet|verbose,]none|rank|threads|cores|sockets|ldoms|map_cpu:LIST|mask_cpu:LIST|rank_ldom|map_ldom:LIST|
mask_ldom:LIST` into a value. Lean: plugins of the step runner import it, so no dataclasses, no re.
"""

from __future__ import annotations

from nodectl.binding.entries import Entries, shown
from nodectl.binding.refused import Refused

MAX_TEXT = 1 << 20
MAX_CPU = 65_535

THREADS, CORES, SOCKETS, LDOMS = "threads", "cores", "sockets", "ldoms"
NONE, RANK, MAP, MASK = "none", "rank", "map_cpu", "mask_cpu"
RANK_LDOM, MAP_LDOM, MASK_LDOM = "rank_ldom", "map_ldom", "mask_ldom"

_UNITS = {name: name for name in (THREADS, CORES, SOCKETS, LDOMS)}
_MODES = {"no": NONE, "none": NONE, "rank": RANK, "rank_ldom": RANK_LDOM}
_LISTS = {name: name for name in (MAP, MASK, MAP_LDOM, MASK_LDOM)}
_VERBOSITY = {"v": True, "verbose": True, "q": False, "quiet": False}


class CpuBind:
    """One request for binding. A `unit` ("" for none) binds automatically; a `mode` ("" for none) says what to bind to
    and goes before the unit, which -B and others may have set besides. `entries`: machine CPUs of MAP, masks of MASK,
    NUMA nodes of MAP_LDOM, masks of them of MASK_LDOM, repetitions expanded, reused in turn; `listed` the same in the
    words of the user. `one_thread`: one thread of each core only, from --hint.
    """

    __slots__ = ("entries", "listed", "mode", "one_thread", "unit", "verbose")

    def __init__(
        self,
        unit: str = "",
        mode: str = "",
        *,
        entries: tuple[int, ...] = (),
        listed: str = "",
        verbose: bool = False,
        one_thread: bool = False,
    ) -> None:
        self.unit = unit
        self.mode = mode
        self.entries = entries
        self.listed = listed
        self.verbose = verbose
        self.one_thread = one_thread

    def replace(self, **changes: object) -> CpuBind:
        """The same with these fields changed."""
        fields: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        return CpuBind(**(fields | changes))  # type: ignore[arg-type]  # the slots are the parameters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CpuBind) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__ if getattr(self, name))
        return f"CpuBind({fields})"

    @property
    def asked(self) -> bool:
        """Whether it says more than how much to tell."""
        return bool(self.unit or self.mode)


def parse_cpu_bind(text: str) -> CpuBind:
    """Read the value of `--cpu-bind`, words in any case of letters; the last of several words of a kind holds. After a
    list's word every part up to the next word of the language belongs to the list. Raises Refused.
    """
    if len(text) > MAX_TEXT:
        raise Refused(f"--cpu-bind: longer than {MAX_TEXT} characters")
    bind = CpuBind()
    entries: Entries | None = None
    in_list = False
    for part in text.split(","):
        word, colon, rest = part.partition(":")
        word = word.lower()
        if not colon and word in _VERBOSITY:
            bind.verbose, in_list = _VERBOSITY[word], False
            continue
        named = _LISTS.get(word) if colon else _MODES.get(word) or _UNITS.get(word)
        if named:
            in_list = bool(colon)
            bind.unit, bind.mode = (named, "") if named in _UNITS else ("", named)
            entries = _entries(named) if in_list else None
        elif not in_list:
            raise Refused(f"unrecognized --cpu-bind argument {shown(part)}")
        if in_list and entries:
            entries.add(rest if named else part)
    if entries:
        bind.entries, bind.listed = entries.values, entries.listed
    return bind


def _entries(mode: str) -> Entries:
    noun = "CPUs" if mode in (MAP, MASK) else "NUMA nodes"
    return Entries(f"--cpu-bind={mode}", masks=mode in (MASK, MASK_LDOM), highest=MAX_CPU, noun=noun)


def format_mask(mask: int, width: int = 1) -> str:
    """Write a mask as Slurm does: upper-case digits, as many as `width` CPUs need."""
    return f"0x{mask:0{(width + 3) // 4}X}"
