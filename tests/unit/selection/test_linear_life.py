"""The life of select/linear: what it tells, keeps and finds again, and which configuration it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.placement.binding.request import Settings
from nodectl.selection.host import SelectionFailed
from nodectl.selection.loading import caller_of, load_plugin
from nodectl.selection.modes import NODE_STATE_DOWN, SELECT_CR_PLUGIN
from nodectl.selection.records import JobRecord, StepRecord
from nodectl.selection.slurmctld import Parameters, parameters_of
from nodectl.service.config_file import reader
from unit.selection.stage import Stage
from unit.selection.test_linear import ALONE, linear, nodes_of, now


def test_it_tells_of_nodes_and_jobs() -> None:
    theatre = linear("2*2c,mem=4G")
    selection = theatre.selection
    job = theatre.job(pn_min_memory=100, layout={"network": "ib0"})
    selection.info.admit(job)
    assert theatre.runs(job)
    selection.info.refresh()
    assert selection.info.node_data(theatre.nodes[0]) == {"cpus": 2, "memory": 100, "tres": "cpu=2,mem=100M"}
    assert selection.info.node_data(theatre.nodes[1]) == {"cpus": 0, "memory": 0, "tres": ""}
    assert selection.info.print_job(job) == selection.info.describe_job(job) == "Network=ib0"
    assert selection.info.print_job(job, size=8) == "Network"
    again = JobRecord(9)
    selection.info.unpack_job(again, selection.info.pack_job(job))
    selection.info.copy(job, again)
    assert selection.info.describe_job(again) == "Network=ib0"
    assert selection.info.dimensions == (2,)
    assert selection.get_info(SELECT_CR_PLUGIN) == 0
    step = StepRecord(job, 0)
    assert selection.step_pick_nodes(job, step, 1).to01() == "10"
    assert not selection.step_finish(step, killing_step=False)
    selection.forget(job)
    selection.end()
    assert not theatre.told


def test_job_is_not_ready_while_its_node_is_down() -> None:
    theatre = linear("2c,mem=4G")
    job = theatre.job(pn_min_memory=4000)
    assert theatre.runs(job)
    assert theatre.selection.job_ready(job)
    theatre.nodes[0].node_state = NODE_STATE_DOWN
    assert not theatre.selection.job_ready(job)
    assert not theatre.selection.job_mem_confirm(job)
    theatre.nodes[0].real_memory = 1000
    assert not theatre.selection.update_node_config(0)
    assert theatre.selection.job_mem_confirm(job).endswith(": jobs hold 4000 MiB of node n1, which has 1000")


def test_jobs_that_hold_nodes_at_a_start_are_counted(tmp_path: Path) -> None:
    first = linear("4*2c")
    running, stopped, ending = (first.job() for _ in range(3))
    assert all(first.runs(job) for job in (running, stopped, ending))
    first.selection.save(str(tmp_path))
    first.selection.end()
    running.job_state, stopped.job_state, ending.job_state = "RUNNING", "SUSPENDED", "COMPLETING"
    second = Stage(load_plugin("select/linear", (), caller_of(20)), "4*2c", ALONE)
    second.selection.start(str(tmp_path), [running, stopped, ending], now=1.0)
    assert ending.job_resrcs is not None
    held = ending.job_resrcs.core_bitmap
    assert nodes_of(now(second, second.job(), excluded_cores=held)) == "0001"
    assert nodes_of(now(second, second.job(min_nodes=2), excluded_cores=held)) == "0101"
    assert nodes_of(now(second, second.job(min_nodes=3))) == "Requested nodes are busy"
    second.ends(ending)
    assert nodes_of(now(second, second.job(min_nodes=3))) == "0111"
    assert not second.told


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"x" * 9, "its magic number is 0x78787878"), (b"LINE\0\7", "has version 7"), (b"LI", "4 bytes are wanted")],
)
def test_state_of_another_plugin_ends_the_daemon_with_the_reason(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "select_linear").write_bytes(data)
    theatre = Stage(load_plugin("select/linear", (), caller_of(20)), "2c", ALONE)
    with pytest.raises(SelectionFailed) as failed:
        theatre.selection.start(str(tmp_path))
    assert why in str(failed.value)


def test_parameters_follow_from_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "nodectl.toml"

    def read(text: str) -> Parameters:
        file.write_text(text)
        config = reader.load(str(file), must_exist=True)
        words = tuple(word.lower() for word in config.select_type_parameters)
        return parameters_of(config, Settings(select_type_parameters=words))

    forced = read('select_type = "select/linear"\nover_subscribe = "force:10000"\n')
    assert (forced.over_subscribe, forced.share_count, forced.tracks_memory) == ("force", 10_000, False)
    assert read('select_type = "select/cons_tres"').tracks_memory
    assert read('select_type = "select/linear"\nselect_type_parameters = ["CR_Memory"]').tracks_memory
    assert read('over_subscribe = "yes"').share_count == 4
    assert read('over_subscribe = "exclusive"').takes_whole_nodes(JobRecord(1))
