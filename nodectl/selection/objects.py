"""The plugin's own objects about a node (select_nodeinfo) and about a job (select_jobinfo).

The host asks for them, keeps them in the records, hands them back to be packed, printed, read and freed, and knows
nothing of their contents.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.plugin_api import SLURM_VERSION_NUMBER
from nodectl.selection.buffer import BadBuffer, Buf
from nodectl.selection.calls import PluginAnswer, PluginCalls
from nodectl.selection.modes import (
    NODE_STATE_ALLOCATED,
    SELECT_JOBDATA_NETWORK,
    SELECT_NODEDATA_MEM_ALLOC,
    SELECT_NODEDATA_SUBCNT,
    SELECT_NODEDATA_TRES_ALLOC_FMT_STR,
    SELECT_PRINT_MIXED,
)  # fmt: skip
from nodectl.selection.records import JobRecord, NodeInfoMessage, NodeRecord, NodeTable, Output, StepRecord

PROTOCOL_VERSION = (SLURM_VERSION_NUMBER >> 16) << 8
"""The version of the packing, as Slurm counts it: 22 << 8."""
_LONGEST_PRINT = 1 << 16
_MOST_DIMENSIONS = 64


class PluginObjects:
    """The plugin's objects. `dimensions`: the size of the system according to the plugin; empty where not given."""

    def __init__(self, calls: PluginCalls, nodes: NodeTable) -> None:
        self._calls = calls
        self._nodes = nodes
        self._with_jobinfo: set[JobRecord] = set()
        self.dimensions: tuple[int, ...] = ()

    def start(self, jobs: Sequence[JobRecord]) -> None:
        """Make the objects of every node, after the plugin knows nodes and jobs."""
        for node in self._nodes if self._calls.has("select_nodeinfo_alloc") else ():
            node.select_nodeinfo = self._made("select_nodeinfo_alloc")
        for job in jobs:
            self._done("select_nodeinfo_set", job)
        self.refresh()
        self._calls.value("ba_init", NodeInfoMessage(self._nodes, self._calls.now), False)
        self.dimensions = self._dimensions()

    def _dimensions(self) -> tuple[int, ...]:
        answer = self._calls.value("ba_get_dims")
        found = answer.value
        if not answer.ok or found is None:
            return ()
        if (
            type(found) not in (list, tuple)
            or len(found) > _MOST_DIMENSIONS
            or any(type(one) is not int for one in found)
        ):
            self._calls.nonsense("ba_get_dims", found, "no list of whole numbers")
            return ()
        return tuple(found)

    def end(self) -> None:
        """Free all objects."""
        for node in self._nodes:
            if node.select_nodeinfo is not None:
                self._done("select_nodeinfo_free", node.select_nodeinfo)
                node.select_nodeinfo = None
        for job in list(self._with_jobinfo):
            self.free(job)

    def refresh(self) -> None:
        """Let the plugin bring the objects of all nodes up to date."""
        self._done("select_nodeinfo_set_all")

    def admit(self, job: JobRecord, *, is_kept: bool = True) -> None:
        """Make the object of a new job, and write the job's requested network into the object.

        `is_kept`: the packed object is kept in the job's record.
        """
        if job in self._with_jobinfo or job.select_jobinfo is not None:
            return
        if job.select_packed:
            self.unpack_job(job, job.select_packed)
            return
        job.select_jobinfo = self.new_jobinfo()
        if job.select_jobinfo is not None:
            self._with_jobinfo.add(job)
            network = job.details.layout.get("network", "")
            self._done("select_jobinfo_set", job.select_jobinfo, SELECT_JOBDATA_NETWORK, network)
            if is_kept:
                self.pack_job(job)

    def new_jobinfo(self) -> object:
        """Make an empty object of a job or a step."""
        return self._made("select_jobinfo_alloc")

    def copy(self, source: JobRecord, target: JobRecord) -> None:
        """Give a job made of another job, such as a task of an array, a copy of the object."""
        self.free(target)
        if source.select_jobinfo is None:
            self.admit(target)
            return
        target.select_jobinfo = self._made("select_jobinfo_copy", source.select_jobinfo)
        if target.select_jobinfo is not None:
            self._with_jobinfo.add(target)

    def free(self, job: JobRecord) -> None:
        """Free the object of a job about to be dropped."""
        self._with_jobinfo.discard(job)
        if job.select_jobinfo is not None:
            self._done("select_jobinfo_free", job.select_jobinfo)
            job.select_jobinfo = None

    def pack_step(self, step: StepRecord) -> str:
        """Return the step's object as hexadecimal digits; "" without an object, or where the plugin does not pack."""
        return "" if step.select_jobinfo is None else self._packed("select_jobinfo_pack", step.select_jobinfo).hex()

    def unpack_step(self, step: StepRecord, packed: str) -> None:
        """Restore the object of an earlier daemon's step from the result of `pack_step`; an empty one if unreadable."""
        if packed:
            step.select_jobinfo = self._unpacked("select_jobinfo_unpack", bytes.fromhex(packed))
        if step.select_jobinfo is None and self._calls.has("step_finish"):
            step.select_jobinfo = self.new_jobinfo()

    def free_step(self, step: StepRecord) -> None:
        """Free the object of a step about to be dropped."""
        if step.select_jobinfo is not None:
            self._done("select_jobinfo_free", step.select_jobinfo)
            step.select_jobinfo = None

    def pack_job(self, job: JobRecord) -> str:
        """Pack the job's object into the record as hexadecimal digits, and return the digits; "" without an object."""
        job.select_packed = ""
        if job.select_jobinfo is not None:
            job.select_packed = self._packed("select_jobinfo_pack", job.select_jobinfo).hex()
        return job.select_packed

    def unpack_job(self, job: JobRecord, packed: str) -> None:
        """Restore the job's object from the result of `pack_job`; make a new object where unreadable."""
        self.free(job)
        job.select_packed = ""
        try:
            data = bytes.fromhex(packed)
        except ValueError:
            data = b""
        if data:
            job.select_jobinfo = self._unpacked("select_jobinfo_unpack", data)
        if job.select_jobinfo is None:
            self.admit(job)
        else:
            self._with_jobinfo.add(job)
            job.select_packed = packed

    def job_data(self, job: JobRecord, data_type: int) -> object:
        """Return a field of the job's object; None where the object has no value."""
        data = Output()
        if job.select_jobinfo is None or not self._done("select_jobinfo_get", job.select_jobinfo, data_type, data):
            return None
        return data.value

    def print_job(self, job: JobRecord, mode: int = SELECT_PRINT_MIXED, size: int = 4096) -> str:
        """Return the text of select_p_select_jobinfo_sprint about the job's object, in at most `size` bytes."""
        if job.select_jobinfo is None:
            return ""
        buf = bytearray(min(size, _LONGEST_PRINT))
        answer = self._calls.value("select_jobinfo_sprint", job.select_jobinfo, buf, len(buf), mode)
        if not answer.ok or answer.value is None:
            return ""
        if not isinstance(answer.value, str | bytes | bytearray):
            self._calls.nonsense("select_jobinfo_sprint", answer.value, "neither its buffer nor a text")
            return ""
        return _text(answer.value, size)

    def describe_job(self, job: JobRecord, mode: int = SELECT_PRINT_MIXED) -> str:
        """Return the job's object as a text of any length, by select_p_select_jobinfo_xstrdup."""
        if job.select_jobinfo is None:
            return ""
        answer = self._calls.value("select_jobinfo_xstrdup", job.select_jobinfo, mode)
        if not answer.ok or answer.value is None:
            return ""
        if not isinstance(answer.value, str):
            self._calls.nonsense("select_jobinfo_xstrdup", answer.value, "no text")
            return ""
        return _text(answer.value, _LONGEST_PRINT)

    def node_data(self, node: NodeRecord) -> dict[str, object]:
        """Return the plugin's data about a node: `cpus` and `memory` allocated and a text `tres`, as far as given.

        They are read from a copy that was packed and unpacked, as a client's is.
        """
        if node.select_nodeinfo is None:
            return {}
        data = self._packed("select_nodeinfo_pack", node.select_nodeinfo)
        info = self._unpacked("select_nodeinfo_unpack", data) if data else None
        if info is None:
            return {}
        found: dict[str, object] = {}
        for name, dinfo, kind in (
            ("cpus", SELECT_NODEDATA_SUBCNT, int),
            ("memory", SELECT_NODEDATA_MEM_ALLOC, int),
            ("tres", SELECT_NODEDATA_TRES_ALLOC_FMT_STR, str),
        ):
            out = Output()
            answer = self._calls.code("select_nodeinfo_get", info, dinfo, NODE_STATE_ALLOCATED, out)
            if answer.ok and isinstance(out.value, kind):
                found[name] = out.value
        self._done("select_nodeinfo_free", info)
        return found

    def _made(self, name: str, *arguments: object) -> object:
        """Call a function for an object. NULL means failure."""
        answer = self._calls.null(name, self._calls.value(name, *arguments))
        self._calls.failed(name, answer)
        return answer.value

    def _done(self, name: str, *arguments: object) -> bool:
        return not self._calls.failed(name, self._calls.code(name, *arguments))

    def _packed(self, name: str, info: object) -> bytes:
        buffer = Buf()
        return bytes(buffer) if self._done(name, info, buffer, PROTOCOL_VERSION) else b""

    def _unpacked(self, name: str, data: bytes) -> object:
        out = Output()
        try:
            buffer = Buf(data)
        except BadBuffer as error:
            self._calls.fault(name, "what was kept", str(error))
            return None
        answer: PluginAnswer = self._calls.code(name, out, buffer, PROTOCOL_VERSION)
        return None if self._calls.failed(name, answer) else out.value


def _text(value: str | bytes | bytearray, size: int) -> str:
    """Return the text of a C string in this buffer."""
    if not isinstance(value, str):
        value = bytes(value).partition(b"\0")[0].decode("utf-8", "replace")
    return value[:size]
