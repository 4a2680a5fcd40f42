"""The watch for idle jobs: samples of cgroups, and of the loads of devices.

Devices are asked only for jobs whose CPUs do nothing. Used only from the event loop.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping

from nodectl import messages
from nodectl.kernel import pseudo_file
from nodectl.launch.cgroup.delegation import Base
from nodectl.model.config import Config
from nodectl.model.device_part import device_of
from nodectl.model.node_device import NodeDevice
from nodectl.model.states import RUNNING
from nodectl.model.wire import lean_json
from nodectl.model.words import duration
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks
from nodectl.service.daemon.notices.idleness import PERIOD, Rule, Sample, Spell, Verdict, is_idle, judged
from nodectl.service.daemon.processes.reporting_process import ReportingProcess

_LOADS = "nodectl.service.daemon.notices.gpu_loads"
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
_PATIENCE = 10.0  # seconds, for the loads of GPUs
_IN_A_SPELL = 8  # samples at least before a job is told
_LEAST_PERIOD = 1.0
_MOST_STEPS = 32  # of a job, whose runners are looked at
_AT_A_TIME = 64  # jobs, before other work of the event loop has its turn


class IdleWatch:
    """The watch of a node. From `begin` on, `tell` and `end` are called with a job and words about its idleness."""

    tell: Callable[[JobRecord, str], None]
    end: Callable[[JobRecord, str], None]

    def __init__(self, config: Config, base: Base, devices: Iterable[NodeDevice]) -> None:
        self._rule = Rule(config.idle_after, config.idle_grace, config.idle_action == "end")
        self._period = min(PERIOD, max(config.idle_after / _IN_A_SPELL, _LEAST_PERIOD))
        self._base = base
        self._files = {device.key: device.file for device in devices}
        self._spells: dict[int, Spell] = {}
        self._tasks = BackgroundTasks()
        self._looking = False
        self._asked: ReportingProcess | None = None  # of the loads of GPUs
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, jobs: Mapping[int, JobRecord]) -> None:
        """Begin to watch these jobs, if configured and possible."""
        for job in jobs.values():
            job.idle_since = 0.0  # as an earlier daemon saw it
        if self._rule.after and not self._base.path:
            messages.tell("not-enforced", "idle_after: not enforced: without cgroups nothing tells what a job does")
        elif self._rule.after:
            self._wait(jobs)

    def stop(self) -> None:
        """End the watch."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, jobs: Mapping[int, JobRecord]) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._period, self._tick, jobs)

    def _tick(self, jobs: Mapping[int, JobRecord]) -> None:
        self._wait(jobs)
        if not self._looking:
            self._looking = True
            self._tasks.begin(self._look(jobs))

    async def _look(self, jobs: Mapping[int, JobRecord]) -> None:
        try:
            running = [job for job in jobs.values() if job.job_state == RUNNING]
            samples: dict[int, Sample] = {}
            for count, job in enumerate(running, 1):
                samples[job.job_id] = self._sample(job.job_id)
                if not count % _AT_A_TIME:
                    await asyncio.sleep(0)
            held = {job.job_id: self._held(job) for job in running}
            asked = {number for number in samples if held[number] and self._may_be_idle(number, samples[number])}
            loads = await self._loads() if asked else {}
            for number, files in held.items():
                if files:
                    samples[number] = samples[number]._replace(devices=_are_busy(files, loads))
            for job in running:
                if jobs.get(job.job_id) is job and job.job_state == RUNNING:
                    self._judge(job, samples[job.job_id])
            self._spells = {number: spell for number, spell in self._spells.items() if number in samples}
        finally:
            self._looking = False

    def _may_be_idle(self, number: int, sample: Sample) -> bool:
        spell = self._spells.get(number)
        return spell is not None and is_idle(spell.last, sample, self._period)

    def _judge(self, job: JobRecord, sample: Sample) -> None:
        spell, verdict = judged(self._spells.get(job.job_id), sample, self._rule, self._period)
        self._spells[job.job_id] = spell
        idle = sample.at - spell.since
        job.idle_since = time.time() - idle if idle else 0.0
        words = f"it has done nothing for {duration(idle)}"
        if verdict is Verdict.TELL:
            grace = duration(self._rule.grace)
            self.tell(job, f"{words}, and is ended in {grace} if it goes on so" if self._rule.ends else words)
        elif verdict is Verdict.END:
            self.end(job, f"{words} (idle_after)")

    def _sample(self, number: int) -> Sample:
        """Read the usage of all steps of a job, without step runners.

        A runner uses CPU time where the job is told that it does nothing.
        """
        group = f"{self._base.mount}{self._base.path}/job_{number}"
        runners = sum(_sum(f"{runner}/cpu.stat", "usage_usec ") or 0 for runner in _runners(group))
        spent = _sum(f"{group}/cpu.stat", "usage_usec ")
        if spent is not None:
            spent -= runners
        return Sample(
            time.monotonic(), None if spent is None else spent / 1e6, _sum(f"{group}/io.stat", "rbytes=", "wbytes=")
        )

    def _held(self, job: JobRecord) -> list[str]:
        """Return the files of the job's devices, "" for a device without a file."""
        keys = () if job.job_resrcs is None else [key for keys in job.job_resrcs.gres.values() for key in keys]
        return [self._files.get(device_of(key), "") for key in keys]

    async def _loads(self) -> Mapping[str, object]:
        """Return the loads of GPUs by file; empty where the loads do not come in time."""
        if self._asked is not None and self._asked.running:
            return {}  # it hangs in the driver
        try:
            self._asked = process = ReportingProcess(_LOADS, {}, environment=_ENVIRONMENT, seconds=_PATIENCE)
            await asyncio.wait_for(process.reported(), _PATIENCE)
            return lean_json.load_object(process.results[-1].encode()) if process.results else {}
        except (OSError, TimeoutError, lean_json.BadJson):
            return {}


def _runners(group: str) -> list[str]:
    """Return the cgroups of the step runners of a job, of some steps if the job has many."""
    try:
        with os.scandir(group) as entries:
            steps = [entry.path for entry in entries if entry.name.startswith("step_")]
    except OSError:
        return []
    return [f"{step}/stepd" for step in steps[:_MOST_STEPS]]


def _are_busy(files: Iterable[str], loads: Mapping[str, object]) -> bool | None:
    """Return True if devices work, None where the load of a device is unknown."""
    found = [loads.get(file) for file in files]
    if any(found):
        return True
    return None if None in found else False


def _sum(path: str, *marks: str) -> int | None:
    """Return the sum of the figures behind these marks in a file of a cgroup, None where there is no such file."""
    try:
        text = pseudo_file.read(path).decode("ascii")
    except OSError:
        return None
    words = [rest.split(maxsplit=1)[0] for mark in marks for rest in text.split(mark)[1:]]
    return sum(int(word) for word in words if word.isdecimal())
