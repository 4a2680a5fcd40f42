"""The documents row by row (rows.md) against what nodectl knows, against the tests and against the recordings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.differences import reason_not_here
from conformance.scenario import recordings
from nodectl import spank
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import LIFE

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FUNCTION = re.compile(r"`(\w+)`")
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
RECORDING = re.compile(r"recording `([\w/-]+)`")
DIFFERS = "differs: "
LEAST_WORDS = 4  # of a reason
# What nodectl takes of later releases; the documents do not have it.
LATER = {"container_p_restore", "task_p_add_pid", "task_p_update_mem_limit"}
# What the built-in plugins say as data, so that nothing has to be called in a task.
OWN = {"task_p_pre_launch_priv_plan", "task_p_pre_launch_plan", "container_p_add_pid_plan"}
# Functions of spank.txt that a plugin calls.
CALLED = {
    "spank_context", "spank_get_item", "spank_getenv", "spank_job_control_getenv", "spank_job_control_setenv",
    "spank_job_control_unsetenv", "spank_option_getopt", "spank_option_register", "spank_options", "spank_remote",
    "spank_setenv", "spank_strerror", "spank_symbol_supported", "spank_unsetenv", "slurm_error", "slurm_info",
    "slurm_verbose",
}  # fmt: skip
DATA = {"plugin_type", "plugin_name", "plugin_version"}
RECORDINGS = recordings()


def listed() -> tuple[dict[str, tuple[str, ...]], dict[str, list[tuple[str, str]]]]:
    """The figures by document, and the rows by document: what is promised, and what holds it."""
    figures: dict[str, tuple[str, ...]] = {}
    found: dict[str, list[tuple[str, str]]] = {}
    document = ""
    for line in (HERE / "rows.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            document = line[3:]
            found[document] = []
        elif line.startswith("| ") and not line.startswith(("| promise |", "| document |")):
            cells = tuple(cell.strip() for cell in line.strip("|").split(" | "))
            if document:
                promise, proof = cells
                found[document].append((promise, proof))
            else:
                figures[cells[0]] = cells[1:]
    return figures, found


FIGURES, LISTED = listed()
ROWS = [pytest.param(*row, id=f"{document}: {row[0]}") for document, rows in LISTED.items() for row in rows]


@pytest.mark.parametrize("document", ["plugins", "select", "task", "job_container", "spank"])
def test_every_function_of_a_document_has_a_row_and_no_other(document: str) -> None:
    if document == "plugins":
        known = LIFE.keys() | DATA
    else:
        known = set(KINDS[document].functions) - LATER - OWN
        known |= CALLED if document == "spank" else LIFE.keys()
    assert {name for promise, _ in LISTED[document] for name in FUNCTION.findall(promise)} == known


def test_functions_that_a_spank_plugin_calls_are_there() -> None:
    assert all(hasattr(spank, name) for name in CALLED - {"spank_options"})


@pytest.mark.parametrize(("promise", "proof"), ROWS)
def test_a_row_names_tests_that_there_are_or_a_reason(promise: str, proof: str) -> None:
    named, _, reason = proof.partition(DIFFERS)
    tests, played = TEST.findall(named), RECORDING.findall(named)
    for path, test in tests:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^def {test}\(", text, re.MULTILINE), f"{path} has no {test}"
    for scenario in played:
        assert "command" in RECORDINGS[scenario], scenario
        assert not reason_not_here(scenario), scenario
    assert len(tests) + len(played) == named.count("`") // 2, "what is named is neither a test nor a recording"
    assert tests or played or len(reason.split()) >= LEAST_WORDS, f"{promise}: neither a test nor a reason"


def test_figures_are_those_of_the_rows() -> None:
    counted = {}
    for document, rows in LISTED.items():
        differ = sum(DIFFERS in proof for _, proof in rows)
        counted[document] = (len(rows), len(rows) - differ, differ)
    counted["all"] = tuple(map(sum, zip(*counted.values(), strict=True)))  # type: ignore[assignment]
    assert {document: tuple(map(int, cells)) for document, cells in FIGURES.items()} == counted


@pytest.mark.parametrize(("kind", "plugin"), [("select", "select_tracer"), ("task", "task_tracer"),
                                              ("job_container", "job_container_tracer")])  # fmt: skip
def test_plugin_of_a_document_has_each_of_its_functions(kind: str, plugin: str) -> None:
    text = (HERE / f"{plugin}.py").read_text(encoding="utf-8")
    known = set(KINDS[kind].functions) - LATER - OWN
    assert set(re.findall(r"^def (\w+_p_\w+)", text, re.MULTILINE)) == known
