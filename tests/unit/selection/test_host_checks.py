"""What a select plugin does wrong costs its job the turn, and nobody else anything: the plugin is named, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.plugin_host.loader import PluginRefused
from nodectl.selection.host import Choice, Refusal, SelectionFailed
from nodectl.selection.modes import (
    SELECT_MODE_RUN_NOW,
    SELECT_MODE_TEST_ONLY,
    SELECT_MODE_WILL_RUN,
)  # fmt: skip
from nodectl.selection.records import ReservationRequest
from unit.selection.stage import FIRST, Stage, stage

TEST = "def select_p_job_test(job, bitmap, least, most, wanted, mode, candidates, preempted, excluded):\n    "
RECORDS = "from nodectl.selection.records import JobResources\nfrom bitarray import bitarray\n"
GIVE = """
def give(job, bitmap, cores, **more):
    job.job_resrcs = JobResources(bitmap.copy(), bitarray(cores), {0: cores.count("1")}, **more)
"""
CORES = "11" + "00" * 3


def given(cores: str, more: str = "") -> str:
    return f"{RECORDS}{GIVE}{TEST}bitmap[1:] = 0; give(job, bitmap, {cores!r}{more})"


WRONG = {
    "foreign node": (TEST + "bitmap.setall(1)", "node n2, which was not offered"),
    "other size": (TEST + "bitmap.extend('1111')", "8 bits long, of 4 nodes"),
    "too few": (TEST + "bitmap.setall(0)", "chose 0 nodes of 1 to 1"),
    "too many": (TEST + "pass", "chose 3 nodes of 1 to 1"),
    "raises": (TEST + "raise ValueError('no\\nidea')", "ValueError: no idea (line 5)"),
    "exits": (TEST + "raise SystemExit(3)", "SystemExit: 3"),
    "returns a text": (TEST + "return 'fine'", "returned 'fine', not a number"),
    "no resources": (TEST + "bitmap[1:] = 0; job.job_resrcs = 7", "job_resrcs: is a int, no JobResources"),
    "core of another node": (given("10000001"), "cores of nodes that it did not choose"),
    "no core": (given("00000000"), "no core or CPU of node n1"),
    "short bitmap of cores": (given("11"), "core_bitmap is no bitmap of 8 bits"),
    "too many CPUs": (given(CORES, ") or job.job_resrcs.cpus.update({0: 99}"), "gave 99 CPUs of node n1, which has 4"),
    "too few CPUs": (given("10000000"), "gave 1 CPUs, 2 are the fewest"),
    "memory that is not there": (given(CORES, ", memory={0: 2000}"), "gave 2000 MiB of node n1, which has 1024"),
    "negative memory": (given(CORES, ", memory={0: -5}"), "memory is not counts"),
    "memory elsewhere": (given(CORES, ", memory={2: 5}"), "memory names node 2, which was not chosen"),
    "a device that is not there": (given(CORES, ", gres={0: ('gpu:7',)}"), "gave gpu:7 of node n1"),
    "a device twice": (given(CORES, ", gres={0: ('gpu:0', 'gpu:0')}"), "each once"),
    "devices as a text": (given(CORES, ", gres={0: 'gpu:0'}"), "gres is not keys"),
    "a job that was no candidate": (TEST + "bitmap[1:] = 0; preempted.value = [job]", "preempts a job that was no"),
    "no list of jobs": (TEST + "bitmap[1:] = 0; preempted.value = iter(int, 1)", "no list of jobs"),
    "a start that is no time": (TEST + "bitmap[1:] = 0; job.start_time = 'soon'", "set start_time to str"),
}


@pytest.mark.parametrize("what", WRONG)
def test_choice_that_breaks_a_rule_is_not_used_and_the_plugin_is_named_once(tmp_path: Path, what: str) -> None:
    text, why = WRONG[what]
    theatre = stage(tmp_path, text)
    selection = theatre.selection
    offered = theatre.nodes.bitmap([0, 2, 3])
    reasons = []
    for _ in range(3):
        job = theatre.job(min_cpus=2, max_nodes=1)
        found = selection.job_test(job, SELECT_MODE_RUN_NOW, nodes=offered)
        assert isinstance(found, Refusal)
        assert found.kind == "plugin"
        assert why in found.reason
        assert found.reason.startswith("plugin select/actor: select_p_job_test: ")
        assert (job.job_resrcs, job.node_bitmap, job.nodes, job.start_time) == (None, None, "", 0.0)
        reasons.append(found.reason)
    assert theatre.told == reasons[:1]
    assert len(selection.faults) == 3
    assert selection.ledger.is_empty()


def test_required_node_may_not_be_dropped(tmp_path: Path) -> None:
    theatre = stage(tmp_path, FIRST)
    found = theatre.selection.job_test(theatre.job(req_nodes=("n3",)), SELECT_MODE_RUN_NOW)
    assert isinstance(found, Refusal)
    assert "dropped node n3, which the job requires" in found.reason


def test_cores_that_are_held_for_others_may_not_be_given(tmp_path: Path) -> None:
    theatre = stage(tmp_path, FIRST)
    held = theatre.nodes.core_bitmap({0: 1})
    found = theatre.selection.job_test(theatre.job(), SELECT_MODE_RUN_NOW, excluded_cores=held)
    assert isinstance(found, Refusal)
    assert "exc_core_bitmap" in found.reason


def test_what_others_hold_is_not_given_again(tmp_path: Path) -> None:
    theatre = stage(tmp_path, FIRST)
    assert theatre.runs(theatre.job())
    found = theatre.selection.job_test(theatre.job(), SELECT_MODE_RUN_NOW)
    assert isinstance(found, Refusal)
    assert found.reason.endswith("core 0 of node n1 is another job's")
    assert isinstance(theatre.selection.job_test(theatre.job(), SELECT_MODE_WILL_RUN), Choice)


def test_device_and_memory_of_others_are_not_given_again(tmp_path: Path) -> None:
    two = f"{RECORDS}{GIVE}{TEST}bitmap[1:] = 0; give(job, bitmap, job.comment, gres={{0: ('gpu:1',)}})"
    theatre = stage(tmp_path, two)
    first, second = theatre.job(), theatre.job()
    first.comment, second.comment = "10000000", "01000000"
    assert theatre.runs(first)
    found = theatre.selection.job_test(second, SELECT_MODE_RUN_NOW)
    assert isinstance(found, Refusal)
    assert found.reason.endswith("gpu:1 of node n1 is job 1's")


def test_plugin_that_does_not_know_of_a_device_used_outside_of_jobs_makes_its_job_wait(tmp_path: Path) -> None:
    two = f"{RECORDS}{GIVE}{TEST}bitmap[1:] = 0; give(job, bitmap, job.comment, gres={{0: ('gpu:1',)}})"
    theatre = stage(tmp_path, two)
    job = theatre.job()
    job.comment = "10000000"
    theatre.selection.set_devices_away(0, {"gpu:1": "process 7"})
    assert not theatre.runs(job)
    assert not theatre.told
    theatre.selection.set_devices_away(0, {"gpu:0": "process 7"})
    assert theatre.runs(job)


def test_collision_with_a_job_that_is_ending_is_no_fault_of_the_plugin(tmp_path: Path) -> None:
    theatre = stage(tmp_path, FIRST, "1s:2c:2t")
    job, after = theatre.job(), theatre.job()
    assert theatre.runs(job)
    theatre.selection.job_fini(job)
    found = theatre.selection.job_test(after, SELECT_MODE_RUN_NOW)
    assert isinstance(found, Refusal)
    assert (found.kind, found.reason) == ("busy", "Requested nodes are busy")
    theatre.selection.released(job)
    assert theatre.runs(after)
    assert not theatre.told


def test_plugin_that_hangs_is_interrupted_and_the_job_stays_queued(tmp_path: Path) -> None:
    theatre = stage(tmp_path, TEST + "\n    while True: pass", seconds=0.2)
    found = theatre.selection.job_test(theatre.job(), SELECT_MODE_RUN_NOW)
    assert isinstance(found, Refusal)
    assert found.reason == "plugin select/actor: select_p_job_test: took longer than 0.2 s"


HANGING = ("job_begin", "job_ready", "job_fini", "job_suspend", "select_nodeinfo_set")


@pytest.mark.parametrize("name", HANGING)
def test_host_lives_with_functions_that_hang(tmp_path: Path, name: str) -> None:
    theatre = stage(tmp_path, f"{FIRST}\ndef select_p_{name}(*given):\n    while True: pass\n", seconds=0.05)
    job = theatre.job()
    began = theatre.runs(job)
    assert began == (name != "job_begin")
    assert theatre.selection.job_ready(job) == (name != "job_ready")
    theatre.selection.job_suspend(job, indf_susp=True)
    theatre.ends(job)
    assert theatre.selection.ledger.is_empty()
    assert any(f"select_p_{name}: took longer" in line for line in theatre.told)


FORGETS = """
held = set()
def select_p_node_init(nodes, count):
    held.clear()
