"""The layout and binding requested for a step or job: the values behind srun's options.

Owns: `LayoutRequest`, `Settings`, and the small languages of `-m`, `-B`, `-N` and `--hint`. The languages of
--cpu-bind and --mem-bind are in `cpu_bind.py` and `mem_bind.py`. Values only; nothing here knows a machine.
"""

from __future__ import annotations

from nodectl.model.number import whole
from nodectl.model.value_class import dataclass
from nodectl.placement.binding.cpu_bind import CpuBind
from nodectl.placement.binding.entries import shown
from nodectl.placement.binding.mem_bind import MemBind
from nodectl.placement.binding.no_layout import NoLayout

UNLIMITED = 0xFFFF  # Slurm's word for "as many as there are" in -B and the options it stands for

BLOCK, CYCLIC, FULL_CYCLIC, PLANE, ARBITRARY = "block", "cyclic", "fcyclic", "plane", "arbitrary"
_MOST_NODES = 9_999_999
_LEVELS = {"block": BLOCK, "cyclic": CYCLIC, "fcyclic": FULL_CYCLIC, "*": None}
_HINTS = ("compute_bound", "memory_bound", "multithread", "nomultithread")


@dataclass(frozen=True, slots=True)
class Distribution:
    """`-m node:socket:core[,Pack|NoPack]`. None for a level is the default; `plane` is the size, 0 for none."""

    node: str | None = None
    socket: str | None = None
    core: str | None = None
    plane: int = 0
    pack: bool | None = None


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """The options of a step or job; None, "" or False for an option not given.

    Counts are Slurm's: tasks and CPUs are threads; `UNLIMITED` for `*` in -B.
    """

    ntasks: int | None = None
    nodes: tuple[int, int] | None = None  # -N: at least, at most
    cpus_per_task: int | None = None
    distribution: Distribution | None = None
    sockets_per_node: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    levels: int = 0  # of -B: 1 sockets, 2 cores, 3 threads; 0 without -B
    hint: str = ""
    cpu_bind: CpuBind | None = None
    mem_bind: MemBind | None = None
    ntasks_per_node: int | None = None
    ntasks_per_socket: int | None = None
    ntasks_per_core: int | None = None
    exact: bool = False
    exclusive: bool = False
    overcommit: bool = False
    overlap: bool = False
    whole: bool = False
    core_spec: int | None = None
    thread_spec: int | None = None
    mincpus: int | None = None
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    relative: int | None = None
    hosts: tuple[str, ...] = ()  # of -m arbitrary, one a task
    use_min_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration for layout and binding, under Slurm's names in lower case.

    Lists of words are lower case too: `("cr_core_memory", "cr_core_default_dist_block")`.
    """

    select_type_parameters: tuple[str, ...] = ("cr_core_memory",)
    slurmd_parameters: tuple[str, ...] = ()
    task_plugin_param: tuple[str, ...] = ()
    cpu_spec_list: int = 0  # machine CPU mask
    core_spec_count: int = 0
    node_cpu_bind: CpuBind | None = None  # CpuBind of the node, or else of the partition

    def selects(self, word: str) -> bool:
        """Return True if SelectTypeParameters has `word`, in any case of letters."""
        return word.lower() in self.select_type_parameters


_PACKS = {"pack": True, "nopack": False}


def parse_distribution(text: str) -> Distribution:
    """Read `-m`: `block|cyclic|arbitrary|plane=N|*[:block|cyclic|fcyclic|*[:...]][,Pack|NoPack]`. Raises NoLayout."""
    refused = NoLayout(f"Invalid --distribution specification {shown(text)}")
    levels, comma, word = text.partition(",") if text.lower() not in _PACKS else ("*", ",", text)
    pack = _PACKS.get(word.lower()) if comma else None
    if comma and pack is None:
        raise refused
    words = levels.lower().split(":")
    node, equals, size = words[0].partition("=")
    if equals or node == PLANE:
        plane = whole(size, UNLIMITED - 1)
        if node != PLANE or len(words) > 1 or not plane:
            raise refused
        return Distribution(PLANE, plane=plane, pack=pack)
    if node == ARBITRARY and len(words) == 1:
        return Distribution(ARBITRARY, pack=pack)
    if len(words) > 3 or node == FULL_CYCLIC or any(level not in _LEVELS for level in words):
        raise refused
    if text.lower() in _PACKS:
        return Distribution(pack=pack)
    # "*" asks for the default of its level: nodes filled, sockets in turn, cores as the sockets.
    socket = _LEVELS[words[1]] or CYCLIC if len(words) > 1 else None
    core = _LEVELS[words[2]] or socket if len(words) > 2 else None
    return Distribution(_LEVELS[node] or BLOCK, socket, core, pack=pack)


def parse_geometry(text: str) -> tuple[int, ...]:
    """Read `-B sockets[:cores[:threads]]`, `*` for UNLIMITED; return a number for each given level. Raises NoLayout."""
    numbers = []
    for word in text.split(":"):
        # a range is an old notation; its lower end counts
        low = word.partition("-")[0]
        number = UNLIMITED if low == "*" else whole(low, UNLIMITED - 1)
        if not number:
            break
        numbers.append(number)
    else:
        if len(numbers) <= 3:
            return tuple(numbers)
    raise NoLayout(f"invalid resource allocation -B {shown(text)}")


def parse_nodes(text: str) -> tuple[int, int]:
    """Read `-N least[-most]`. Raises NoLayout."""
    low, dash, high = text.partition("-")
    least, most = whole(low, _MOST_NODES), whole(high if dash else low, _MOST_NODES)
    if least and most and least <= most:
        return least, most
    raise NoLayout(f"Invalid node count specification {shown(text)}")


def parse_hint(text: str) -> str:
    """Check `--hint`, and return the hint in lower case. Raises NoLayout."""
    if text.lower() not in _HINTS:
        raise NoLayout(f"unrecognized --hint argument {shown(text)}, one of {', '.join(_HINTS)}")
    return text.lower()
