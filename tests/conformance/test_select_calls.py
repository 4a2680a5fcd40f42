"""Every function of the select document is called, where and with what the document says.

The plugin is `select_tracer.py`, which was written with nothing but the document.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nodectl.lab.simulation.described import nodes_of
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import LIFE
from nodectl.selection.host import Choice, Selection
from nodectl.selection.loading import caller_of, load_plugin, unload
from nodectl.selection.modes import (
    NODE_STATE_DRAIN,
    SELECT_CR_PLUGIN,
    SELECT_JOBDATA_NETWORK,
    SELECT_MODE_RUN_NOW,
    SELECT_MODE_TEST_ONLY,
    SELECT_MODE_WILL_RUN,
)  # fmt: skip
from nodectl.selection.records import JobDetails, JobRecord, ReservationRequest, StepRecord

HERE = Path(__file__).parent
P = "select_p_"
# The types of the arguments, in the document's order. What the document lets be NULL may be None.
ARGUMENTS = {
    "init": "",
    "fini": "",
    "state_save": "str",
    "state_restore": "str",
    "node_init": "NodeTable int",
    "job_init": "list",
    "reconfigure": "",
    "select_nodeinfo_alloc": "",
    "select_nodeinfo_pack": "Info Buf int",
    "select_nodeinfo_unpack": "Output Buf int",
    "select_nodeinfo_free": "Info",
    "select_nodeinfo_set": "JobRecord",
    "select_nodeinfo_set_all": "",
    "select_nodeinfo_get": "Info int int Output",
    "update_node_config": "int",
    "node_ranking": "NodeTable int",
    "update_node_state": "NodeRecord",
    "select_jobinfo_alloc": "",
    "select_jobinfo_copy": "Info",
    "select_jobinfo_free": "Info",
    "select_jobinfo_pack": "Info Buf int",
    "select_jobinfo_unpack": "Output Buf int",
    "select_jobinfo_get": "Info int Output",
    "select_jobinfo_set": "Info int str",
    "select_jobinfo_sprint": "Info bytearray int int",
    "select_jobinfo_xstrdup": "Info int",
    "job_test": "JobRecord bitarray int int int int list|NoneType Output bitarray|NoneType",
    "job_begin": "JobRecord",
    "job_ready": "JobRecord",
    "job_fini": "JobRecord",
    "job_signal": "JobRecord int",
    "job_mem_confirm": "JobRecord",
    "job_suspend": "JobRecord bool",
    "job_resume": "JobRecord bool",
    "job_expand_allow": "",
    "job_expand": "JobRecord JobRecord",
    "job_resized": "JobRecord NodeRecord",
    "step_pick_nodes": "JobRecord Info int",
    "step_finish": "StepRecord bool",
    "resv_test": "ReservationRequest int bitarray Output",
    "get_info_from_plugin": "int JobRecord|NoneType Output",
    "ba_init": "NodeInfoMessage bool",
    "ba_get_dims": "",
}


class Played:
    """A service's life with the tracer: what it was asked, and the names of the calls in their order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.chmod(0o755)
        path = directory / "tracer.py"
        path.write_text((HERE / "select_tracer.py").read_text())
        path.chmod(0o644)
        self.caller = caller_of(20)
        self.plugin = load_plugin(str(path), (), self.caller)
        self.nodes = nodes_of("6*1s:2c:2t,mem=1G")
        self.told: list[str] = []
        self.selection = Selection(self.plugin, self.nodes, self.caller, say=self.told.append)
        self.number = 0

    @property
    def calls(self) -> list[Any]:
        return list(self.plugin.module.State.calls)

    @property
    def names(self) -> list[str]:
        return [str(name).removeprefix(P) for name, _ in self.calls]

    def job(self, **details: object) -> JobRecord:
        self.number += 1
        job = JobRecord(self.number, details=JobDetails(**details))  # type: ignore[arg-type]
        self.selection.info.admit(job)
        return job

    def begun(self, **details: object) -> JobRecord:
        job = self.job(**details)
        assert isinstance(self.selection.job_test(job, SELECT_MODE_RUN_NOW, now=1.0), Choice)
        assert not self.selection.job_begin(job)
        assert self.selection.job_ready(job)
        return job

    def live(self) -> None:
        """From the daemon's start to its end."""
        selection, nodes = self.selection, self.nodes
        selection.start(str(self.directory), now=1.0)
        first, other = self.begun(min_nodes=2, layout={"network": "ib0"}), self.begun()
        self.ask(first)
        assert not selection.job_suspend(other, indf_susp=True)
        assert not selection.job_resume(other, indf_susp=True)
        assert not selection.expand(other, first)
        assert not selection.resized(first, nodes[0])
        step = StepRecord(first, 0)
        selection.step_pick_nodes(first, step, 1)
        assert not selection.job_signal(first, 10)
        assert not selection.step_finish(step, killing_step=True)
        assert not selection.job_fini(first)
        assert not selection.step_finish(step, killing_step=False)
        selection.forget(first)
        selection.forget(other)
        nodes[5].node_state |= NODE_STATE_DRAIN
        assert not selection.update_node_state(nodes[5])
        nodes[5].real_memory = 512
        assert not selection.update_node_config(5)
        assert not selection.reconfigure(selection.parameters)
        selection.save(str(self.directory))
        selection.end()
        assert not unload(self.plugin, self.caller)

    def ask(self, job: JobRecord) -> None:
        """All that asks and changes nothing."""
        selection = self.selection
        candidate = selection.job_test(
            self.job(), SELECT_MODE_WILL_RUN, candidates=[job], excluded_cores=self.nodes.core_bitmap({5: 1}), now=1.0
        )
        assert isinstance(candidate, Choice)
        assert isinstance(selection.job_test(self.job(), SELECT_MODE_TEST_ONLY, now=1.0), Choice)
        task = JobRecord(99)
        selection.info.copy(job, task)
        selection.info.unpack_job(task, selection.info.pack_job(job))
        assert selection.info.job_data(task, SELECT_JOBDATA_NETWORK) == "ib0"
        assert selection.info.print_job(job) == "network=ib0"
        assert selection.info.print_job(job, size=5) == "netw"
        assert selection.info.describe_job(job) == "network=ib0"
        selection.info.refresh()
        assert selection.info.node_data(self.nodes[0])["cpus"] == 1
        assert selection.get_info(SELECT_CR_PLUGIN, job) == 0
        request = ReservationRequest("weekly", 100.0, 200.0, node_cnt=2)
        found = selection.resv_test(request, self.nodes.bitmap([2, 3, 4]), self.nodes.core_bitmap(), now=1.0)
        assert getattr(found, "nodes", None) == self.nodes.bitmap([3, 4])
        assert not selection.job_mem_confirm(job)
        assert selection.info.dimensions == (6,)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    theatre = Played(tmp_path_factory.mktemp("tracer"))
    theatre.live()
    return theatre


