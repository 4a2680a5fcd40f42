"""The list of every function of the five documents (README.md) against what nodectl knows, and against the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodectl import spank
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import LIFE

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROW = re.compile(r"^\| `(\w+)` \| `([\w/.]+)` \(`(test_\w+)`\) \|$")
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


def listed() -> dict[str, dict[str, tuple[str, str]]]:
    """By document, by function: the file and the name of its test."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    document = ""
    for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            document = line[3:]
            found[document] = {}
        elif match := ROW.match(line):
            assert match[1] not in found[document], match[1]
            found[document][match[1]] = (match[2], match[3])
    return found


LISTED = listed()
ROWS = [(document, name, *test) for document, rows in LISTED.items() for name, test in rows.items()]


@pytest.mark.parametrize("document", ["select", "task", "job_container", "spank"])
def test_list_has_every_function_of_the_kind_and_no_other(document: str) -> None:
    known = set(KINDS[document].functions) - LATER - OWN
    known |= CALLED if document == "spank" else LIFE.keys()
    assert LISTED[document].keys() == known


def test_list_of_what_every_plugin_has() -> None:
    assert LISTED["plugins"].keys() == LIFE.keys() | DATA


def test_functions_that_a_spank_plugin_calls_are_there() -> None:
    assert all(hasattr(spank, name) for name in CALLED - {"spank_options"})


@pytest.mark.parametrize(("document", "name", "path", "test"), ROWS)
def test_test_that_is_named_is_there(document: str, name: str, path: str, test: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^def {test}\(", text, re.MULTILINE), f"{document}: {name}"


@pytest.mark.parametrize(("kind", "plugin"), [("select", "select_tracer"), ("task", "task_tracer"),
                                              ("job_container", "job_container_tracer")])  # fmt: skip
def test_plugin_of_a_document_has_each_of_its_functions(kind: str, plugin: str) -> None:
    text = (HERE / f"{plugin}.py").read_text(encoding="utf-8")
    assert set(re.findall(r"^def (\w+_p_\w+)", text, re.MULTILINE)) | LIFE.keys() == LISTED[kind].keys()
