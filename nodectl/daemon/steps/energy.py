"""The energy of jobs that had the machine to themselves, from their beginning to their end.

The processors are counted as a whole: what two jobs took that ran at the same time nobody can tell apart, so neither is
told anything. Of one that ran alone it is what the machine took meanwhile, whatever else went on there. Used in the
event loop only; where nothing can be read it costs nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping

from nodectl.machine.energy import EnergyMeter

_SECONDS = 30.0


class EnergyBook:
    """`running` are the keys (job, step) of the steps that run."""

    def __init__(self, running: Iterable[tuple[int, int]], meter: EnergyMeter | None = None) -> None:
        self._running = running
        self._meter = EnergyMeter() if meter is None else meter
        self._alone: dict[int, float] = {}  # the job that runs alone, and what was counted at its beginning
        self._due = False

    def begun(self, job: int, *, is_first: bool) -> None:
        """A step of the job is among those that run now, its first one or a further one."""
        if not self._meter.counts:
            return
        if any(number != job for number, _ in self._running):
            self._alone.clear()
        elif is_first:
            self._alone[job] = self._meter.read()
            self._read_again()

    def with_energy(self, job: int, record: Mapping[str, object]) -> Mapping[str, object]:
        """The record of a job that is over, with what it took, in joules, where that is known."""
        before = self._alone.pop(job, None)
        return record if before is None else {**record, "energy": round(self._meter.read() - before, 3)}

    def _read_again(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(_SECONDS, self._read)

    def _read(self) -> None:
        """The counters must not begin again twice between two readings."""
        self._due = False
        if self._alone:
            self._meter.read()
            self._read_again()