def test_every_function_of_the_kind_stands_here() -> None:
    assert {P + name for name in ARGUMENTS if name not in LIFE} == KINDS["select"].functions.keys()
    for name, types in ARGUMENTS.items():
        assert len(types.split()) == {**KINDS["select"].functions, **LIFE}[name if name in LIFE else P + name]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_function_is_called_with_what_the_document_says(played: Played, name: str) -> None:
    full = name if name in LIFE else P + name
    seen = [types for call, types in played.calls if call == full]
    assert seen, "nobody calls it"
    for types in seen:
        assert len(types) == len(ARGUMENTS[name].split())
        for found, wanted in zip(types, ARGUMENTS[name].split(), strict=True):
            assert found in wanted.split("|")


def test_what_may_be_given_and_may_be_null_is_both(played: Played) -> None:
    tests = [types for call, types in played.calls if call == f"{P}job_test"]
    assert {(types[6], types[8]) for types in tests} == {("NoneType", "NoneType"), ("list", "bitarray")}


def test_plugin_that_keeps_to_the_document_is_never_blamed(played: Played) -> None:
    assert not played.told
    assert not played.selection.faults
    assert played.selection.ledger.is_empty()


def test_flow_is_the_documents(played: Played) -> None:
    names = played.names
    order = ["init", "node_init", "state_restore", "job_init", "node_ranking", "select_nodeinfo_alloc"]
    order += ["select_nodeinfo_set_all", "job_test", "job_begin", "select_nodeinfo_set", "job_ready", "job_fini"]
    order += ["state_save", "select_nodeinfo_free", "fini"]
    first = [names.index(name) for name in order[:-2]]
    assert first == sorted(first)
    assert names[-1] == "fini"
    assert names.index("fini") > names.index("state_save")
    for before, after in pairwise(names):
        if after == "job_begin":
            assert before == "job_test", "immediately after job_test"
        if after == "select_nodeinfo_set":
            assert before == "job_begin", "after the job has been scheduled"


def test_all_that_was_allocated_is_freed(played: Played) -> None:
    names = played.names
    for thing in ("select_nodeinfo", "select_jobinfo"):
        made = sum(names.count(f"{thing}_{way}") for way in ("alloc", "copy", "unpack"))
        assert names.count(f"{thing}_free") == made, thing


def test_state_that_was_saved_is_found_and_any_other_is_refused(tmp_path: Path) -> None:
    from nodectl.selection.host import SelectionFailed

    Played(tmp_path).live()
    again = Played(tmp_path)
    again.selection.start(str(tmp_path))
    (tmp_path / "select_tracer.state").write_text("7")
    with pytest.raises(SelectionFailed, match="select_p_state_restore: returned -1"):
        Played(tmp_path).selection.start(str(tmp_path))


def test_document_lists_no_other_function() -> None:
    """What the tracer defines is what the kind knows: a function that was misspelt here would be found."""
    text = (HERE / "select_tracer.py").read_text()
    assert set(re.findall(r"^def (select_p_\w+)", text, re.MULTILINE)) == KINDS["select"].functions.keys()
