"""Features add commands at one door, and the command works without them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from core_alone import copied
from nodectl.bulk.options import BulkParser
from nodectl.cli import run, several_nodes
from nodectl.cli.catalogue import commands
from nodectl.client import advice, cluster_gateway
from nodectl.client.command import BadOption, Failed, GlobalOptions
from nodectl.client.run_options import RunParser
from nodectl.cluster.start import first_run
from nodectl.model import features

COMMANDS = [command for names in features.FEATURES.values() for command in names]
_BOOT = "import sys; sys.path[:0] = {path!r}; "


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The sys.path of a nodectl without features."""
    return copied(tmp_path_factory.mktemp("core") / "alone")


def nodectl(path: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    boot = f"{_BOOT.format(path=path)} from nodectl.cli.main import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-IS", "-c", boot, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_a_missing_feature_says_in_one_line_what_is_not_installed(core: list[str], command: str) -> None:
    done = nodectl(core, command, "--help")
    name = features.of_command(command)
    told = f"no command '{command}': nodectl's part '{name}' is not installed here -> install nodectl with it\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"nodectl: error: {told}")


def test_the_help_lists_the_commands_that_are_there(core: list[str]) -> None:
    done = nodectl(core, "--help")
    above = done.stdout.partition("Options:\n")[0].splitlines()
    listed = [line.split()[0] for line in above if line.startswith("  ")]
    assert (done.returncode, listed) == (0, [name for name in commands() if name not in COMMANDS])


def test_run_has_its_help_without_features(core: list[str]) -> None:
    done = nodectl(core, "--socket", "/nonexistent", "run", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--ntasks" in done.stdout


def test_a_missing_command_is_not_completed(core: list[str]) -> None:
    done = nodectl(core, "__complete", "bash", "", "nodectl t")
    assert done.stdout.splitlines()[2:] == ["topo"], done.stderr


def test_the_manual_is_written_without_features(core: list[str], tmp_path: Path) -> None:
    boot = f"{_BOOT.format(path=core)} import runpy; runpy.run_module('nodectl.cli.manual', run_name='__main__')"
    subprocess.run([sys.executable, "-IS", "-c", boot, str(tmp_path)], check=True, capture_output=True)
    pages = {page.stem for page in (tmp_path / "man1").iterdir()}
    assert pages == {"nodectl", *(f"nodectl-{name}" for name in commands() if name not in COMMANDS)}


def test_each_feature_declares_the_commands_by_which_it_is_missed() -> None:
    declared = [tuple(command.name for command in feature.commands) for feature in features.installed()]
    assert declared == [names for names in features.FEATURES.values() if names]


def test_each_module_that_a_feature_declares_has_what_the_core_calls() -> None:
    for feature in features.installed():
        for command in feature.commands:
            module = importlib.import_module(command.module)
            assert callable(module.main)
            assert command.reads_words or callable(module.add_arguments)
            if command.parser:
                parser = importlib.import_module(command.parser)
                assert parser.USAGE.startswith(f"nodectl {command.name} ")
                assert parser.ABOUT
                assert parser.parser().groups()
                assert parser.parser().all_options()
        assert importlib.import_module(feature.manual).SEE.keys() == {command.name for command in feature.commands}
        assert not feature.step or callable(importlib.import_module(feature.step).run_commands)
    assert all(callable(getattr(several_nodes.needed(), name)) for name in ("begin", "send", "replace"))


def test_a_run_in_an_allocation_begins_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    monkeypatch.setattr(cluster_gateway, "is_missing", lambda _: True)
    monkeypatch.setattr(first_run, "begin", lambda words, parser, **_: begun.append((words, parser)))
    run.begin_cluster(GlobalOptions(), ["-N3", "true"])
    run.begin_cluster(GlobalOptions(), ["-N2", "true"], BulkParser)
    assert begun == [(["-N3", "true"], RunParser), (["-N2", "true"], BulkParser)]


def test_a_run_over_several_nodes_says_that_the_cluster_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    monkeypatch.setattr(cluster_gateway, "is_missing", lambda _: True)
    monkeypatch.setattr(several_nodes, "installed", lambda: None)
    monkeypatch.setattr(advice, "ADVICE", dict(advice.ADVICE))
    run.begin_cluster(GlobalOptions(), ["-N3", "true"], RunParser)
    refused = BadOption("Invalid number of nodes", subject="number of nodes")
    assert advice.advice(refused, str(refused)) == features.is_missing("cluster")
    with pytest.raises(Failed, match="part 'cluster' is not installed"):
        several_nodes.needed()
