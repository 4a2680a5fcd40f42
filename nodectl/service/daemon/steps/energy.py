"""The energy of jobs which had the machine alone from beginning to end.

The processors are counted as a whole. Energy used by two jobs at the same time cannot be divided, so no value is
recorded for either. The value for a job that ran alone is all that the machine used meanwhile, including other
activity. Used in the event loop only. Costs nothing where no counter can be read.
"""

import asyncio
from collections.abc import Iterable, Mapping

from nodectl.placement.machine import sysfs

_ZONES = "sys/class/powercap"
_ZONE = "intel-rapl:"  # AMD's have this name too; intel-rapl-mmio counts the same packages once more
_PACKAGE = "package"
_MICROJOULES = 1e6
_NONE = -1
_SECONDS = 30.0


class EnergyMeter:
    """The energy counters of a machine's processor packages, read below `root`: RAPL, the kernel's powercap.rst.

    Only root may read the counters (they reveal too much of others' computations), and most virtual machines have none.
    A counter starts again when it is full, after minutes under load: read it every minute.
    """

    def __init__(self, root: str = "/") -> None:
        base = f"{root.rstrip('/')}/{_ZONES}"
        zones = (f"{base}/{_ZONE}{number}" for number in sysfs.entries(base, _ZONE))
        packages = [zone for zone in zones if (sysfs.text(f"{zone}/name") or "").startswith(_PACKAGE)]
        found = {zone: sysfs.number(f"{zone}/energy_uj", _NONE) for zone in packages}
        self._last = {zone: count for zone, count in found.items() if count != _NONE}
        self._passed = 0

    @property
    def counts(self) -> bool:
        """True if there are counters to read."""
        return bool(self._last)

    def read(self) -> float:
        """Return the joules of all packages since the creation of the meter."""
        for zone, last in self._last.items():
            count = sysfs.number(f"{zone}/energy_uj", last)
            if count < last:
                self._passed += sysfs.number(f"{zone}/max_energy_range_uj", last)
            self._passed += count - last
            self._last[zone] = count
        return self._passed / _MICROJOULES


class EnergyBook:
    """The energy account of a node. `running` yields the keys (job, step) of the running steps."""

    def __init__(self, running: Iterable[tuple[int, int]], meter: EnergyMeter | None = None) -> None:
        self._running = running
        self._meter = EnergyMeter() if meter is None else meter
        self._alone: dict[int, float] = {}  # the job that runs alone, and the meter at its beginning
        self._due = False

    def begun(self, job: int, *, is_first: bool) -> None:
        """Note a started step of the job; `is_first` for the job's first step."""
        if not self._meter.counts:
            return
        if any(number != job for number, _ in self._running):
            self._alone.clear()
        elif is_first:
            self._alone[job] = self._meter.read()
            self._read_again()

    def with_energy(self, job: int, record: Mapping[str, object]) -> Mapping[str, object]:
        """Return the record of an ended job, with the energy in joules if known."""
        before = self._alone.pop(job, None)
        return record if before is None else {**record, "energy": round(self._meter.read() - before, 3)}

    def _read_again(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(_SECONDS, self._read)

    def _read(self) -> None:
        """Read the counters again, because a counter must not wrap twice between two readings."""
        self._due = False
        if self._alone:
            self._meter.read()
            self._read_again()
