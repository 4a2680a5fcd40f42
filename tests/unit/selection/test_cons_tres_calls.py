"""select/cons_tres: the functions beside choosing: what is kept, told, joined, given up and reserved."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.selection.answers import Refusal, Reserved
from nodectl.selection.buffer import Buf
from nodectl.selection.host import SelectionFailed
from nodectl.selection.modes import (
    NODE_STATE_ALLOCATED,
    NODE_STATE_IDLE,
    SELECT_CONFIG_INFO,
    SELECT_CR_PLUGIN,
    SELECT_JOBDATA_NETWORK,
    SELECT_NODEDATA_SUBCNT,
    SELECT_PRINT_MIXED,
)  # fmt: skip
from nodectl.selection.records import Output, ReservationRequest
from unit.selection.tres import Bed, nodes, parameters

SPEC = "2s:2c:2t"


def test_the_state_file_says_whose_it_is(tmp_path: Path) -> None:
    bed = Bed(nodes(1, SPEC))
    bed.selection.save(str(tmp_path))
    bed.selection.start(str(tmp_path))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    whole = file.read_bytes()
    for bad, words in (
        (whole[:-1], "wanted"),
        (b"\0\0\0\0" + whole[4:], "magic number is 0x0"),
        (whole[:4] + b"\0\x63", "version 99"),
    ):
        file.write_bytes(bad)
        with pytest.raises(SelectionFailed, match=words):
            bed.selection.start(str(tmp_path))


def test_a_full_disk_or_a_link_leaves_the_state_file_as_it_was(tmp_path: Path) -> None:
    bed = Bed(nodes(1, SPEC))
    bed.selection.save(str(tmp_path / "gone"))
    assert "gone/select_cons_tres: No such file" in bed.said[0]
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / ".select_cons_tres.new").symlink_to(target)
    bed.selection.save(str(tmp_path))
    assert target.read_text() == "mine"
    assert not (tmp_path / "select_cons_tres").exists()


def test_a_node_tells_what_jobs_have_of_it() -> None:
    bed = Bed(nodes(2, SPEC, 1000, "01"))
    job = bed.job("ntasks=3", pn_min_memory=100, gres={"gpu": 2})
    assert bed.start(job)
    info = bed.table[0].select_nodeinfo
    assert bed.selection.info.node_data(bed.table[0]) == {"cpus": 4, "memory": 100, "tres": "cpu=4,mem=100M,gres/gpu=2"}
    assert bed.selection.info.node_data(bed.table[1]) == {"cpus": 0, "memory": 0, "tres": ""}
    get, out = bed.plugin.hooks["select_p_select_nodeinfo_get"], Output()
    for state, cpus in (NODE_STATE_ALLOCATED, 4), (NODE_STATE_IDLE, 0):
        assert get(info, SELECT_NODEDATA_SUBCNT, state, out) == 0
        assert out.value == cpus
    assert get(info, 99, NODE_STATE_ALLOCATED, out) != 0
    assert get(object(), SELECT_NODEDATA_SUBCNT, NODE_STATE_ALLOCATED, out) != 0
    bed.end(job)
    bed.selection.info.refresh()
    assert bed.selection.info.node_data(bed.table[0])["tres"] == ""
    bed.selection.end()
    assert get(info, SELECT_NODEDATA_SUBCNT, NODE_STATE_ALLOCATED, out) != 0, "it was freed"


def test_an_object_that_another_packed_is_refused() -> None:
    hooks = Bed(nodes(1, SPEC)).plugin.hooks
    for kind in "nodeinfo", "jobinfo":
        out = Output()
        assert hooks[f"select_p_select_{kind}_unpack"](out, Buf(b"\0\1" + bytes(64)), 0) != 0
        assert hooks[f"select_p_select_{kind}_unpack"](out, Buf(b"\x82"), 0) != 0


def test_a_job_keeps_the_network_that_it_asked_for() -> None:
    bed = Bed(nodes(1, SPEC))
    job, other = bed.job(), bed.job()
    job.details.layout["network"] = "ib0"
    info = bed.selection.info
    info.admit(job)
    info.copy(job, other)
    packed = info.pack_job(other)
    info.free(other)
    info.unpack_job(other, packed)
    assert info.job_data(job, SELECT_JOBDATA_NETWORK) == "ib0"
    assert info.print_job(job, SELECT_PRINT_MIXED) == info.describe_job(job, SELECT_PRINT_MIXED) == "Network=ib0"
    assert info.print_job(job, SELECT_PRINT_MIXED, 5) == "Netw"
    assert not bed.said


def test_one_job_gets_all_that_another_holds() -> None:
    bed = Bed(nodes(3, SPEC, 1000))
    empty = bed.snapshot()
    source, target = bed.job("ntasks=8", pn_min_memory=10), bed.job("ntasks=2", pn_min_memory=20)
    assert bed.start(source)
    assert bed.start(target)
    before = bed.snapshot()
    assert bed.selection.expand(source, target) == ""
    assert bed.snapshot() == before
    assert target.job_resrcs is not None
    assert target.job_resrcs.ncpus == 10
    assert source.job_resrcs is None
    bed.end(target)
    assert bed.snapshot() == empty


def test_jobs_with_devices_are_not_expanded() -> None:
    bed = Bed(nodes(1, SPEC, gpus="01"))
    source, target = bed.job(gres={"gpu": 1}), bed.job()
    assert bed.start(source)
    assert bed.start(target)
    before = bed.snapshot()
    for one, other in ((source, target), (target, source), (source, source)):
        assert bed.plugin.hooks["select_p_job_expand"](one, other) != 0
    assert bed.snapshot() == before


def test_a_job_gives_up_a_node_but_not_its_last() -> None:
    bed = Bed(nodes(2, SPEC, 1000))
    empty = bed.snapshot()
    job = bed.job("nodes=2", "ntasks=2", pn_min_memory=10)
    assert bed.start(job)
    assert bed.selection.resized(job, bed.table[0]) == ""
    assert bed.cpus(job) == "n2:0-1"
    assert bed.snapshot()[0] == empty[0]
    resized = bed.plugin.hooks["select_p_job_resized"]
    assert resized(job, bed.table[1]) != 0
    assert resized(job, bed.table[0]) != 0
    bed.end(job)
    assert bed.snapshot() == empty


def test_memory_that_a_node_lost_is_noticed() -> None:
    bed = Bed(nodes(1, SPEC, 1000))
    job = bed.job(pn_min_memory=800)
    assert bed.start(job)
    assert bed.selection.job_mem_confirm(job) == ""
    bed.table[0].real_memory = 500
    assert bed.selection.update_node_config(0) == ""
    assert "its jobs hold 800" in bed.selection.job_mem_confirm(job)
    bed.said.clear()
    bed.table[0].real_memory = 2000
    assert bed.selection.update_node_config(0) == ""
    assert bed.selection.job_mem_confirm(job) == ""
    assert bed.held(pn_min_memory=1200)


def test_a_new_configuration_counts_for_jobs_to_come() -> None:
    bed = Bed(nodes(1, SPEC))
    assert bed.held("ntasks=1") == "n1:0-1"
    assert bed.selection.reconfigure(parameters("CR_Socket")) == ""
    assert bed.held("ntasks=1") == "n1:4-7"
    assert bed.selection.get_info(SELECT_CR_PLUGIN) == 2
    told = bed.selection.get_info(SELECT_CONFIG_INFO)
    assert isinstance(told, list)
    assert ("SelectTypeParameters", "cr_socket") in told


def _reserved(bed: Bed, now: float = 0.0, **asked: object) -> str:
    request = ReservationRequest("r", **({"start_time": 100.0, "end_time": 200.0} | asked))  # type: ignore[arg-type]
    found = bed.selection.resv_test(request, ~bed.table.bitmap(), now=now)
    assert not bed.said
    if isinstance(found, Refusal):
        return ""
    assert isinstance(found, Reserved)
    names = [node.name for node in bed.table if found.nodes[node.index]]
    return " ".join(names) + ("" if found.cores is None else f" {list(found.cores.search(1))}")


def test_a_reservation_gets_what_jobs_will_have_left() -> None:
    bed = Bed(nodes(3, SPEC))
    assert bed.start(bed.job("ntasks=1", time_limit=50))
    assert bed.start(bed.job("ntasks=2", "nodelist=n2", time_limit=150))
    assert _reserved(bed, node_cnt=2) == "n1 n3", "the first job has ended by then"
    assert _reserved(bed, node_cnt=2, start_time=40.0) == ""
    assert _reserved(bed, node_cnt=3) == ""
    assert _reserved(bed, node_cnt=3, flags=("IGNORE_JOBS",)) == "n1 n2 n3"
    assert _reserved(bed, core_cnt=2, start_time=40.0) == "n1 [1, 2]"
    assert _reserved(bed, core_cnt=4, start_time=40.0) == "n3 [8, 9, 10, 11]"
    assert _reserved(bed, core_cnt=1, node_list="n2") == "n2 [5]"
    assert _reserved(bed, core_cnt=5) == ""


def test_cores_of_other_reservations_are_not_reserved_again() -> None:
    bed = Bed(nodes(1, SPEC))
    request = ReservationRequest("r", 100.0, 200.0, core_cnt=2)
    found = bed.selection.resv_test(request, ~bed.table.bitmap(), bed.cores({0: 0b11}))
    assert isinstance(found, Reserved)
    assert found.cores == bed.cores({0: 0b111100})
