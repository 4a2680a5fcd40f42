"""`nodectl bind` says what the measurements say, from lscpu's table of the machine and what the job holds."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from nodectl.cli import bind
from nodectl.client.command import GlobalOptions
from nodectl.model.cpu_list import cpus_of, format_cpulist
from oracle.cases import CASES, COLUMNS, Case, allocation, cases, unrolled
from oracle.differences import DIFFERENCES


def _describe(machine: str, place: Path) -> None:
    """Write lscpu's table and the configuration of a machine."""
    head = json.loads((CASES / f"{machine}.jsonl").open().readline())
    rows = [dict(zip(COLUMNS, line, strict=True)) for line in head["lscpu"]]
    (place / "lscpu.json").write_text(json.dumps({"cpus": rows}))
    lines = [f"boards = {head['boards']}"]
    for name in ("slurmd_parameters", "select_type_parameters"):
        words = [word for word in head[name].lower().split(",") if word]
        lines.append(f"{name} = {json.dumps(words)}")
    (place / "nodectl.toml").write_text("\n".join(lines) + "\n")


def _answer(case: Case, place: Path, patch: pytest.MonkeyPatch) -> tuple[int, dict[str, Any]]:
    words = ["--json", f"--machine={place / 'lscpu.json'}", f"--nodes={len(case.machine.nodes)}"]
    environ = dict(case.row.get("environ", {}))
    held = allocation(case)
    if held is not None:
        lists = [format_cpulist(cpus_of(grant.cpus)) for grant in held.nodes]
        words.append(f"--allocated={';'.join(lists)}")
        environ = dict(held.environment) | environ
    if "SLURM_HOSTFILE" in environ:
        hosts = place / "hosts"
        hosts.write_text(environ["SLURM_HOSTFILE"].replace(" ", "\n"))
        environ["SLURM_HOSTFILE"] = str(hosts)
    for name, value in environ.items():
        patch.setenv(name, value)
    said = io.StringIO()
    settings = GlobalOptions()
    settings.config = str(place / "nodectl.toml")
    with contextlib.redirect_stdout(said):
        status = bind.main(settings, [*words, *case.row["args"]])
    return status, json.loads(said.getvalue())


def _wrong(case: Case, status: int, answer: dict[str, Any]) -> str:
    row = case.row
    if row["exit"] or answer["error"] is not None:
        good = bool(row["exit"]) and status != 0 and answer["error"] and not answer["tasks"]
        return "" if good else f"status {status}, {answer['error']}"
    wanted = unrolled(row["cpus"])
    got = [task["cpus"] for task in answer["tasks"]]
    if got != wanted:
        return f"measured {wanted}, here {got}"
    bind_wanted, bind_got = row["env"].get("CPU_BIND"), answer["env"].get("SLURM_CPU_BIND")
    return "" if bind_wanted in (None, bind_got) else f"SLURM_CPU_BIND {bind_wanted}, here {bind_got}"


@pytest.mark.parametrize("machine", sorted(path.stem for path in CASES.glob("*.jsonl")))
def test_the_command_answers_as_measured(machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _describe(machine, tmp_path)
    wrong = []
    for case in cases(machine):
        # a job on some of several machines cannot be told on the command line
        whole = case.row["mode"] != "alloc" or len(case.machine.nodes) == 1
        if whole and not any(row.covers(case) for row in DIFFERENCES):
            with monkeypatch.context() as patch:
                for name in [name for name in os.environ if name.startswith(("SLURM_", "SRUN_"))]:
                    patch.delenv(name)
                if problem := _wrong(case, *_answer(case, tmp_path, patch)):
                    wrong.append(f"{case}: {problem}")
    assert not wrong, "\n".join(wrong)
