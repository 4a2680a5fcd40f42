"""Which commands start the cluster of their allocation by themselves, and which are asked of what is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.bulk.options import BulkParser
from nodectl.cli.run import _further
from nodectl.client import cluster_gateway
from nodectl.client.command import BadOption, Failed, GlobalOptions
from nodectl.client.run_options import RunParser
from nodectl.cluster.engine.engine import Nodes, NoEngine
from nodectl.cluster.engine.slurm import Slurm
from nodectl.cluster.start import first_run, starter
from nodectl.cluster.start.first_run import asks_for_several
from nodectl.cluster.start.place import HoldersPlace, Taken, sweep
from nodectl.cluster.start.starter import Outcome
from nodectl.cluster.start.words import SERVED


@pytest.mark.parametrize(
    ("line", "several"),
    [
        ("-N2 true", True),
        ("--nodes=2-3 true", True),
        ("--nodes 2 -n4 true", True),
        ("--begin now -N 2 true", True),
        ("-w n[1-2] true", True),
        ("--of-a-plugin=3 -N2 true", True),
        ("--unkno -N2 true", True),
        ("-N1-3 true", False),
        ("-n4 true", False),
        ("-w n1 true", False),
        ("true -N2", False),
        ("-N two true", False),
        ("-w n[ true", False),
        ("--help", None),
        ("--version", None),
        ("-N2 --mpi=list", None),
        ("-N2 --cpu-bind=help", None),
    ],
)
def test_only_more_nodes_than_one_start_a_cluster_where_a_service_is(line: str, several: bool | None) -> None:
    assert asks_for_several(line.split(), RunParser, further=_further) is several


@pytest.mark.parametrize(
    ("words", "served", "starts"),
    [
        (("true",), False, True),
        (("true",), True, False),
        (("-N2", "true"), True, True),
        (("--help",), False, False),
        (("--mpi=list",), False, False),
        (("--ntasks=x", "true"), True, False),
        ((), True, False),
    ],
)
def test_one_node_is_enough_where_no_service_is(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], served: bool, starts: bool
) -> None:
    monkeypatch.setattr(first_run, "_is_served", lambda: served)
    asked: list[object] = []
    monkeypatch.setattr(first_run, "Slurm", asked.append)
    monkeypatch.setattr(starter, "nodes_of", lambda _: Nodes(7, ("n1", "n2")))
    monkeypatch.setattr(first_run, "_is_there", lambda _: True)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    first_run.begin(words, RunParser, further=_further)
    assert bool(asked) is starts


@pytest.mark.parametrize(("words", "why"), [(("--ntasks=x", "true"), "--ntasks"), (("-N2",), "No command given")])
def test_what_is_no_launch_is_told_before_a_cluster_is_started(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    monkeypatch.setattr(first_run, "_is_served", lambda: False)
    with pytest.raises(BadOption, match=why):
        first_run.begin(words, RunParser, further=_further)


def test_bulk_reads_its_commands_where_none_is_given() -> None:
    assert asks_for_several(["--nodes=2"], BulkParser)


def test_nodes_that_would_end_with_the_first_one_are_told() -> None:
    outcome = Outcome(Nodes(7, ("n1", "n2", "n3")), {}, ["n3"])
    assert outcome.warning.startswith("n1 and n3 share no ")
    assert not Outcome(Nodes(7, ("n1", "n2")), {}).warning


def test_nodes_of_bulk_are_not_its_arguments_per_command() -> None:
    assert asks_for_several(["--nodes=2", "echo", ":::", "1"], BulkParser)
    assert not asks_for_several(["-N2", "echo", ":::", "1"], BulkParser)


ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({}, True),
        ({"SLURM_JOB_NODELIST": "n1,n2"}, True),
        ({"SLURM_JOB_NODELIST": "n1"}, True),
        ({"SLURM_JOB_NODELIST": ""}, False),
        ({"SLURM_JOB_ID": ""}, False),
        ({"NODECTL_JOB_ID": "7"}, False),
        ({"NODECTL_JOB_ID": "6"}, True),
        ({"NODECTL_CLUSTER": "8.n1"}, False),
        ({"NODECTL_SOCKET": "/tmp/socket"}, False),
        ({"NODECTL_CONFIG": "/tmp/file"}, False),
    ],
)
def test_an_allocation_misses_its_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: dict[str, str], missing: bool
) -> None:
    monkeypatch.setattr("posix.geteuid", lambda: os.stat(tmp_path).st_uid or 1)
    for name in [*ALLOCATION, "NODECTL_JOB_ID", "NODECTL_CLUSTER", "NODECTL_SOCKET", "NODECTL_CONFIG"]:
        monkeypatch.delenv(name, raising=False)
    for name, value in {**ALLOCATION, **changed}.items():
        monkeypatch.setenv(name, value)
    assert cluster_gateway.is_missing(GlobalOptions()) is missing


def test_srun_is_slurms_where_nodectls_stands_before_it(tmp_path: Path) -> None:
    ours, slurms = tmp_path / "ours" / "srun", tmp_path / "slurms" / "srun"
    for path, text in (
        (ours, "#!/usr/bin/python3 -IS\nfrom nodectl.slurm.commands.entry import command\n"),
        (slurms, ""),
    ):
        path.parent.mkdir()
        path.write_text(text)
        path.chmod(0o755)
    assert Slurm({"PATH": f"{ours.parent}:{slurms.parent}"})._program("srun") == str(slurms)
    with pytest.raises(NoEngine, match="no srun of Slurm's"):
        Slurm({"PATH": str(ours.parent)})._program("srun")


@pytest.mark.parametrize("first", [True, False])
def test_a_place_that_its_holder_removes_meanwhile_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """Else two would each have the lock of a directory of this name, or one would be refused. `first`: before it is
    opened.
    """
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    place, opened = HoldersPlace(7), os.open

    def open_and_lose(path: str, *words: int) -> int:
        monkeypatch.setattr(os, "open", opened)
        if first:
            os.rmdir(path)
        fd = opened(path, *words)
        os.rmdir(path)
        return fd

    monkeypatch.setattr(os, "open", open_and_lose)
    lock = place.take()
    assert os.path.samestat(os.fstat(lock), os.stat(place.path))
    with pytest.raises(Taken):
        HoldersPlace(7).take()
    os.close(lock)


def test_what_a_holder_has_left_that_was_killed_is_removed_and_no_other_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    dead, alive = HoldersPlace(7), HoldersPlace(8)
    os.close(dead.take())
    Path(dead.log).touch()
    lock = alive.take()
    for job in (7, 8, 9):
        sweep(job)
    assert (os.path.exists(dead.path), os.path.exists(alive.path)) == (False, True)
    alive.remove()
    os.close(lock)
    sweep(9)
    assert not list(tmp_path.iterdir()), "and nothing is made for it"


def test_a_cluster_that_others_have_started_gets_no_gateway_on_a_machine_that_is_none_of_its_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So nobody waits for one."""
    monkeypatch.setattr(Slurm, "runs", lambda *_: pytest.fail("it is asked"))
    outcome = Outcome(Nodes(7, ("n1", "n2"), ("login",)), {"n1": f"{SERVED} /tmp/7.n1"})
    with pytest.raises(Failed, match="was started on another machine, and has no gateway here -> type it there"):
        first_run._follow_another(Slurm({}), outcome)
