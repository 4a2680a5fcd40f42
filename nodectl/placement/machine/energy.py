"""The energy used by the machine's processors, as counted by RAPL: the kernel's powercap.rst.

Only root may read the counters (they reveal too much of others' computations), and most virtual machines have none. A
counter starts again when it is full, after minutes under load: read it every minute.
"""

from __future__ import annotations

from nodectl.placement.machine import sysfs

_ZONES = "sys/class/powercap"
_ZONE = "intel-rapl:"  # AMD's have this name too; intel-rapl-mmio counts the same packages once more
_PACKAGE = "package"
_MICROJOULES = 1e6
_NONE = -1


class EnergyMeter:
    """The energy counters of a machine's packages, read below `root`."""

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
