"""What the host makes sure of when a job begins with what was chosen for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.lab.simulation.described import nodes_of
from nodectl.placement.binding.options import request_of
from nodectl.plugin_api import SLURM_ERROR
from nodectl.selection.answers import Choice, Refusal
from nodectl.selection.host import Selection
from nodectl.selection.loading import caller_of, load_plugin
from nodectl.selection.modes import NODE_STATE_DRAIN, SELECT_MODE_RUN_NOW
from nodectl.selection.records import JobDetails, JobRecord
from nodectl.selection.slurmctld import Parameters
from unit.selection.stage import FIRST, stage

ONE = request_of({}, {}, "")


def test_choice_that_another_job_has_begun_with_meanwhile_is_no_longer_free(tmp_path: Path) -> None:
    theatre = stage(tmp_path, FIRST, "1*1s:2c:2t")
    first, second = theatre.job(), theatre.job()
    for job in (first, second):
        assert isinstance(theatre.selection.job_test(job, SELECT_MODE_RUN_NOW), Choice)
    assert not theatre.selection.job_begin(second)
    assert "is another job's" in theatre.selection.job_begin(first)


def believed(spec: str = "2c,mem=100") -> Selection:
    """Our own plugin as the daemon has it."""
    plugin = load_plugin("select/cons_tres")
    selection = Selection(plugin, nodes_of(spec), caller_of(0), parameters=Parameters(), believes_own=True)
    selection.start("/nowhere")
    return selection


def asked(number: int, cpus: int = 1, **more: object) -> JobRecord:
    return JobRecord(number, details=JobDetails(min_cpus=cpus, num_tasks=cpus, _request=ONE, **more))  # type: ignore[arg-type]


def test_question_that_is_like_the_last_one_has_an_answer_of_its_own() -> None:
    selection = believed()
    cores = []
    for number in (1, 2, 3):
        job = asked(number)
        assert isinstance(selection.job_test(job, SELECT_MODE_RUN_NOW), Choice)
        assert not selection.job_begin(job)
        assert job.job_resrcs is not None
        assert job.nodes == "n1"
        cores.append(job.job_resrcs.core_bitmap)
        selection.job_fini(job)
        selection.released(job)
    assert cores[0] == cores[1] == cores[2]
    assert len({id(one) for one in cores}) == 3


def test_question_beside_another_job_or_of_another_shape_is_asked_anew() -> None:
    selection = believed()
    first, beside, more = asked(1), asked(2), asked(3, cpus=2)
    for job in (first, beside):
        assert isinstance(selection.job_test(job, SELECT_MODE_RUN_NOW), Choice)
        assert not selection.job_begin(job)
    assert first.job_resrcs is not None
    assert beside.job_resrcs is not None
    assert not (first.job_resrcs.core_bitmap & beside.job_resrcs.core_bitmap).any()
    for job in (first, beside):
        selection.job_fini(job)
        selection.released(job)
    found = selection.job_test(more, SELECT_MODE_RUN_NOW)
    assert isinstance(found, Choice)
    assert found.resources.ncpus == 2


def test_question_that_is_asked_again_beside_the_same_job_keeps_off_that_job() -> None:
    selection = believed()
    first, beside = asked(1), [asked(number) for number in (2, 3)]
    assert isinstance(selection.job_test(first, SELECT_MODE_RUN_NOW), Choice)
    assert not selection.job_begin(first)
    for job in beside:
        assert isinstance(selection.job_test(job, SELECT_MODE_RUN_NOW), Choice)
        assert not selection.job_begin(job)
        assert first.job_resrcs is not None
        assert job.job_resrcs is not None
        assert not (first.job_resrcs.core_bitmap & job.job_resrcs.core_bitmap).any()
        selection.job_fini(job)
        selection.released(job)
    assert not selection.job_begin(beside[0])  # what it was given before, which is free
    assert isinstance(selection.job_test(asked(4), SELECT_MODE_RUN_NOW), Refusal)


def test_question_that_is_like_the_last_one_is_asked_anew_of_other_nodes_and_another_configuration() -> None:
    selection = believed()
    job = asked(1)
    assert isinstance(selection.job_test(job, SELECT_MODE_RUN_NOW), Choice)
    node = selection.nodes[0]
    node.node_state |= NODE_STATE_DRAIN
    selection.update_node_state(node)
    assert isinstance(selection.job_test(job, SELECT_MODE_RUN_NOW), Refusal)
    node.node_state &= ~NODE_STATE_DRAIN
    selection.update_node_state(node)
    selection.reconfigure(Parameters(def_mem_per_cpu=1000))
    assert isinstance(selection.job_test(asked(2), SELECT_MODE_RUN_NOW), Refusal)


def test_choice_that_the_plugin_does_not_begin_with_is_not_made_again_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    selection = believed()
    hooks = selection._calls._hooks
    asked_for: list[int] = []
    test, begin = hooks["select_p_job_test"], hooks["select_p_job_begin"]

    def seen(job: JobRecord, *rest: object) -> object:
        asked_for.append(job.job_id)
        return test(job, *rest)

    monkeypatch.setitem(hooks, "select_p_job_test", seen)
    monkeypatch.setitem(hooks, "select_p_job_begin", lambda _: SLURM_ERROR)
    for number in (1, 2):
        assert isinstance(selection.job_test(asked(number), SELECT_MODE_RUN_NOW), Choice)
    assert asked_for == [1]
    assert selection.job_begin(asked(2))
    monkeypatch.setitem(hooks, "select_p_job_begin", begin)
    assert isinstance(selection.job_test(asked(3), SELECT_MODE_RUN_NOW), Choice)
    assert asked_for == [1, 3]


def test_plugin_of_another_author_is_asked_again_without_the_nodes_of_who_ends(tmp_path: Path) -> None:
    theatre = stage(tmp_path, FIRST, "2*2c")
    ends, other = theatre.job(), theatre.job()
    assert theatre.runs(ends)
    theatre.selection.job_fini(ends)
    assert theatre.runs(other)
    assert other.nodes == "n2"
    assert not theatre.told
