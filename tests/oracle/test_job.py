"""The cores that a job gets on its first node, as measured, in every case that tells."""

from __future__ import annotations

import pytest

from nodectl.model.cpu_list import cpus_of, format_cpulist, mask_of_list
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.selection.planning import allocate
from oracle.cases import CASES, Case, cases, request

# steps that take less than their job has
_PARTIAL = {"--exact", "--exclusive"}


def _measured(case: Case) -> str | None:
    """The CPU list, "" for a refusal; None where the case does not tell."""
    row = case.row
    if row["mode"] == "alloc":
        return format_cpulist(cpus_of(case.machine.nodes[0].to_machine(mask_of_list(row["allocated"]))))
    if row["mode"] != "job" or _PARTIAL.intersection(row["args"]):
        return None
    refusal = row.get("refusal", "")
    if refusal.startswith("outside"):
        return format_cpulist(cpus_of(int(refusal.split()[1], 16)))
    return "" if refusal == "no such nodes" else row.get("step")


def _allocated(case: Case) -> str:
    row, machine = case.row, case.machine
    words = row["args"] if row["mode"] == "job" else row["alloc"].split()
    try:
        asked = request(words, row.get("environ", {}))
        job = allocate(machine.nodes, asked, (), machine.settings, machine.names)
    except NoLayout:
        return ""
    return format_cpulist(cpus_of(job.nodes[0].cpus))


@pytest.mark.parametrize("machine", sorted(path.stem for path in CASES.glob("*.jsonl")))
def test_a_job_gets_the_cores_that_slurm_gives_it(machine: str) -> None:
    wrong = [
        f"{case}: measured {_measured(case)}, here {_allocated(case)}"
        for case in cases(machine)
        if _measured(case) is not None and _measured(case) != _allocated(case)
    ]
    assert not wrong, "\n".join(wrong)
