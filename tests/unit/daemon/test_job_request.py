"""What a job asks for, by the options of the step that makes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from nodectl.binding.options import request_of
from nodectl.daemon.controller.job_request import Machine, job_of
from nodectl.model.step import Step
from unit.selection.tres import Bed, nodes


def test_cores_left_to_the_system_by_a_user_do_not_keep_others_from_the_machine() -> None:
    """As measured: Slurm ignores --core-spec where the configuration does not allow it (tests/oracle)."""
    layout = {"ntasks": "2", "core_spec": "1"}
    step = SimpleNamespace(
        uid=1000, gid=1000, user_name="mia", name="a", time_limit=0, submitted=0.0, ntasks=2, cpus_per_task=1, memory=0,
        layout=layout, argv=["a"], cwd="/", stdin="", stdout="", stderr="",
    )  # fmt: skip
    job = job_of(cast(Step, step), request_of(layout, {}), Machine(16, "main"), held_by="run")
    bed = Bed(nodes(1, "2s:4c:2t:2n"))
    assert bed.start(job)
    assert bed.cpus(job) == "n1:0-1"
    assert bed.held("ntasks=14") == "n1:2-15"
