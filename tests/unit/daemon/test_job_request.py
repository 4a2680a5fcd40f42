"""What a job asks for, by the options of the step that makes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from nodectl.model.step import Step
from nodectl.model.wire.dispatch import Refused
from nodectl.placement.binding.options import request_of
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.controller.job_request import Machine, _notices, apply_options, job_of
from unit.selection.tres import Bed, nodes


def step_of(ntasks: int, layout: dict[str, str]) -> Step:
    step = SimpleNamespace(
        uid=1000, gid=1000, user_name="mia", name="a", time_limit=0, submitted=0.0, ntasks=ntasks, cpus_per_task=1,
        memory=0, layout=layout, argv=["a"], cwd="/", stdin="", stdout="", stderr="",
    )  # fmt: skip
    return cast(Step, step)


def test_cores_left_to_the_system_by_a_user_do_not_keep_others_from_the_machine() -> None:
    """As measured: Slurm ignores --core-spec where the configuration does not allow it (tests/oracle)."""
    layout = {"ntasks": "2", "core_spec": "1"}
    job = job_of(step_of(2, layout), request_of(layout, {}), Machine(16, "main"), {}, held_by="run")
    bed = Bed(nodes(1, "2s:4c:2t:2n"))
    assert bed.start(job)
    assert bed.cpus(job) == "n1:0-1"
    assert bed.held("ntasks=14") == "n1:2-15"


@pytest.mark.parametrize("held_by", ["batch", "alloc"])
def test_a_job_of_more_cpus_than_there_are_is_refused_at_once(held_by: str) -> None:
    """sbatch and salloc refuse it; with --overcommit its tasks share what there is."""
    layout = {"ntasks": "17"}
    with pytest.raises(Refused, match=r"^Requested node configuration is not available: 17 CPUs are more than the 16"):
        job_of(step_of(17, layout), request_of(layout, {}), Machine(16, "main"), {}, held_by=held_by)
    layout["overcommit"] = "1"
    job = job_of(step_of(17, layout), request_of(layout, {}), Machine(16, "main"), {}, held_by=held_by)
    assert (job.details.min_cpus, job.details.num_tasks, job.details.whole) == (1, 17, False)


def test_a_run_of_more_tasks_than_cpus_has_the_whole_machine() -> None:
    layout = {"ntasks": "17"}
    job = job_of(step_of(17, layout), request_of(layout, {}), Machine(16, "main"), {}, held_by="run")
    assert (job.details.min_cpus, job.details.whole) == (16, True)


@pytest.mark.parametrize("name", ["DOM\\ann", "user$"])
def test_a_user_whose_name_is_no_address_is_told_to_give_one(name: str) -> None:
    job = JobRecord(7, 1000, user_name=name)
    with pytest.raises(Refused, match=r"no mail reaches the user's name '.*': give an address, name@host"):
        _notices(job, {"mail_type": "END"})
    assert _notices(job, {"mail_type": "END", "mail_user": "ann@example.org"})["user"] == "ann@example.org"


def test_the_fewest_cpus_that_a_user_names_are_kept_beside_what_the_tasks_need() -> None:
    """A later change of the tasks goes by both."""
    layout = {"ntasks": "8"}
    job = job_of(step_of(8, layout), request_of(layout, {}), Machine(16, "main"), {}, held_by="batch")
    apply_options(job, {"min_cpus": 6}, is_admin=False)
    assert (job.details.least_cpus, job.details.min_cpus) == (6, 8)
    assert JobRecord.from_json(job.as_json()).details.least_cpus == 6
