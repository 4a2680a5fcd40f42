"""Which compiled plugins are refused, for what they say about themselves, and what loading one does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from native.host import compiled, lines, run

GOOD = {"NAME": '"x"', "TYPE": '"spank"', "VERSION": "0x160508", "SPANK_VERSION": "1", "HOOK": "1"}
# What a recording of Slurm 22.05.8 shows is as it shows it; the rest is its documented rule of versions.
METADATA: dict[str, tuple[dict[str, str | None], str]] = {
    "all there": ({}, ""),
    "another bug-fix release": ({"VERSION": "0x160501"}, ""),
    "the newest release": ({"VERSION": "0x1a0502"}, ""),
    "a release to come": ({"VERSION": "0x1a0b00"}, "built for Slurm 26.11.0; spank_versions has 22.05-26.05"),
    "an older release": ({"VERSION": "0x150808"}, "built for Slurm 21.08.8; spank_versions has 22.05-26.05"),
    "no name": ({"NAME": None}, "without the symbol plugin_name"),
    "no type": ({"TYPE": None}, "without the symbol plugin_type"),
    "no version": ({"VERSION": None}, "without the symbol plugin_version"),
    "nothing": ({"NAME": None, "TYPE": None, "VERSION": None}, "plugin_name, plugin_type, plugin_version"),
    "no spank version": ({"SPANK_VERSION": None}, ""),
    "another type": ({"TYPE": '"task/x"'}, ""),
    "another type of another bug-fix release": (
        {"TYPE": '"task/x"', "VERSION": "0x160501"},
        "of the type 'task/x' and built for version 22.05.1; this is 22.05.8",
    ),
    "no hook": ({"HOOK": None}, "spank plugin without any slurm_spank function"),
}


@pytest.mark.parametrize("case", METADATA)
def test_plugin_is_refused_for_what_slurm_refuses_it_for(case: str, tmp_path: Path) -> None:
    changes, refusal = METADATA[case]
    words = [f"-D{name}={value}" for name, value in (GOOD | changes).items() if value is not None]
    plugin = compiled(tmp_path, "metadata", *words)
    loaded = lines(run(plugin))[0]
    if refusal:
        assert loaded.startswith(f"= load -1 plugstack.conf:1: required plugin {plugin}: ")
        assert loaded.endswith(refusal)
    else:
        assert loaded == "= load 0 "


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("ESPANK_NODE_FAILURE", "returned -1; the plugin calls it a failure of the node"),
        ("ESPANK_JOB_FAILURE", "returned -1; the plugin calls it a failure of the job"),
        ("7", "returned -1; the plugin calls it failure 7"),
        ("0", "returned -1"),
    ],
)
def test_failure_of_init_is_what_the_plugin_calls_it_when_it_fails(mode: str, said: str, tmp_path: Path) -> None:
    words = [f"-D{name}={value}" for name, value in (GOOD | {"FAILURE_MODE": mode}).items()]
    printed = lines(run(compiled(tmp_path, "metadata", *words), "slurm_spank_init"))
    assert printed[-1].endswith(said)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read: No such file or directory"), (b"", "file too short"), (b"x" * 4096, "invalid ELF header")],
)
def test_file_that_is_no_library_is_refused_in_dlopens_words(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    if content is not None:
        path.write_bytes(content)
    assert lines(run(str(path)))[0] == f"= load -1 plugstack.conf:1: required plugin {path}: {words}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks whom a file belongs to")
def test_file_that_others_could_change_is_not_opened(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "state")
    os.chmod(plugin, 0o777)
    printed = lines(run(plugin))
    assert printed == [
        f"= load -1 plugstack.conf:1: required plugin {plugin}: not trusted: {plugin} is writable by others than its "
        "owner (mode 0777); chmod go-w it"
    ]


def test_constructor_init_and_fini_run_and_arguments_stay(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "state")
    printed = lines(run(plugin, "slurm_spank_init", "slurm_spank_exit", "fini", argv=["key=value"]))
    assert printed == [
        "constructed",
        "init",
        "= load 0 ",
        "calls 1 value value",
        "= slurm_spank_init 0 ",
        "calls 1 value value argument key",
        "= slurm_spank_exit 0 ",
        "fini",
        "= fini 5 returned 5",
    ]


def test_file_that_is_listed_twice_runs_twice_and_has_one_state(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "state")
    printed = lines(run([plugin, plugin], "slurm_spank_init"))
    assert printed == [
        "constructed",
        "init",
        "init",
        "= load 0 ",
        "calls 1 value none",
        "calls 2 value none",
        "= slurm_spank_init 0 ",
    ]


def test_two_plugins_of_one_name_have_a_state_each(tmp_path: Path) -> None:
    plugins = [compiled(tmp_path, "state", name=name) for name in ("one", "two")]
    printed = lines(run(plugins, "slurm_spank_init"))
    assert printed[-3:] == ["calls 1 value none", "calls 1 value none", "= slurm_spank_init 0 "]


def test_what_a_hook_prints_is_not_doubled_by_a_fork(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "state")
    result = run(plugin, "slurm_spank_init", "fork", "slurm_spank_exit")
    assert result.stdout.count("calls 1 value none\n") == 1
    assert result.stdout.count("constructed") == 1
