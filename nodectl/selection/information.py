"""The objects of nodectl's own select plugins about a node (select_nodeinfo) and about a job (select_jobinfo).

The functions are those of the select interface that work on these objects alone: a plugin imports them all as its own,
and fills the objects of its nodes. An object has a magic number until it is freed.
"""

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

__all__ = [
    "select_p_select_jobinfo_alloc", "select_p_select_jobinfo_copy", "select_p_select_jobinfo_free",
    "select_p_select_jobinfo_get", "select_p_select_jobinfo_pack", "select_p_select_jobinfo_set",
    "select_p_select_jobinfo_sprint", "select_p_select_jobinfo_unpack", "select_p_select_jobinfo_xstrdup",
    "select_p_select_nodeinfo_alloc", "select_p_select_nodeinfo_free", "select_p_select_nodeinfo_get",
    "select_p_select_nodeinfo_pack", "select_p_select_nodeinfo_unpack",
]  # fmt: skip

_NODE_MAGIC, _JOB_MAGIC = 0x82AD, 0x86AD


@dataclass(slots=True)
class NodeInfo:
    """The resources of a node held by jobs: CPUs, memory in MiB, and all as Slurm writes trackable resources."""

    alloc_cpus: int = 0
    alloc_memory: int = 0
    tres: str = ""
    weighted: float = 0.0
    magic: int = _NODE_MAGIC

    def pack(self, buffer: Buf) -> None:
        """Append the values to the buffer. Raises BadBuffer."""
        buffer.pack32(self.alloc_cpus)
        buffer.pack64(self.alloc_memory)
        buffer.packstr(self.tres)
        buffer.packdouble(self.weighted)

    @classmethod
    def unpack(cls, buffer: Buf) -> NodeInfo:
        """Read the values from the buffer. Raises BadBuffer."""
        return cls(buffer.unpack32(), buffer.unpack64(), buffer.unpackstr() or "", buffer.unpackdouble())


@dataclass(slots=True)
class JobInfo:
    """The data about a job: the requested network."""

    network: str = ""
    magic: int = _JOB_MAGIC

    def pack(self, buffer: Buf) -> None:
        """Append the value to the buffer. Raises BadBuffer."""
        buffer.packstr(self.network)

    @classmethod
    def unpack(cls, buffer: Buf) -> JobInfo:
        """Read the value from the buffer. Raises BadBuffer."""
        return cls(buffer.unpackstr() or "")


_MAGIC = {NodeInfo: _NODE_MAGIC, JobInfo: _JOB_MAGIC}
_Kind = type[NodeInfo] | type[JobInfo]


def told(data: Output, value: object) -> int:
    """Write a value into `data`, unless None. Return the answer of the interface's function."""
    if value is None:
        return SLURM_ERROR
    data.value = value
    return SLURM_SUCCESS


def _is_ours(info: object, kind: _Kind) -> bool:
    """True for an object of this kind, not freed. Otherwise set errno with the reason."""
    if type(info) is kind and info.magic:
        return True
    set_errno(errno.EINVAL, f"no {kind.__name__} of this plugin")
    return False


def _packed(info: NodeInfo | JobInfo, buffer: Buf, kind: _Kind) -> int:
    if not _is_ours(info, kind):
        return SLURM_ERROR
    buffer.pack16(_MAGIC[kind])
    info.pack(buffer)
    return SLURM_SUCCESS


def _unpacked(out: Output, buffer: Buf, kind: _Kind) -> int:
    try:
        out.value = kind.unpack(buffer) if buffer.unpack16() == _MAGIC[kind] else None
    except BadBuffer as error:
        set_errno(errno.EINVAL, str(error))
        return SLURM_ERROR
    return SLURM_SUCCESS if _is_ours(out.value, kind) else SLURM_ERROR


def _freed(info: NodeInfo | JobInfo, kind: _Kind) -> int:
    if not _is_ours(info, kind):
        return SLURM_ERROR
    info.magic = 0
    return SLURM_SUCCESS


def select_p_select_nodeinfo_alloc() -> NodeInfo:
    """Return a new NodeInfo of an idle node."""
    return NodeInfo()


