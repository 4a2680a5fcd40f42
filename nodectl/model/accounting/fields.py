"""The fields of `nodectl acct --format`: sacct's names, widths and ways to print, and some of nodectl's own.

A field of sacct's without a meaning on one machine is empty; it stays allowed, so that scripts go on working. Pure.
"""

from __future__ import annotations

import grp
from collections.abc import Callable
from dataclasses import dataclass

from nodectl.model.accounting.amounts import amount, near
from nodectl.model.accounting.rows import Row
from nodectl.model.device_part import as_tres
from nodectl.model.words import cpu_time, duration, moment

_MIB = 1 << 20
_KEPT_AS_CPUS = 100


@dataclass(frozen=True, slots=True)
class Style:
    """The way to print values.

    `now`: the time up to which running jobs count. `unit`: a unit of bytes or "". `plain`: bytes as numbers. `times`: a
    strftime pattern or "".
    """

    now: float
    unit: str = ""
    plain: bool = False
    times: str = ""


@dataclass(frozen=True, slots=True)
class AcctField:
    """A column of the output. `width` is negative for a column flush left."""

    name: str
    width: int
    text: Callable[[Row, Style], object]


class UnknownField(Exception):
    """An unknown or malformed field in a format; str() has the words about the field."""


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return str(gid)


def _code(pair: tuple[int, int]) -> str:
    return f"{pair[0]}:{pair[1]}"


def _of_task(pair: tuple[int, int] | tuple[float, int] | None) -> object:
    return "" if pair is None else pair[1]


def _bytes(value: int | None, style: Style) -> str:
    return amount(value, style.unit, plain=style.plain)


def _moved(value: int | None, style: Style) -> str:
    return near(value, style.unit, plain=style.plain)


def _pressure(row: Row, resource: str) -> str:
    return cpu_time(row.used.pressure[resource][0]) if resource in row.used.pressure else ""


def _tres(row: Row, cpus: int, style: Style) -> str:
    parts = [f"cpu={cpus}", *([f"mem={_bytes(row.memory * _MIB, style)}"] if row.memory else []), "node=1"]
    gres = (f"gres/{kind}={count}" for kind, count in as_tres(row.gres).items())
    return ",".join([*parts, *gres]) if cpus else ""


def _time_limit(row: Row) -> str:
    if row.step is not None:
        return ""
    return duration(row.time_limit) if row.time_limit else "UNLIMITED"


def _tasks(row: Row, value: float | None) -> float | None:
    return None if value is None else value / max(row.ntasks, 1)


def _efficiency(row: Row, style: Style) -> str:
    held = row.cpus * row.elapsed(style.now)
    return f"{_KEPT_AS_CPUS * row.used.cpu / held:.1f}%" if held and row.ended else ""


def _ave(row: Row, value: int | None, style: Style) -> str:
    mean = _tasks(row, value)
    return _moved(None if mean is None else round(mean), style)


