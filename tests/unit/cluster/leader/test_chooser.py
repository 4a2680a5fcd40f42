"""A cluster's steps go where the plugin of `select_type` says: a site's own, which sees all nodes, or select/linear."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.cluster.leader.chooser import Chooser, configured
from nodectl.cluster.leader.placing import Table
from nodectl.cluster.leader.wish import Placed
from nodectl.cluster.machine import Machine
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.request import Settings
from nodectl.placement.machine.spec import from_spec
from nodectl.plugin_host.loader import PluginRefused
from nodectl.service.config_file.reader import load
from unit.cluster.leader.test_placing import wish

LAST = """
from nodectl.selection.modes import SELECT_MODE_TEST_ONLY as TEST_ONLY

calls = []
nodes = None

def note(name, *what):
    calls.append((name, *what))

def select_p_node_init(node_ptr, node_cnt):
    global nodes
    nodes = node_ptr
    note("node_init", node_cnt)

def select_p_job_init(job_list):
    note("job_init", [job.job_id for job in job_list])

def select_p_select_jobinfo_alloc():
    return {}

def select_p_select_jobinfo_set(jobinfo, data_type, data):
    note("network", data)

def select_p_job_test(job, bitmap, least, most, wanted, mode, candidates, preempted, excluded):
    free = [index for index in bitmap.search(1) if mode == TEST_ONLY or index not in held.values()]
    if not free:
        return -1
    bitmap.setall(0)
    bitmap[free[-1]] = 1

held = {}

def select_p_job_begin(job):
    held[job.job_id] = job.node_bitmap.index(1)
    note("job_begin", nodes[held[job.job_id]].name)

def select_p_job_fini(job):
    held.pop(job.job_id)
    note("job_fini")

def select_p_update_node_state(node):
    note("state", node.name)

def fini():
    note("fini")
"""


def chosen_by(tmp_path: Path, text: str, select_type: str = "select/last") -> tuple[Chooser, list[str]]:
    (tmp_path / "select").mkdir(exist_ok=True)
    head = 'plugin_type = "select/last"\nplugin_name = "the last node"\n'
    (tmp_path / "select" / "last.py").write_text(head + text)
    path = tmp_path / "nodectl.toml"
    path.write_text(f'select_type = "{select_type}"\nplugin_dir = "{tmp_path}"\n')
    for one in (path, tmp_path / "select" / "last.py"):
        one.chmod(0o644)
    said: list[str] = []
    return configured(load(str(path), must_exist=True), Settings(), said.append), said


def table(chooser: Chooser) -> Table:
    made = Table(chooser=chooser)
    for rank in range(3):
        made.add(rank, f"n{rank + 1}", Machine(from_spec("2s:4c:1t"), 1000))
    return made


def ranks(placed: Placed | None) -> dict[int, str]:
    assert placed is not None
    return {rank: f"{share.mask:x}" for rank, share in placed.held.shares.items()}


def test_a_sites_plugin_chooses_among_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    chooser, said = chosen_by(tmp_path, LAST)
    calls = chooser._plugin.module.calls
    made = table(chooser)
    first = made.place(wish(ntasks=2, network="ib"))
    assert ranks(first) == {2: "ff"}  # all of the node that it chose
    assert ranks(made.place(wish(ntasks=1))) == {1: "ff"}
    made.take_out(0, "lost")
    assert made.place(wish(ntasks=1)) is None
    assert first is not None
    made.release(first.held)
    assert ranks(made.place(wish(ntasks=1))) == {2: "ff"}
    made.add(3, "n4", Machine(from_spec("2s:4c:1t"), 1000))
    assert ranks(made.place(wish(ntasks=1))) == {3: "ff"}
    made.end()
    named = [call for call in calls if call[0] not in ("network",)]
    assert named == [
        ("node_init", 3), ("job_init", []), ("job_begin", "n3"), ("job_begin", "n2"), ("state", "n1"), ("job_fini",),
        ("job_begin", "n3"), ("node_init", 4), ("job_init", [2, 4]), ("job_begin", "n4"), ("fini",),
    ]  # fmt: skip
    assert ("network", "ib") in calls
    assert not said


def test_a_step_holds_the_whole_nodes_that_select_linear_gives(tmp_path: Path) -> None:
    made = table(chosen_by(tmp_path, LAST, "select/linear")[0])
    assert ranks(made.place(wish(ntasks=2, nodes="2"))) == {0: "ff", 1: "ff"}
    assert ranks(made.place(wish(ntasks=1))) == {2: "ff"}
    assert made.place(wish(ntasks=1)) is None


TWO = """
calls = []
answer = 0

def select_p_job_test(job, bitmap, least, most, wanted, mode, candidates, preempted, excluded):
    for place, node in enumerate(list(bitmap.search(1))):
        bitmap[node] = place < max(least, wanted)

def select_p_job_resized(job, node):
    calls.append((job.job_id, node.name))
    return answer
"""


def test_a_plugin_is_told_of_a_node_that_a_step_has_lost(tmp_path: Path) -> None:
    chooser, said = chosen_by(tmp_path, TWO)
    made = table(chooser)
    placed = made.place(wish(ntasks=2, nodes="2"))
    assert placed is not None
    held = placed.held
    made.take_out(1, "lost")
    assert not made.give_up(held, 2)  # it has nothing there
    assert made.give_up(held, 1)
    assert ranks(placed) == {0: "ff"}
    assert chooser._plugin.module.calls == [(held.number, "n2")]
    assert (made.cpus_used(0), made.cpus_used(1)) == (0xFF, 0)
    assert not made.give_up(held, 0)  # the last node goes when the step ends
    made.release(held)
    assert made.cpus_used(0) == 0
    assert not said


def test_a_step_keeps_the_node_that_its_plugin_does_not_give_up(tmp_path: Path) -> None:
    chooser, said = chosen_by(tmp_path, TWO.replace("answer = 0", "answer = -1"))
    made = table(chooser)
    placed = made.place(wish(ntasks=2, nodes="2"))
    assert placed is not None
    assert not made.give_up(placed.held, 1)
    assert ranks(placed) == {0: "ff", 1: "ff"}
    assert made.cpus_used(1) == 0xFF
    assert said == ["plugin select/last (the last node): select_p_job_resized: returned -1"]


def test_what_a_sites_plugin_chooses_wrongly_is_not_used_and_told(tmp_path: Path) -> None:
    chooser, said = chosen_by(tmp_path, LAST.replace("held.values()", "[]"))
    made = table(chooser)
    assert made.place(wish(ntasks=1)) is not None
    with pytest.raises(NoLayout, match="core 0 of node n3 is another job's"):
        made.place(wish(ntasks=1))
    assert len(said) == 1
    assert said[0].startswith("plugin select/last (the last node): select_p_job_test: ")


def test_a_plugin_that_is_refused_is_named(tmp_path: Path) -> None:
    with pytest.raises(PluginRefused, match=r"select/last.py"):
        chosen_by(tmp_path, "def select_p_job_test(job): return 0\n")
