"""The objects of select/linear about a node and about a job, recognised by magic numbers.

Values; only the functions of the plugin pack, print and read them.
"""

from __future__ import annotations

import errno

from nodectl.plugin_api import SLURM_ERROR, SLURM_SUCCESS, PluginError
from nodectl.selection.buffer import BadBuffer, Buf
from nodectl.selection.modes import (
    SELECT_JOBDATA_NETWORK,
    SELECT_JOBDATA_PTR,
    SELECT_NODEDATA_MEM_ALLOC,
    SELECT_NODEDATA_PTR,
    SELECT_NODEDATA_SUBCNT,
    SELECT_NODEDATA_TRES_ALLOC_FMT_STR,
    SELECT_PRINT_DATA,
    SELECT_PRINT_HEAD,
)  # fmt: skip
from nodectl.selection.records import Output


class NodeInfo:
    """The CPUs and MiB of a node held by jobs, and the number of running jobs."""

    __slots__ = ("alloc_cpus", "alloc_memory", "jobs", "magic")
    MAGIC = 0x82AD

    def __init__(self, alloc_cpus: int = 0, alloc_memory: int = 0, jobs: int = 0) -> None:
        self.magic = self.MAGIC
        self.alloc_cpus = alloc_cpus
        self.alloc_memory = alloc_memory
        self.jobs = jobs

    def pack(self, buffer: Buf) -> int:
        """Pack the object as bytes."""
        buffer.pack16(self.magic)
        buffer.pack32(self.alloc_cpus)
        buffer.pack64(self.alloc_memory)
        buffer.pack32(self.jobs)
        return SLURM_SUCCESS

    @classmethod
    def unpacked(cls, buffer: Buf) -> NodeInfo:
        """Unpack an object. Raises PluginError."""
        try:
            check_magic(buffer.unpack16(), cls.MAGIC)
            return cls(buffer.unpack32(), buffer.unpack64(), buffer.unpack32())
        except BadBuffer as error:
            raise PluginError(errno.EINVAL, str(error)) from error

    def get(self, dinfo: int, data: Output) -> int:
        """Write a value into `data`. Return SLURM_SUCCESS, or SLURM_ERROR for an unknown type of data."""
        if dinfo == SELECT_NODEDATA_SUBCNT:
            data.value = self.alloc_cpus
        elif dinfo == SELECT_NODEDATA_MEM_ALLOC:
            data.value = self.alloc_memory
        elif dinfo == SELECT_NODEDATA_TRES_ALLOC_FMT_STR:
            data.value = f"cpu={self.alloc_cpus},mem={self.alloc_memory}M" if self.alloc_cpus else ""
        elif dinfo == SELECT_NODEDATA_PTR:
            data.value = self
        else:
            return SLURM_ERROR
        return SLURM_SUCCESS


class JobInfo:
    """The network requested by a job."""

    __slots__ = ("magic", "network")
    MAGIC = 0x86AD

    def __init__(self, network: str = "") -> None:
        self.magic = self.MAGIC
        self.network = network

    def pack(self, buffer: Buf) -> int:
        """Pack the object as bytes."""
        buffer.pack16(self.magic)
        buffer.packstr(self.network)
        return SLURM_SUCCESS

    @classmethod
    def unpacked(cls, buffer: Buf) -> JobInfo:
        """Unpack an object. Raises PluginError."""
        try:
            check_magic(buffer.unpack16(), cls.MAGIC)
            return cls(buffer.unpackstr() or "")
        except BadBuffer as error:
            raise PluginError(errno.EINVAL, str(error)) from error

    def get(self, data_type: int, data: Output) -> int:
        """Write a value into `data`. Return SLURM_SUCCESS, or SLURM_ERROR for an unknown type of data."""
        if data_type not in (SELECT_JOBDATA_NETWORK, SELECT_JOBDATA_PTR):
            return SLURM_ERROR
        data.value = self if data_type == SELECT_JOBDATA_PTR else self.network
        return SLURM_SUCCESS

    def set(self, data_type: int, data: object) -> int:
        """Change a value. Return SLURM_SUCCESS, or SLURM_ERROR for an unknown type of data."""
        if data_type != SELECT_JOBDATA_NETWORK:
            return SLURM_ERROR
        self.network = str(data or "")
        return SLURM_SUCCESS

    def text(self, mode: int) -> str:
        """Return a heading, the values, or both."""
        if mode == SELECT_PRINT_HEAD:
            return "NETWORK"
        return self.network if mode == SELECT_PRINT_DATA or not self.network else f"Network={self.network}"


def known(info: object, kind: type[NodeInfo] | type[JobInfo]) -> None:
    """Check an object. Raises PluginError for a foreign or freed object."""
    if not isinstance(info, kind):
        raise PluginError(errno.EINVAL, f"a {type(info).__name__} is no {kind.__name__}")
    check_magic(info.magic, kind.MAGIC)


def freed(info: NodeInfo | JobInfo) -> int:
    """Mark an object as freed, not to be used any more."""
    info.magic = 0
    return SLURM_SUCCESS


def check_magic(found: int, magic: int) -> None:
    """Check a magic number. Raises PluginError for a wrong number."""
    if found != magic:
        raise PluginError(errno.EINVAL, f"the magic number is {found:#x}, and not {magic:#x}")