def select_p_job_init(jobs):
    held.update(job.job_id for job in jobs)
def select_p_job_test(job, bitmap, least, most, wanted, mode, candidates, preempted, excluded):
    if mode == 0 and held:
        return -1
    bitmap[1:] = 0
def select_p_job_begin(job):
    held.add(job.job_id)
def select_p_job_fini(job):
    pass
"""


def test_job_that_the_plugin_does_not_let_go_at_job_fini_blocks_nobody(tmp_path: Path) -> None:
    theatre = stage(tmp_path, FORGETS)
    theatre.selection.start("/nowhere")
    job, second = theatre.job(), theatre.job()
    assert theatre.runs(job)
    assert not theatre.runs(second)
    theatre.ends(job)
    assert theatre.runs(second)
    assert theatre.told == ["plugin select/actor: select_p_job_fini: left something with a job that has ended"]
    assert not theatre.runs(theatre.job())


def test_job_that_the_plugin_forgets_while_it_runs_keeps_what_it_has(tmp_path: Path) -> None:
    careless = FORGETS.replace("held.add(job.job_id)", "pass")
    theatre = stage(tmp_path, careless)
    job = theatre.job()
    assert theatre.runs(job)
    assert not theatre.runs(theatre.job())
    assert "is another job's" in theatre.told[0]
    theatre.ends(job)
    assert theatre.runs(theatre.job())


def test_plugin_that_writes_into_what_a_job_holds_changes_no_account(tmp_path: Path) -> None:
    text = (
        FIRST + "\ndef select_p_job_fini(job):\n    job.job_resrcs.core_bitmap.setall(0); job.node_bitmap.setall(0)\n"
    )
    theatre = stage(tmp_path, text)
    job = theatre.job()
    assert theatre.runs(job)
    theatre.selection.job_fini(job)
    assert theatre.selection.ledger.busy == theatre.nodes.core_bitmap({0: 15})
    theatre.selection.released(job)
    assert not theatre.selection.ledger.busy.any()


def test_reason_is_in_the_words_of_the_plugin(tmp_path: Path) -> None:
    text = """
