"""The language of `--cpu-bind`.

Owns: reading `[quiet|verbose,][one_thread,]none|rank|threads|cores|sockets|ldoms|map_cpu:LIST|mask_cpu:LIST|rank_ldom|
map_ldom:LIST|mask_ldom:LIST` into a value. Lean: plugins of the step runner import it, so no dataclasses, no re.
"""

from __future__ import annotations

from nodectl.placement.binding.entries import MAX_NODE, Entries
from nodectl.placement.binding.language import Value, read

MAX_CPU = 65_535

THREADS, CORES, SOCKETS, LDOMS = "threads", "cores", "sockets", "ldoms"
NONE, RANK, MAP, MASK = "none", "rank", "map_cpu", "mask_cpu"
RANK_LDOM, MAP_LDOM, MASK_LDOM = "rank_ldom", "map_ldom", "mask_ldom"

_UNITS = (THREADS, CORES, SOCKETS, LDOMS)
_WORDS = {"no": NONE, **{name: name for name in (NONE, RANK, RANK_LDOM, *_UNITS)}}
_FLAGS = {
    "v": ("verbose", True), "verbose": ("verbose", True), "q": ("verbose", False), "quiet": ("verbose", False),
    "one_thread": ("one_thread", True),
}  # fmt: skip


class CpuBind(Value):
    """A request for binding.

    A `unit` ("" for none) binds automatically; a `mode` ("" for none) names the target of the binding and takes
    precedence over the unit, which -B and other options may have set besides. `entries`: machine CPUs of MAP, masks of
    MASK, NUMA nodes of MAP_LDOM, masks of NUMA nodes of MASK_LDOM, repetitions expanded, reused in turn; `listed`: the
    same in the words of the user. `one_thread`: only one thread of each core, as with --hint=nomultithread.
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
        """Return a copy with some fields changed."""
        fields: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        return CpuBind(**(fields | changes))  # type: ignore[arg-type]  # the slots are the parameters

    @property
    def asked(self) -> bool:
        """True if the request asks for a binding, not only for a level of verbosity."""
        return bool(self.unit or self.mode or self.one_thread)


def parse_cpu_bind(text: str) -> CpuBind:
    """Read the value of `--cpu-bind`, see `language.read`. Raises NoLayout."""
    said = read("--cpu-bind", text, _FLAGS, _WORDS, _LISTS)
    unit, mode = (said.word, "") if said.word in _UNITS else ("", said.word)
    return CpuBind(unit, mode, entries=said.entries, listed=said.listed, **said.flags)


def _cpus(mode: str, *, masks: bool) -> Entries:
    # srun accepts CPUs in decimal only: people would read 0x10 and 10 in one list differently.
    return Entries(f"--cpu-bind={mode}", masks=masks, highest=MAX_CPU, noun="CPUs", hexadecimal=masks)


def _nodes(mode: str, *, masks: bool) -> Entries:
    return Entries(f"--cpu-bind={mode}", masks=masks, highest=MAX_NODE, noun="NUMA nodes")


_LISTS = {
    MAP: lambda: _cpus(MAP, masks=False),
    MASK: lambda: _cpus(MASK, masks=True),
    MAP_LDOM: lambda: _nodes(MAP_LDOM, masks=False),
    MASK_LDOM: lambda: _nodes(MASK_LDOM, masks=True),
}


def format_mask(mask: int, width: int = 1) -> str:
    """Write a mask as Slurm does: upper-case digits, as many as `width` CPUs need."""
    return f"0x{mask:0{(width + 3) // 4}X}"
