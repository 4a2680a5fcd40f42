"""What of a machine Slurm gave to the job: an agent's own step has other variables than the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.cluster import machine
from nodectl.cluster.engine.engine import Nodes
from nodectl.cluster.engine.slurm import Slurm
from nodectl.placement.machine.declared_devices import Device
from nodectl.placement.machine.spec import from_spec

_SRUN = "#!/bin/sh\nenv\n"
_JOB = """\
JobId=7 JobName=interactive
   JOB_GRES=gpu:a:5,gpu:b:3
     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a:2(IDX:0,2),gpu:b:1(IDX:3)
     Nodes=n[2-3] CPU_IDs=0 Mem=0 GRES={others}
   TresPerJob=gres:gpu:8
"""


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


def test_a_step_may_have_what_slurm_gave_the_agent() -> None:
    there = [Device("gpu", number, cpus=1 << number) for number in range(4)]
    variables = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "2,3"}
    made = machine.given(from_spec("1s:4c:1t"), variables, 0, there)
    assert [(device.number, device.cpus) for device in made.devices] == [(0, 4), (1, 8)]
    told = machine.described(made)
    assert machine.Machines().read(told) == made
    assert machine.given(from_spec("1s:4c:1t"), variables, 0, None).devices == ()


@pytest.mark.parametrize(
    ("variable", "others", "option"),
    [
        ("SLURM_GPUS", "gpu:a:2(IDX:0-1),gpu:b:1(IDX:2)", ["--gres=gpu:a:2,gpu:b:1"]),
        ("SLURM_GPUS_PER_TASK", "gpu:a:1(IDX:0)", ["--gres=gpu:a:1"]),
        ("SLURM_GPUS", "", []),
        ("SLURM_GPUS_PER_NODE", "gpu:a:2(IDX:0-1)", []),  # which every step has
    ],
)
def test_agents_ask_for_the_gpus_that_slurm_would_not_give_them(
    variable: str, others: str, option: list[str], tmp_path: Path
) -> None:
    (tmp_path / "job").write_text(_JOB.format(others=others))
    for name, line in (("srun", 'printf "%s\\n" "$@"'), ("scontrol", f"cat {tmp_path}/job")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    of_job = {"PATH": f"{tmp_path}:/usr/bin:/bin", variable: "3"}
    (agents,) = Slurm(of_job).start(Nodes(7, ("n1", "n2", "n3")), ["agent"])
    with open(agents.stdout, encoding="utf-8") as lines:
        words = lines.read().split()
    agents.process.wait()
    assert [word for word in words if word.startswith("--g")] == option
