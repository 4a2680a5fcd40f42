"""The plugin that the guide for authors shows, and the words with which it is tried."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nodectl.cli.main import main
from nodectl.lab.simulation import described, generator, stage, submission
from unit.simulation.authors import written

NODES = "2*2s:4c:2t,mem=32G,gpu=2"


def tried(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["select", "try", *words])
    return status, capsys.readouterr().out


def test_it_plays_a_workload_without_a_broken_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = tried(capsys, written(tmp_path), "--nodes", "2*8c,mem=16G", "--generate", "60", "--jobs")
    assert status == 0, out
    assert next(line for line in out.splitlines() if line.startswith("rules broken")).split()[-1] == "0"
    assert "job_test: calls" in out


def test_two_plugins_are_compared_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "plan.svg"
    status, out = tried(
        capsys, written(tmp_path), "select/cons_tres", "--nodes", "2*8c", "--generate", "jobs=40,users=4",
        "--seed", "3",
        "--svg", str(picture), "over_subscribe=no",
    )  # fmt: skip
    assert status == 0, out
    assert "select/first_fit" in out
    assert "select/cons_tres" in out
    drawn = ElementTree.parse(picture)  # noqa: S314 - written by us
    titles = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert sum("job 1 of" in title or "job 1_" in title for title in titles) >= 2


def test_each_call_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (written(tmp_path), "--nodes", "2*8c,mem=16G", "--generate", "5", "--calls")
    _, out = tried(capsys, *words)
    first = next(line for line in out.splitlines() if "job_test(job 1, nodes n1,n2, " in line)
    assert " = 0, " in first
    assert "gives 1 CPUs" in out
    _, out = tried(capsys, *words, "--json")
    *calls, report = map(json.loads, out.splitlines())
    assert {"select_p_node_init", "select_p_job_test", "select_p_job_begin", "select_p_job_fini"} <= {
        call["function"] for call in calls
    }
    assert report["plays"][0]["plugin"] == "select/first_fit"
    assert report["plays"][0]["violations"] == []


def test_a_plugin_that_forgets_is_told_and_costs_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forgetful = written(tmp_path, ("    held.pop(job_ptr, None)", "    pass"))
    status, out = tried(capsys, forgetful, "--nodes", "4c", "--generate", "40", "--json")
    found = json.loads(out)["plays"][0]
    assert found["jobs"] >= 1
    greedy = written(tmp_path, ("        free &= ~held[other].core_bitmap\n", ""), name="greedy")
    status, out = tried(capsys, greedy, "--nodes", "4c", "--generate", "40", "--json")
    assert status == 1
    assert any("another job's" in one["words"] for one in json.loads(out)["plays"][0]["violations"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes", "8c", "--generate", "5"], "one plugin, or two"),
        (["a.py", "b.py", "c.py", "--nodes", "8c", "--generate", "5"], "one plugin, or two"),
        (["select/linear", "--nodes", "8c"], "give --workload FILE or --generate RECIPE"),
        (["select/linear", "--nodes", "8x", "--generate", "5"], "machine '8x'"),
        (["select/linear", "--nodes", "8c,mem=lots", "--generate", "5"], "mem='lots' is no size"),
        (["select/linear", "--nodes", "8c", "--generate", "few"], "jobs is 'few', not a number"),
        (["select/linear", "--nodes", "8c", "--generate", "5", "max_wait=long"], "max_wait: "),
        (["select/linear", "--nodes", "8c", "--generate", "5", "max_weight=3"], "max_weight: no key"),
        (["select/linear", "--nodes", "8c", "--workload", "/nowhere/at.all"], "/nowhere/at.all: No such file"),
    ],
)
def test_words_without_sense_cost_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", "try", *words]) == 2
    said = capsys.readouterr().err.strip()
    assert says in said
    assert "\n" not in said


def test_a_plugin_that_is_not_there_costs_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", "try", "select/none_such", "--nodes", "8c", "--generate", "5"]) == 1
    assert "no file select/none_such.py" in capsys.readouterr().err


def test_a_play_comes_out_the_same_twice(tmp_path: Path) -> None:
    plugin = written(tmp_path)
    nodes = described.nodes_of(NODES)
    workload = generator.generate(generator.Recipe(100, 5), submission.machine_of(nodes), 11)
    plays = [stage.play(plugin, described.nodes_of(NODES), workload, stage.Setting()) for _ in range(2)]
    assert plays[0].stories == plays[1].stories
    assert plays[0].violations == plays[1].violations
