"""Select plugins as texts, hosted over described nodes."""

from __future__ import annotations

from pathlib import Path

from nodectl.lab.simulation.described import nodes_of
from nodectl.plugin_host.loader import Plugin
from nodectl.selection.calls import OnCall
from nodectl.selection.host import Choice, Selection
from nodectl.selection.loading import caller_of, load_plugin
from nodectl.selection.modes import SELECT_MODE_RUN_NOW
from nodectl.selection.records import JobDetails, JobRecord
from nodectl.selection.slurmctld import Parameters

HEAD = 'plugin_type = "select/{name}"\nplugin_name = "{name}"\nplugin_version = (22, 5, 8)\n'
FIRST = """
def select_p_job_test(job, bitmap, least, most, wanted, mode, candidates, preempted, excluded):
    for place, node in enumerate(list(bitmap.search(1))):
        bitmap[node] = place < max(least, wanted)
"""
SECONDS = 20.0


class Stage:
    """One plugin over these nodes; `told` is the log."""

    def __init__(
        self, plugin: Plugin, spec: str, parameters: Parameters, seconds: float = SECONDS, on_call: OnCall | None = None
    ) -> None:
        self.told: list[str] = []
        self.plugin = plugin
        self.nodes = nodes_of(spec)
        self.selection = Selection(
            plugin, self.nodes, caller_of(seconds), parameters=parameters, say=self.told.append, on_call=on_call
        )
        self._number = 0

    def job(self, **details: object) -> JobRecord:
        """A job that asks for this."""
        self._number += 1
        return JobRecord(self._number, details=JobDetails(**details))  # type: ignore[arg-type]

    def runs(self, job: JobRecord) -> bool:
        """Whether the job begins now."""
        found = self.selection.job_test(job, SELECT_MODE_RUN_NOW, now=1.0)
        return isinstance(found, Choice) and not self.selection.job_begin(job)

    def ends(self, job: JobRecord) -> None:
        """The job ends and is gone."""
        self.selection.job_fini(job)
        self.selection.released(job)


def stage(
    tmp_path: Path, text: str, spec: str = "4*1s:2c:2t,mem=1G,gpu=2", *, seconds: float = SECONDS,
    parameters: Parameters | None = None, on_call: OnCall | None = None, name: str = "actor",
) -> Stage:  # fmt: skip
    """The plugin of this text, loaded."""
    tmp_path.chmod(0o755)
    path = tmp_path / f"{name}.py"
    path.write_text(HEAD.format(name=name) + text)
    path.chmod(0o644)
    plugin = load_plugin(str(path), (), caller_of(seconds))
    return Stage(plugin, spec, parameters or Parameters(), seconds, on_call)
