"""Steps of the cluster of an allocation are asked for in the same way with and without an interpreter."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.client.srun import variables
from unit.client.mpi_programs import linked_to
from unit.client.quick.service import HELLO, PYTHON, QUICK, Service, both, finish, start, told

OF_CLUSTER = {**HELLO, "cluster": {"job": 7, "nodes": 3}}
ALLOCATION = Path(__file__).with_name("allocation.env")
OTHERS = {"SLURM_JOB_ID", "SLURM_BCAST"}  # the latter has another step launched first
READ = {*variables.OPTIONS, *variables.OTHERS, *variables.IGNORED.split(), "SLURM_NEW"} - OTHERS


@pytest.fixture
def gateway() -> Iterator[Service]:
    """Of the agent on n1, for job 7. Below a short path: that of a socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="nodectl-") as runtime:
        directory = Path(runtime) / "nodectl" / "cluster" / "7.n1"
        directory.mkdir(parents=True)
        for path in (directory, *directory.parents[:2]):
            path.chmod(0o700)
        found = Service(directory / "nodectl.sock")
        yield found
        found.close()


def inside(gateway: Service, **changed: str | None) -> dict[str, str]:
    """What a batch script finds, but for these."""
    fixed = {name: value for line in ALLOCATION.read_text().splitlines() for name, _, value in [line.partition("=")]}
    found = {**fixed, "XDG_RUNTIME_DIR": str(gateway.path.parents[3]), "NODECTL_SOCKET": "", **changed}
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize(
    "words",
    [
        ["true"],
        ["-n1", "true"],
        ["-N1", "-n2", "true"],
        ["-N", "3", "-n24", "-O", "true"],
        ["--nodes=2", "--overcommit", "-c2", "true"],
        ["-Jx", "--nodes", "3", "true"],
        ["-J", "", "true"],
    ],
)
def test_plain_words_are_asked_for_without_an_interpreter(words: list[str], gateway: Service) -> None:
    assert both(["run", *words], gateway, hello=OF_CLUSTER, env=inside(gateway))


@pytest.mark.parametrize(
    "words",
    [
        ["-N1-2", "true"],
        ["-N03", "true"],
        ["-N2k", "true"],
        ["-On2", "true"],
        ["-w", "n1", "true"],
        ["-n2", "--overlap", "true"],
    ],
)
def test_other_words_are_python_s(words: list[str], gateway: Service) -> None:
    assert not both(["run", *words], gateway, hello=OF_CLUSTER, env=inside(gateway))


@pytest.mark.parametrize(
    ("changed", "quick"),
    [
        ({"SLURM_NTASKS": "2"}, True),
        ({"SLURM_NTASKS": None}, True),
        ({"SLURM_NTASKS": None, "SLURM_NPROCS": None}, False),
        ({"SLURM_NTASKS": ""}, False),
        ({"SLURM_NTASKS": "x"}, False),
        ({"SLURM_NTASKS_PER_NODE": None}, True),
        ({"SLURM_NNODES": None}, True),
        ({"SLURM_NNODES": None, "SLURM_JOB_NUM_NODES": None}, False),
        ({"SLURM_NNODES": "2-3"}, False),
        ({"SLURM_UMASK": "0077"}, True),
        ({"SLURM_UMASK": None}, True),
        ({"SLURM_MEM_PER_NODE": "100"}, True),
        ({"SLURM_MEM_PER_NODE": "1G"}, False),
        ({"SLURM_MEM_PER_NODE": "0"}, False),
        ({"SLURM_MEM_PER_CPU": "50"}, True),
        ({"SLURM_MEM_PER_CPU": ""}, False),
        ({"SLURM_JOB_NAME": "sbatch"}, True),
        ({"SLURM_JOB_NAME": None}, True),
        ({"SLURM_ARRAY_TASK_ID": "17"}, True),
        ({"SLURM_JOB_ID": "07"}, False),
        ({"NODECTL_CONFIG": ""}, False),
        ({"SPANK_X": "1"}, False),
    ],
)
def test_what_the_allocation_says_has_its_meaning(
    changed: dict[str, str | None], quick: bool, gateway: Service
) -> None:
    if changed == {"SLURM_JOB_ID": "07"}:
        gateway.path.parent.with_name("07.n1").symlink_to(gateway.path.parent)
    assert both(["run", "true"], gateway, hello=OF_CLUSTER, env=inside(gateway, **changed)) == quick


@pytest.mark.parametrize("name", [name for name in sorted(READ) if name.startswith(("SLURM_", "SRUN_"))])
def test_every_variable_that_srun_reads_has_its_meaning(name: str, gateway: Service, tmp_path: Path) -> None:
    how = {"env": inside(gateway, **{name: "1"}), "cwd": tmp_path}  # where one of them has the program copied
    with gateway.refusing(OF_CLUSTER) as calls:
        ours, theirs = (finish(start(way, ["run", "true"], gateway, **how)) for way in (QUICK, PYTHON))
    assert ours == theirs
    assert calls[: len(calls) // 2] == calls[len(calls) // 2 :]


def test_a_program_is_looked_at_where_only_the_nodes_are_several(gateway: Service, tmp_path: Path) -> None:
    """Each of them has a task."""
    program = str(linked_to("libmpi.so.40", tmp_path))
    variables_of_tasks = dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE"))
    how = {"hello": OF_CLUSTER, "env": inside(gateway, **variables_of_tasks)}
    for nodes, linked in (("1", None), ("3", "pmix")):
        call, _, _ = told(QUICK, ["run", f"-N{nodes}", program], gateway, **how)
        request = call["parameters"]["request"]
        assert (request["ntasks"], request.get("mpi_linked")) == (int(nodes), linked)


def test_who_is_no_cluster_is_asked_by_python(gateway: Service) -> None:
    assert not both(["run", "true"], gateway, hello=HELLO, env=inside(gateway))


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_directory_that_others_may_write_has_no_gateway(mode: int, gateway: Service) -> None:
    gateway.path.parents[2].chmod(mode)
    for way in (QUICK, PYTHON):
        with gateway.refusing(OF_CLUSTER) as calls:
            _, errors, status = finish(start(way, ["run", "true"], gateway, env=inside(gateway)))
        assert (status, calls) == (1, []), errors


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_directory_of_somebody_else_has_no_gateway(gateway: Service) -> None:
    os.chown(gateway.path.parents[2], 65534, 65534)
    for way in (QUICK, PYTHON):
        with gateway.refusing(OF_CLUSTER) as calls:
            _, errors, status = finish(start(way, ["run", "true"], gateway, env=inside(gateway)))
        assert (status, calls) == (1, []), errors


def test_another_node_is_asked_where_it_is_named(gateway: Service, service: Service) -> None:
    assert not both(["run", "true"], service, env=inside(gateway, NODECTL_SOCKET=str(service.path)))


def test_several_nodes_of_one_are_python_s(service: Service) -> None:
    assert not both(["run", "-O", "true"], service)
