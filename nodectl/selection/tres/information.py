"""The plugin's objects with the data about a node (select_nodeinfo) and about a job (select_jobinfo)."""

from __future__ import annotations

import errno

from nodectl.model.value_class import dataclass
from nodectl.plugin_api import SLURM_ERROR, SLURM_SUCCESS, set_errno
from nodectl.selection.buffer import BadBuffer, Buf
from nodectl.selection.modes import (
    NODE_STATE_ALLOCATED,
    SELECT_JOBDATA_NETWORK,
    SELECT_JOBDATA_PTR,
    SELECT_NODEDATA_MEM_ALLOC,
    SELECT_NODEDATA_PTR,
    SELECT_NODEDATA_SUBCNT,
    SELECT_NODEDATA_TRES_ALLOC_FMT_STR,
    SELECT_NODEDATA_TRES_ALLOC_WEIGHTED,
)  # fmt: skip
from nodectl.selection.records import Output
from nodectl.selection.slurmctld import Parameters
from nodectl.selection.tres.state import State

NODE_MAGIC = 0x82AD
JOB_MAGIC = 0x86AD


@dataclass(slots=True)
class NodeInfo:
    """The resources of a node held by jobs: CPUs, memory in MiB, and all as Slurm writes trackable resources."""

    alloc_cpus: int = 0
    alloc_memory: int = 0
    tres: str = ""
    weighted: float = 0.0
    magic: int = NODE_MAGIC

    def pack(self, buffer: Buf) -> None:
        """Pack the object. Raises BadBuffer."""
        buffer.pack16(NODE_MAGIC)
        buffer.pack32(self.alloc_cpus)
        buffer.pack64(self.alloc_memory)
        buffer.packstr(self.tres)
        buffer.packdouble(self.weighted)

    @classmethod
    def unpack(cls, buffer: Buf) -> NodeInfo | None:
        """Unpack an object; None for a foreign object. Raises BadBuffer."""
        if buffer.unpack16() != NODE_MAGIC:
            return None
        return cls(buffer.unpack32(), buffer.unpack64(), buffer.unpackstr() or "", buffer.unpackdouble())

    def get(self, data_type: int, state: int) -> object:
        """Return a value; None for an unknown type of data. CPUs count only for the state NODE_STATE_ALLOCATED."""
        return {
            SELECT_NODEDATA_SUBCNT: self.alloc_cpus if state == NODE_STATE_ALLOCATED else 0,
            SELECT_NODEDATA_PTR: self,
            SELECT_NODEDATA_MEM_ALLOC: self.alloc_memory,
            SELECT_NODEDATA_TRES_ALLOC_FMT_STR: self.tres,
            SELECT_NODEDATA_TRES_ALLOC_WEIGHTED: self.weighted,
        }.get(data_type)


def note(state: State, node: int) -> None:
    """Bring the information of a node up to date."""
    info = state.table[node].select_nodeinfo
    if type(info) is not NodeInfo:
        return
    use = state.uses[node]
    info.alloc_cpus, info.alloc_memory = state.cpus[node], use.memory
    info.weighted = float(state.cpus[node])
    words = [f"cpu={info.alloc_cpus}"] if info.alloc_cpus else []
    words += [f"mem={use.memory}M"] if use.memory else []
    counts: dict[str, int] = {}
    for device in use.shape.devices_of(use.gres):
        counts[device.name] = counts.get(device.name, 0) + 1
    info.tres = ",".join(words + [f"gres/{name}={count}" for name, count in sorted(counts.items())])


@dataclass(slots=True)
class JobInfo:
    """The data about a job: the requested network."""

    network: str = ""
    magic: int = JOB_MAGIC

    def pack(self, buffer: Buf) -> None:
        """Pack the object. Raises BadBuffer."""
        buffer.pack16(JOB_MAGIC)
        buffer.packstr(self.network)

    @classmethod
    def unpack(cls, buffer: Buf) -> JobInfo | None:
        """Unpack an object; None for a foreign object. Raises BadBuffer."""
        return cls(buffer.unpackstr() or "") if buffer.unpack16() == JOB_MAGIC else None

    def get(self, data_type: int) -> object:
        """Return a value; None for an unknown type of data."""
        return {SELECT_JOBDATA_PTR: self, SELECT_JOBDATA_NETWORK: self.network}.get(data_type)

    def shown(self, mode: int) -> str:
        """Return the object in words: a heading (mode 0), a value (1), or both (2)."""
        return ("NETWORK", self.network, f"Network={self.network}" if self.network else "")[mode]


def is_ours(info: object, kind: type[NodeInfo] | type[JobInfo]) -> bool:
    """True for an object of this plugin, not freed. Otherwise sets errno with the reason."""
    if type(info) is kind and info.magic:
        return True
    set_errno(errno.EINVAL, f"no {kind.__name__} of select/cons_tres")
    return False


def freed(info: NodeInfo | JobInfo, kind: type[NodeInfo] | type[JobInfo]) -> int:
    """Mark an object as freed. Return the documented function's answer."""
    if not is_ours(info, kind):
        return SLURM_ERROR
    info.magic = 0
    return SLURM_SUCCESS


def unpacked(out: Output, buffer: Buf, kind: type[NodeInfo] | type[JobInfo]) -> int:
    """Read an object. Return the documented function's answer."""
    try:
        out.value = kind.unpack(buffer)
    except BadBuffer as error:
        set_errno(errno.EINVAL, str(error))
        return SLURM_ERROR
    return SLURM_SUCCESS if is_ours(out.value, kind) else SLURM_ERROR


def told(data: Output, value: object) -> int:
    """Write a value into `data`, unless None. Return the documented function's answer."""
    if value is None:
        return SLURM_ERROR
    data.value = value
    return SLURM_SUCCESS


def configuration(parameters: Parameters) -> list[tuple[str, str]]:
    """Return the answer for SELECT_CONFIG_INFO."""
    return [
        ("SelectTypeParameters", ",".join(parameters.settings.select_type_parameters)),
        ("OverSubscribe", f"{parameters.over_subscribe}:{parameters.share_count}"),
        ("DefMemPerCPU", str(parameters.def_mem_per_cpu)),
    ]