from nodectl.plugin_api import PluginError, SLURM_ERROR, set_errno
def select_p_job_test(job, bitmap, least, most, wanted, mode, candidates, preempted, excluded):
    if mode == 1:
        raise PluginError(2014, "no machine has 9 toes")
    set_errno(2016, "two jobs are before it")
    return SLURM_ERROR
"""
    theatre = stage(tmp_path, text)
    ask = theatre.selection.job_test
    assert ask(theatre.job(), SELECT_MODE_TEST_ONLY) == Refusal("never", "no machine has 9 toes")
    assert ask(theatre.job(), SELECT_MODE_RUN_NOW) == Refusal("busy", "two jobs are before it")
    assert not theatre.told


@pytest.mark.parametrize("name", ["node_init", "state_restore", "job_init"])
@pytest.mark.parametrize(
    ("body", "why"),
    [("return -1", "returned -1"), ("raise OSError(5, 'broken disk')", "OSError: [Errno 5] broken disk (line 10)"),
     ("from nodectl.plugin_api import PluginError; raise PluginError(22, 'no state of mine')", "no state of mine")],
)  # fmt: skip
def test_daemon_is_told_why_it_cannot_go_on(tmp_path: Path, name: str, body: str, why: str) -> None:
    theatre = stage(tmp_path, f"{FIRST}\n\ndef select_p_{name}(*given): {body}\n")
    with pytest.raises(SelectionFailed, match="plugin select/actor: ") as failed:
        theatre.selection.start("/nowhere")
    assert str(failed.value) == f"plugin select/actor: select_p_{name}: {why}"


def test_error_of_job_begin_leaves_the_job_queued(tmp_path: Path) -> None:
    theatre = stage(tmp_path, FIRST + "\ndef select_p_job_begin(job): return -1\n")
    job = theatre.job()
    assert not theatre.runs(job)
    assert theatre.selection.ledger.is_empty()
    assert theatre.selection.job_begin(job) == "plugin select/actor: select_p_job_begin: returned -1"


@pytest.mark.parametrize("answer", ["0", "-1", "None", "'yes'", "False", "2"])
def test_job_is_ready_when_the_plugin_says_one(tmp_path: Path, answer: str) -> None:
    theatre = stage(tmp_path, f"{FIRST}\ndef select_p_job_ready(job): return {answer}\n")
    assert not theatre.selection.job_ready(theatre.job())


def test_plugin_of_the_fewest_functions_serves(tmp_path: Path) -> None:
    theatre = stage(tmp_path, FIRST)
    selection = theatre.selection
    selection.start("/nowhere")
    job = theatre.job()
    selection.info.admit(job)
    assert theatre.runs(job)
    assert selection.job_ready(job)
    assert selection.info.node_data(theatre.nodes[0]) == {}
    assert not selection.info.pack_job(job)
    assert not selection.expand_allow()
    theatre.ends(job)
    selection.save("/nowhere")
    selection.end()
    assert not theatre.told


def test_plugin_without_job_test_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginRefused, match="select plugin without select_p_job_test"):
        stage(tmp_path, "")


def resv(theatre: Stage, body: str, cores: int = 0) -> object:
    del body
    request = ReservationRequest("weekly", 1.0, 2.0, node_cnt=1, core_cnt=cores)
    taken = theatre.nodes.core_bitmap({0: 1})
    return theatre.selection.resv_test(request, theatre.nodes.bitmap([0, 1]), taken)


@pytest.mark.parametrize(
    ("body", "cores", "why"),
    [
        ("return avail", 0, "2 nodes, 1 are wanted"),
        ("b = avail.copy(); b.setall(1); return b", 0, "node n3 was not offered"),
        ("return 'n1'", 0, "no bitmap of 4 nodes"),
        ("avail[0] = 0; core.value.setall(0); return avail", 1, "0 cores of node n2"),
        ("avail[1] = 0; return avail", 1, "cores that were not to be used"),
        ("avail[0] = 0; core.value = None; return avail", 1, "no bitmap of 8 cores"),
    ],
)
def test_reservation_that_breaks_a_rule_is_not_made(tmp_path: Path, body: str, cores: int, why: str) -> None:
    theatre = stage(tmp_path, f"{FIRST}\ndef select_p_resv_test(wish, count, avail, core): {body}\n")
    found = resv(theatre, body, cores)
    assert isinstance(found, Refusal)
    assert why in found.reason


def test_nodes_of_a_step_lie_inside_of_its_job(tmp_path: Path) -> None:
    from nodectl.selection.records import StepRecord

    outside = "b = job.node_bitmap.copy(); b.setall(0); b[3] = 1; return b"
    theatre = stage(tmp_path, f"{FIRST}\ndef select_p_step_pick_nodes(job, info, count): {outside}\n")
    job = theatre.job(min_nodes=2)
    assert theatre.runs(job)
    step = StepRecord(job, 0)
    assert theatre.selection.step_pick_nodes(job, step, 1) == theatre.nodes.bitmap([0])
    assert "node n4 was not offered" in theatre.told[0]


@pytest.mark.parametrize(
    "text",
    [
        "def select_p_ba_get_dims(): return 'wide'",
        "def select_p_node_ranking(nodes, count): return 'best'",
        "def select_p_select_nodeinfo_alloc(): return None",
        "def select_p_select_jobinfo_alloc(): return None",
    ],
)
def test_nonsense_about_objects_is_told_and_harms_nothing(tmp_path: Path, text: str) -> None:
    theatre = stage(tmp_path, f"{FIRST}\n{text}\n")
    theatre.selection.start("/nowhere")
    theatre.selection.info.admit(theatre.job())
    assert theatre.runs(theatre.job())
    assert len(theatre.told) == 1


def test_state_of_a_job_that_cannot_be_read_again_is_made_anew(tmp_path: Path) -> None:
    text = f"""
{FIRST}
def select_p_select_jobinfo_alloc(): return ["new"]
def select_p_select_jobinfo_pack(info, buffer, version): buffer.packstr(info[0])
def select_p_select_jobinfo_unpack(out, buffer, version): out.value = [buffer.unpackstr()]
"""
    theatre = stage(tmp_path, text)
    job = theatre.job()
    theatre.selection.info.unpack_job(job, b"\0\0\0\x05old".hex())
    assert job.select_jobinfo == ["new"]
    assert "a string of 5 bytes where 3 are left" in theatre.told[0]
    job.select_jobinfo = ["old"]
    data = theatre.selection.info.pack_job(job)
    theatre.selection.info.unpack_job(job, data)
    assert job.select_jobinfo == ["old"]


def test_plugin_that_failed_to_be_told_of_an_end_is_told_of_all_jobs_anew(tmp_path: Path) -> None:
    text = FORGETS.replace(
        "    if mode == 0 and held:\n        return -1\n    bitmap[1:] = 0",
        """
    free = [node for node in bitmap.search(1) if mode or node not in held.values()]
    bitmap.setall(0)
    if not free: return -1
    bitmap[free[0]] = 1""",
    )
    text = text.replace("held = set()", "held = {}").replace(
        "held.add(job.job_id)", "held[job.job_id] = job.node_bitmap.find(1)"
    )
    text = text.replace(
        "held.update(job.job_id for job in jobs)", "held.update({job.job_id: job.node_bitmap.find(1) for job in jobs})"
    )
    text = text.replace("    pass\n", "    raise RuntimeError('lost my head')\n")
    theatre = stage(tmp_path, text)
    theatre.selection.start("/nowhere")
    jobs = [theatre.job() for _ in range(4)]
    assert all(theatre.runs(job) for job in jobs)
    assert not theatre.runs(theatre.job())
    theatre.ends(jobs[2])
    after = theatre.job()
    assert theatre.runs(after)
    assert after.nodes == "n3"
    assert not theatre.runs(theatre.job())


def test_resources_that_a_plugin_uses_for_each_job_are_each_jobs_own(tmp_path: Path) -> None:
    text = f"""
{RECORDS}
kept = JobResources(bitarray(4), bitarray(8))
def select_p_job_test(job, bitmap, least, most, wanted, mode, candidates, preempted, excluded):
    node = int(job.comment)
    bitmap.setall(0); bitmap[node] = 1
    kept.node_bitmap, kept.cpus = bitmap, {{node: 2}}
    kept.core_bitmap.setall(0); kept.core_bitmap[2 * node] = 1
    job.job_resrcs = kept
"""
    theatre = stage(tmp_path, text)
    first, second = theatre.job(), theatre.job()
    first.comment, second.comment = "0", "3"
    assert theatre.runs(first)
    assert theatre.runs(second)
    assert first.job_resrcs is not None
    assert first.job_resrcs.core_bitmap.to01() == "10000000"
    assert (first.nodes, second.nodes) == ("n1", "n4")
    assert first.node_bitmap == theatre.nodes.bitmap([0])


def test_preempted_jobs_hold_what_they_hold_while_they_are_asked_about(tmp_path: Path) -> None:
    theatre = stage(tmp_path, TEST + "bitmap[1:] = 0; preempted.value = candidates")
    first = theatre.job()
    assert theatre.runs(first)
    before = theatre.selection.ledger.busy.copy()
    assert first.job_resrcs is not None
    first.job_resrcs.core_bitmap.setall(0)
    found = theatre.selection.job_test(theatre.job(), SELECT_MODE_RUN_NOW, candidates=[first])
    assert isinstance(found, Choice)
    assert found.preempted == [first]
    assert theatre.selection.ledger.busy == before
