"""A hook in C that does not come back, or dies: the process goes on, or ends at once and says where."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from native.host import compiled, lines, run
from nodectl.spank import S_CTX_ALLOCATOR, S_CTX_JOB_SCRIPT, S_CTX_LOCAL, S_CTX_REMOTE, S_CTX_SLURMD

TIMEOUT = 1  # second: a machine that stalls takes a part of it, also of a blameless hook's


@pytest.mark.parametrize("where", ["sleep", "loop", "call"])
@pytest.mark.parametrize("context", [S_CTX_REMOTE, S_CTX_LOCAL])
def test_hook_that_overruns_is_left_and_the_next_one_runs(where: str, context: int, tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "slow", "-pthread")
    printed = lines(run(plugin, "slurm_spank_init", "slurm_spank_exit", argv=[where], context=context, timeout=TIMEOUT))
    assert printed[1:] == [
        "= slurm_spank_init -1 plugin slow: slurm_spank_init: took longer than 1 s",
        "exit hook",
        "= slurm_spank_exit 0 ",
    ]


def test_process_whose_allocator_stayed_locked_is_ended(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "slow", "-pthread")
    result = run(plugin, "slurm_spank_init", "slurm_spank_exit", argv=["malloc"], context=S_CTX_LOCAL, timeout=TIMEOUT)
    if result.returncode == 0:  # the clock struck between two allocations
        assert "took longer than 1 s" in result.stdout
    else:
        assert result.returncode == 1
        assert result.stderr == (
            "nodectl: error: plugin slow: slurm_spank_init: ran over its time and could not be interrupted\n"
        )


def test_clock_of_a_hook_does_not_reach_the_program_that_it_executes(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "exec")
    result = run(plugin, "slurm_spank_task_init@0", timeout=TIMEOUT, program=["/bin/sh", "-c", "sleep 2; env"])
    assert (result.returncode, result.stderr) == (0, "")
    variables = set(result.stdout.splitlines()) - {"= load 0 "}
    assert {name for name in variables if not name.startswith(("PWD=", "SHLVL=", "_=", "OLDPWD="))} == {
        "COLOUR=green",
        "EMPTY=",
        "SET_BY=plugin",
    }


DEATHS = {
    "null": signal.SIGSEGV,
    "stack": signal.SIGSEGV,
    "abort": signal.SIGABRT,
    "raise": signal.SIGFPE,
    "log": signal.SIGSEGV,
}
EXITS = {"exit": "exit", "_exit": "_exit", "_Exit": "_exit", "quick_exit": "quick_exit", "errx": "exit"}


def _ends(result: subprocess.CompletedProcess[str]) -> list[str]:
    """What came of the loading and of each hook."""
    return [line for line in result.stdout.splitlines() if line.startswith("=")]


@pytest.mark.parametrize("context", [S_CTX_SLURMD, S_CTX_JOB_SCRIPT])
@pytest.mark.parametrize("how", DEATHS)
def test_death_in_a_hook_is_told_and_stays_what_it_is(how: str, context: int, tmp_path: Path) -> None:
    result = run(compiled(tmp_path, "crash"), "slurm_spank_init", argv=[how], context=context)
    assert result.returncode == -DEATHS[how]
    assert result.stderr == f"nodectl: error: plugin crash: slurm_spank_init: died by {DEATHS[how].name}\n"


@pytest.mark.parametrize("context", [S_CTX_LOCAL, S_CTX_ALLOCATOR])
@pytest.mark.parametrize("how", DEATHS)
def test_death_in_a_hook_of_the_command_ends_the_hook_alone(how: str, context: int, tmp_path: Path) -> None:
    """Each time anew: the handler of a signal serves once."""
    result = run(compiled(tmp_path, "crash"), *["slurm_spank_init"] * 2, argv=[how], context=context)
    ended = f"= slurm_spank_init -1 plugin crash: slurm_spank_init: RuntimeError: died by {DEATHS[how].name}"
    assert _ends(result) == ["= load 0 ", *[ended] * 2], result.stderr


@pytest.mark.parametrize("context", [S_CTX_LOCAL, S_CTX_ALLOCATOR])
@pytest.mark.parametrize("how", EXITS)
def test_exit_in_a_hook_of_the_command_ends_the_hook_alone(how: str, context: int, tmp_path: Path) -> None:
    result = run(compiled(tmp_path, "crash"), *["slurm_spank_init"] * 2, argv=[how], context=context)
    ended = f"= slurm_spank_init -1 plugin crash: slurm_spank_init: RuntimeError: called {EXITS[how]}(0)"
    assert _ends(result) == ["= load 0 ", *[ended] * 2], result.stderr


@pytest.mark.parametrize("how", EXITS)
def test_exit_elsewhere_ends_the_process(how: str, tmp_path: Path) -> None:
    result = run(compiled(tmp_path, "crash"), "slurm_spank_init", argv=[how], context=S_CTX_JOB_SCRIPT)
    assert (result.returncode, _ends(result)) == (0, ["= load 0 "])


def test_death_in_the_stepd_is_left_to_its_board(tmp_path: Path) -> None:
    result = run(compiled(tmp_path, "crash"), "slurm_spank_init", argv=["null"])
    assert (result.returncode, result.stderr) == (-signal.SIGSEGV, "")


@pytest.mark.parametrize("how", ["child", "exiting child"])
def test_end_of_a_plugins_child_is_not_the_hooks(how: str, tmp_path: Path) -> None:
    result = run(compiled(tmp_path, "crash"), "slurm_spank_init", argv=[how], context=S_CTX_LOCAL)
    assert lines(result)[-1] == "= slurm_spank_init 0 "


@pytest.mark.parametrize("context", [S_CTX_LOCAL, S_CTX_REMOTE])
def test_signal_handler_that_a_plugin_sets_stays(context: int, tmp_path: Path) -> None:
    setting = compiled(tmp_path, "crash")
    result = run(setting, "slurm_spank_init", "slurm_spank_exit", argv=["handler"], context=context)
    assert lines(result)[-1] == "= slurm_spank_exit 0 "