_FIELDS = (
    AcctField("Account", 10, lambda r, s: r.account),
    AcctField("AllocCPUS", 10, lambda r, s: r.cpus if r.started else 0),
    AcctField("AllocNodes", 10, lambda r, s: int(bool(r.started))),
    AcctField("AllocTRES", 10, lambda r, s: _tres(r, r.cpus, s) if r.started else ""),
    AcctField("AveCPU", 10, lambda r, s: duration(_tasks(r, r.used.cpu) or 0) if r.step is not None else ""),
    AcctField("AveDiskRead", 14, lambda r, s: _ave(r, r.used.read, s) if r.step is not None else ""),
    AcctField("AveDiskWrite", 14, lambda r, s: _ave(r, r.used.written, s) if r.step is not None else ""),
    AcctField("AveRSS", 10, lambda r, s: _bytes(r.used.ave_rss, s) if r.step is not None else ""),
    AcctField("Comment", 14, lambda r, s: r.comment),
    AcctField("ConsumedEnergy", 14, lambda r, s: "" if r.used.energy is None else round(r.used.energy)),
    AcctField("ConsumedEnergyRaw", 17, lambda r, s: "" if r.used.energy is None else round(r.used.energy)),
    AcctField("CPUTime", 10, lambda r, s: duration(r.cpus * r.elapsed(s.now))),
    AcctField("CPUTimeRAW", 10, lambda r, s: int(r.cpus * r.elapsed(s.now))),
    AcctField("DerivedExitCode", 15, lambda r, s: _code((r.derived, 0)) if r.step is None else ""),
    AcctField("Elapsed", 10, lambda r, s: duration(r.elapsed(s.now))),
    AcctField("ElapsedRaw", 10, lambda r, s: int(r.elapsed(s.now))),
    AcctField("Eligible", 19, lambda r, s: moment(r.eligible, "Unknown", s.times)),
    AcctField("End", 19, lambda r, s: moment(r.ended, "Unknown", s.times)),
    AcctField("ExitCode", 8, lambda r, s: _code(r.exit)),
    AcctField("GID", 6, lambda r, s: r.gid),
    AcctField("Group", 9, lambda r, s: _group(r.gid)),
    AcctField("JobID", -12, lambda r, s: r.id),
    AcctField("JobIDRaw", -12, lambda r, s: r.raw_id),
    AcctField("JobName", 10, lambda r, s: r.name),
    AcctField("MaxDiskRead", 12, lambda r, s: _moved(r.used.max_read and r.used.max_read[0], s)),
    AcctField("MaxDiskReadTask", 15, lambda r, s: _of_task(r.used.max_read)),
    AcctField("MaxDiskWrite", 12, lambda r, s: _moved(r.used.max_written and r.used.max_written[0], s)),
    AcctField("MaxDiskWriteTask", 16, lambda r, s: _of_task(r.used.max_written)),
    AcctField("MaxRSS", 10, lambda r, s: _bytes(r.used.max_rss and r.used.max_rss[0], s)),
    AcctField("MaxRSSNode", 10, lambda r, s: r.nodes if r.used.max_rss else ""),
    AcctField("MaxRSSTask", 10, lambda r, s: _of_task(r.used.max_rss)),
    AcctField("MinCPU", 10, lambda r, s: duration(r.used.min_cpu[0]) if r.used.min_cpu else ""),
    AcctField("MinCPUTask", 10, lambda r, s: _of_task(r.used.min_cpu)),
    AcctField("NCPUS", 10, lambda r, s: r.cpus if r.started else 0),
    AcctField("NNodes", 8, lambda r, s: 1),
    AcctField("NodeList", 15, lambda r, s: r.nodes or "None assigned"),
    AcctField("NTasks", 8, lambda r, s: r.ntasks if r.step is not None else ""),
    AcctField("Partition", 10, lambda r, s: r.partition),
    AcctField("Planned", 10, lambda r, s: duration(r.waited(s.now)) if r.step is None else ""),
    AcctField("Priority", 10, lambda r, s: r.priority if r.step is None else ""),
    AcctField("QOS", 10, lambda r, s: r.qos),
    AcctField("Reason", 22, lambda r, s: r.reason),
    AcctField("ReqCPUS", 8, lambda r, s: r.asked_cpus),
    AcctField("ReqMem", 10, lambda r, s: _bytes(r.memory * _MIB, s) if r.step is None else ""),
    AcctField("ReqNodes", 8, lambda r, s: 1),
    AcctField("ReqTRES", 10, lambda r, s: _tres(r, r.asked_cpus, s) if r.step is None else ""),
    AcctField("Reservation", 20, lambda r, s: r.reservation),
    AcctField("Reserved", 10, lambda r, s: duration(r.waited(s.now)) if r.step is None else ""),
    AcctField("Restarts", 8, lambda r, s: r.restarts if r.step is None else ""),
    AcctField("Start", 19, lambda r, s: moment(r.started, "Unknown", s.times)),
    AcctField("State", 10, lambda r, s: r.state),
    AcctField("Submit", 19, lambda r, s: moment(r.submitted, "Unknown", s.times)),
    AcctField("SubmitLine", 20, lambda r, s: r.command),
    AcctField("Suspended", 10, lambda r, s: duration(r.suspended)),
    AcctField("SystemCPU", 10, lambda r, s: cpu_time(r.used.system)),
    AcctField("Timelimit", 10, lambda r, s: _time_limit(r)),
    AcctField("TimelimitRaw", 12, lambda r, s: r.time_limit // 60 if r.time_limit and r.step is None else ""),
    AcctField("TotalCPU", 10, lambda r, s: cpu_time(r.used.cpu)),
    AcctField("UID", 6, lambda r, s: r.uid),
    AcctField("User", 9, lambda r, s: r.user if r.step is None else ""),
    AcctField("UserCPU", 10, lambda r, s: cpu_time(r.used.user)),
    AcctField("WorkDir", 20, lambda r, s: r.cwd),
    # nodectl's own.
    AcctField("DiskRead", 12, lambda r, s: _moved(r.used.disk_read, s)),
    AcctField("DiskWrite", 12, lambda r, s: _moved(r.used.disk_written, s)),
    AcctField("Efficiency", 10, _efficiency),
    AcctField("PeakMemory", 10, lambda r, s: _bytes(r.used.peak_memory, s)),
    AcctField("PeakProcesses", 13, lambda r, s: "" if r.used.peak_processes is None else r.used.peak_processes),
    AcctField("PressureCPU", 11, lambda r, s: _pressure(r, "cpu")),
    AcctField("PressureIO", 11, lambda r, s: _pressure(r, "io")),
    AcctField("PressureMemory", 14, lambda r, s: _pressure(r, "memory")),
    AcctField("Read", 12, lambda r, s: _moved(r.used.read, s)),
    AcctField("Secure", 8, lambda r, s: r.secure),
    AcctField("Written", 12, lambda r, s: _moved(r.used.written, s)),
)
_NOTHING_HERE = """
    AdminComment AssocID AveCPUFreq AvePages AveVMSize BlockID Cluster Constraints Container DBIndex Extra
    FailedNode Flags Layout Licenses MaxDiskReadNode MaxDiskWriteNode MaxPages MaxPagesNode MaxPagesTask MaxVMSize
    MaxVMSizeNode
    MaxVMSizeTask McsLabel MinCPUNode PlannedCPU PlannedCPURAW QOSRAW ReqCPUFreq ReqCPUFreqGov ReqCPUFreqMax
    ReqCPUFreqMin ReservationId StdErr StdIn StdOut SystemComment TRESUsageInAve TRESUsageInMax TRESUsageInTot
    TRESUsageOutAve TRESUsageOutMax TRESUsageOutTot WCKey WCKeyID
""".split()  # noqa: SIM905  # a list of words reads best
FIELDS: dict[str, AcctField] = {
    field.name.lower(): field for field in (*_FIELDS, *(AcctField(name, 10, lambda r, s: "") for name in _NOTHING_HERE))
}
USUAL = ("JobID", "JobName", "User", "AllocCPUS", "State", "ExitCode", "Elapsed", "TotalCPU", "MaxRSS")
BRIEF = ("JobID", "State", "ExitCode")
LONG = (
    "JobID", "JobIDRaw", "JobName", "User", "Partition", "QOS", "MaxRSS", "MaxRSSTask", "AveRSS", "PeakMemory",
    "MinCPU", "MinCPUTask", "AveCPU", "NTasks", "AllocCPUS", "Elapsed", "State", "ExitCode", "DerivedExitCode",
    "ReqMem", "ConsumedEnergy", "MaxDiskRead", "MaxDiskWrite", "DiskRead", "DiskWrite", "UserCPU", "SystemCPU",
    "Efficiency",
    "PressureCPU", "PressureMemory", "PressureIO", "Submit", "Eligible", "Start", "End", "Reserved", "Restarts",
)  # fmt: skip


def columns(text: str) -> list[tuple[AcctField, int]]:
    """Parse `JobID%20,State%-10,ExitCode` into fields with widths. Raises UnknownField."""
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, percent, width = word.partition("%")
        field = FIELDS.get(name.lower())
        if field is None:
            raise UnknownField(f"no field {name[:40]!r}; --helpformat lists them")
        if percent and not width.removeprefix("-").isdecimal():
            raise UnknownField(f"{word[:40]!r}: a width is a number, as in {name}%20")
        found.append((field, int(width[:6]) if percent else field.width))
    if not found:
        raise UnknownField("no field is named")
    return found
