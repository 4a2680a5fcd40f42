"""What of a machine Slurm gave to the job: an agent's own step has other variables than the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.cluster import machine
from nodectl.cluster.engine.engine import Nodes
from nodectl.cluster.engine.slurm import Slurm
from nodectl.machine.spec import from_spec

_SRUN = "#!/bin/sh\nenv\n"


@pytest.mark.parametrize(("name", "memory"), [("MEM_PER_NODE", 64), ("MEM_PER_CPU", 256)])
def test_an_agent_gives_no_more_memory_than_the_job_has(
    name: str, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun = tmp_path / "srun"
    srun.write_text(_SRUN)
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    of_job = {"PATH": f"{tmp_path}:/usr/bin:/bin", f"SLURM_{name}": "64"}
    (agents,) = Slurm(of_job).start(Nodes(7, ("n1",)), ["agent"])
    with open(agents.stdout, encoding="utf-8") as lines:
        variables = dict(line.rstrip("\n").partition("=")[::2] for line in lines)
    agents.process.wait()
    variables["SLURM_MEM_PER_NODE"] = variables.get("SLURM_MEM_PER_NODE", "0")  # of srun --mem=0
    assert machine.given(from_spec("1s:4c:1t"), variables, 0).memory == memory