def select_p_select_nodeinfo_pack(nodeinfo: NodeInfo, buffer: Buf, protocol_version: int) -> int:
    """Append the NodeInfo to the buffer."""
    return _packed(nodeinfo, buffer, NodeInfo)


def select_p_select_nodeinfo_unpack(nodeinfo: Output, buffer: Buf, protocol_version: int) -> int:
    """Read a NodeInfo from the buffer."""
    return _unpacked(nodeinfo, buffer, NodeInfo)


def select_p_select_nodeinfo_free(nodeinfo: NodeInfo) -> int:
    """Mark the NodeInfo as freed."""
    return _freed(nodeinfo, NodeInfo)


def select_p_select_nodeinfo_get(nodeinfo: NodeInfo, dinfo: int, state: int, data: Output) -> int:
    """Write a value of the NodeInfo into `data`. CPUs count only for the state NODE_STATE_ALLOCATED."""
    if not _is_ours(nodeinfo, NodeInfo):
        return SLURM_ERROR
    values = {
        SELECT_NODEDATA_SUBCNT: nodeinfo.alloc_cpus if state == NODE_STATE_ALLOCATED else 0,
        SELECT_NODEDATA_PTR: nodeinfo,
        SELECT_NODEDATA_MEM_ALLOC: nodeinfo.alloc_memory,
        SELECT_NODEDATA_TRES_ALLOC_FMT_STR: nodeinfo.tres,
        SELECT_NODEDATA_TRES_ALLOC_WEIGHTED: nodeinfo.weighted,
    }
    return told(data, values.get(dinfo))


def select_p_select_jobinfo_alloc() -> JobInfo:
    """Return a new JobInfo."""
    return JobInfo()


def select_p_select_jobinfo_copy(jobinfo: JobInfo) -> JobInfo | None:
    """Return a copy of the JobInfo."""
    return JobInfo(jobinfo.network) if _is_ours(jobinfo, JobInfo) else None


def select_p_select_jobinfo_free(jobinfo: JobInfo) -> int:
    """Mark the JobInfo as freed."""
    return _freed(jobinfo, JobInfo)


def select_p_select_jobinfo_pack(jobinfo: JobInfo, buffer: Buf, protocol_version: int) -> int:
    """Append the JobInfo to the buffer."""
    return _packed(jobinfo, buffer, JobInfo)


def select_p_select_jobinfo_unpack(jobinfo_pptr: Output, buffer: Buf, protocol_version: int) -> int:
    """Read a JobInfo from the buffer."""
    return _unpacked(jobinfo_pptr, buffer, JobInfo)


def select_p_select_jobinfo_get(jobinfo: JobInfo, data_type: int, data: Output) -> int:
    """Write a value of the JobInfo into `data`."""
    if not _is_ours(jobinfo, JobInfo):
        return SLURM_ERROR
    return told(data, {SELECT_JOBDATA_PTR: jobinfo, SELECT_JOBDATA_NETWORK: jobinfo.network}.get(data_type))


def select_p_select_jobinfo_set(jobinfo: JobInfo, data_type: int, data: object) -> int:
    """Set the network of the job's request, the only settable value."""
    if not _is_ours(jobinfo, JobInfo) or data_type != SELECT_JOBDATA_NETWORK:
        return SLURM_ERROR
    jobinfo.network = str(data or "")
    return SLURM_SUCCESS


def select_p_select_jobinfo_sprint(jobinfo: JobInfo, buf: bytearray, size: int, mode: int) -> bytearray | None:
    """Write the JobInfo's text into `buf` as a C string."""
    text = select_p_select_jobinfo_xstrdup(jobinfo, mode)
    if text is None or size < 1:
        return None
    written = text.encode("utf-8", "replace")[: size - 1] + b"\0"
    buf[: len(written)] = written
    return buf


def select_p_select_jobinfo_xstrdup(jobinfo: JobInfo, mode: int) -> str | None:
    """Return the JobInfo's text, a heading (mode 0), a value (1), or both (2); None for an unknown mode."""
    if not _is_ours(jobinfo, JobInfo) or not 0 <= mode <= 2:
        return None
    return ("NETWORK", jobinfo.network, f"Network={jobinfo.network}" if jobinfo.network else "")[mode]
