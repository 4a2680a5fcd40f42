"""A select plugin on a small table of nodes, ready for the questions of `check`: loaded anew for each question."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from nodectl.lab.simulation.described import nodes_of
from nodectl.model.states import COMPLETED, COMPLETING, RUNNING
from nodectl.plugin_host.loader import Plugin
from nodectl.selection.answers import Choice, Refusal
from nodectl.selection.host import Selection
from nodectl.selection.loading import caller_of, load_plugin, unload
from nodectl.selection.modes import SELECT_MODE_RUN_NOW
from nodectl.selection.records import BATCH, JobDetails, JobRecord, NodeTable
from nodectl.selection.slurmctld import Parameters

NODES = "4*2s:2c:2t,mem=8192,gpu=2"
NODE_CPUS, NODE_MIB = 8, 8192
NOW = 1_000_000_000.0
LIMIT = 600
_SECONDS = 10.0


class Bench:
    """A plugin on a table of nodes, and the numbers of the jobs submitted to the plugin."""

    def __init__(self, selection: Selection, plugin: Plugin) -> None:
        self.selection = selection
        self.plugin = plugin
        self.nodes = selection.nodes
        self.now = NOW
        self._next = 0

    def skip(self, jobs: int) -> None:
        """Skip so many job numbers, which jobs from before a restart have."""
        self._next += jobs

    def has(self, name: str) -> bool:
        """Return True if the plugin has the function; `name` comes without the prefix."""
        return f"select_p_{name}" in self.plugin.hooks

    def job(self, cpus: int = 1, **details: object) -> JobRecord:
        """Make a new job, always of the same user, and admit the job."""
        self._next += 1
        job = JobRecord(
            self._next, 1000, 1000, "ann", f"job{self._next}", held_by=BATCH, time_limit=LIMIT, submit_time=self.now,
            details=JobDetails(num_tasks=cpus, min_cpus=cpus, layout={"ntasks": str(cpus)}, **details),  # type: ignore[arg-type]  # fields of its
        )  # fmt: skip
        self.selection.info.admit(job)
        return job

    def test(self, job: JobRecord, mode: int = SELECT_MODE_RUN_NOW, **offered: object) -> Choice | Refusal:
        """Call the plugin's job_test for a job."""
        return self.selection.job_test(job, mode, now=self.now, **offered)  # type: ignore[arg-type]  # as documented

    def begin(self, job: JobRecord) -> str:
        """Test and begin a job. Return the reason if the job cannot run, "" if the job runs."""
        found = self.test(job)
        if isinstance(found, Refusal):
            return found.reason
        if why := self.selection.job_begin(job):
            return why
        job.job_state, job.start_time, job.end_time = RUNNING, self.now, self.now + LIMIT
        return ""

    def end(self, job: JobRecord) -> None:
        """Go through all calls at the end of a job, and free the job's resources."""
        job.job_state = COMPLETING
        self.selection.job_fini(job)
        self.selection.released(job)
        job.job_state, job.job_resrcs, job.node_bitmap = COMPLETED, None, None

    def fill(self, most: int, **details: object) -> list[JobRecord]:
        """Begin jobs of 1 CPU, at most `most`, until a job cannot begin. Return the running jobs."""
        jobs: list[JobRecord] = []
        while len(jobs) < most:
            job = self.job(1, **details)
            if self.begin(job):
                break
            jobs.append(job)
        return jobs


@contextmanager
def opened(
    name: str, *, state_dir: str = "", jobs: tuple[JobRecord, ...] = (), nodes: NodeTable | None = None
) -> Iterator[Bench]:
    """Open a bench with the plugin of this name or file. Raises PluginRefused, SelectionFailed."""
    caller = caller_of(_SECONDS)
    plugin = load_plugin(name, (), caller)
    try:
        table = nodes or nodes_of(NODES)
        selection = Selection(plugin, table, caller, parameters=Parameters(), say=lambda text: None)
        with tempfile.TemporaryDirectory(prefix="nodectl-select-") as directory:
            selection.start(state_dir or directory, list(jobs), NOW)
            yield Bench(selection, plugin)
            selection.end()
    finally:
        unload(plugin, caller)
