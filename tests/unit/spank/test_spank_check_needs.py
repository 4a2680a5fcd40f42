"""`nodectl spank check` of compiled plugins: releases of Slurm, and what is needed of whom."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from needs import lacks
from nodectl.cli import main
from nodectl.spank import versions
from nodectl.spank.inspection.plugin import inspect
from unit.spank.test_spank_check import GOOD, HOOK, command, compiled, has


def of_version(number: int, body: str = "return 0;") -> str:
    """A plugin that says it was compiled for this version."""
    return (
        'const char plugin_name[] = "v";\nconst char plugin_type[] = "spank";\n'
        f"const unsigned int plugin_version = {number:#x};\nconst unsigned int spank_plugin_version = 1;\n"
        f"int slurm_load_job(void *, unsigned, int);\nint slurm_spank_init(void *sp, int ac, char **av) {{ {body} }}\n"
    )


@pytest.mark.parametrize("number", [0x150808, 0x1A0600])
def test_a_release_outside_of_the_key_is_an_error(tmp_path: Path, number: int) -> None:
    found = inspect(compiled(tmp_path, of_version(number)))
    assert has(found, f"compiled for Slurm {number >> 16}.{number >> 8 & 255:02d}; spank_versions has 22.05-26.05")


@pytest.mark.parametrize("number", [0x160563, 0x180B03, 0x1A0500])
def test_releases_that_are_loaded_are_no_finding(tmp_path: Path, number: int) -> None:
    assert inspect(compiled(tmp_path, of_version(number))).findings == []


def test_what_is_new_in_a_release_is_told_and_the_key_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = compiled(tmp_path, of_version(0x180B03))
    status, said, _ = command(capsys, "check", path)
    assert (status, "24.11.3: for nodectl and Slurm 24.11" in said) == (0, True)
    assert "since 22.05: spank_prepend_task_argv (23.11)" in said
    assert "slurm_spank_init_failure_mode" not in said
    config = tmp_path / "nodectl.toml"
    config.write_text('spank_versions = "22.05"\n')
    config.chmod(0o644)
    try:
        assert main.main(["--config", str(config), "spank", "check", path]) == 1
    finally:
        versions.accept(versions.DEFAULT)
    assert "compiled for Slurm 24.11; spank_versions has 22.05" in capsys.readouterr().out


def test_a_question_for_a_job_that_will_fail_is_told(tmp_path: Path) -> None:
    asks = "return slurm_load_job(0, 1, 0);"
    for known in (0x160508, 0x180B03, 0x1A0500):
        assert inspect(compiled(tmp_path, of_version(known, asks))).findings == []
    (finding,) = inspect(compiled(tmp_path, of_version(0x170B03, asks))).findings
    assert "slurm_load_job fails (ENOTSUP) in a plugin compiled for Slurm 23.11" in finding.text


def test_functions_that_plugins_of_slurms_own_tree_call_are_there(tmp_path: Path) -> None:
    source = "void debug(const char *, ...); void fatal(const char *, ...); void error(const char *, ...);\n"
    body = 'debug("x"); error("x"); if (ac > 99) fatal("x"); return 0'
    found = inspect(compiled(tmp_path, source + GOOD.replace("return 0", body)))
    assert (found.findings, {found.needs[name] for name in ("debug", "error", "fatal")}) == ([], {"nodectl"})


def test_a_name_of_ours_that_a_library_has_is_the_librarys_if_it_is_a_function(tmp_path: Path) -> None:
    library = "int debug = 1;\nvoid info(const char *text, ...) {}\nvoid debug_is(void) {}\n"
    path = compiled(tmp_path, library, "-Wl,-soname,libown.so", name="libown")
    source = "void debug(const char *, ...); void info(const char *, ...); void debug_is(void);\n"
    body = 'debug("x"); info("x"); debug_is(); return 0'
    found = inspect(compiled(tmp_path, source + GOOD.replace("return 0", body), path, "-Wl,-rpath,$ORIGIN"))
    assert (found.errors, found.needs["debug"], found.needs["info"]) == ([], "nodectl", "libown.so")


def test_a_helper_whose_name_begins_like_a_hooks_is_no_error(tmp_path: Path) -> None:
    found = inspect(compiled(tmp_path, GOOD + "int slurm_spank_helper(int x) { return x; }\n"))
    assert found.errors == []
    assert [finding.text.split(": ")[1] for finding in found.findings] == ["slurm_spank_helper is no hook"]


def test_functions_of_slurms_library_are_not_said_to_be_nobodys(tmp_path: Path) -> None:
    source = "int slurm_list_next(void);\n" + GOOD.replace("return 0", "return slurm_list_next()")
    words = (
        "needs slurm_list_next, which is for Slurm's own library to provide, not nodectl: the hook that calls it fails"
    )
    assert has(inspect(compiled(tmp_path, source)), words)


def test_data_that_nobody_has_fails_when_the_plugin_is_opened(tmp_path: Path) -> None:
    source = "extern int nobodys_number;\n" + GOOD.replace("return 0", "return nobodys_number")
    assert has(inspect(compiled(tmp_path, source)), "needs nobodys_number, which no library provides: opening it fails")


def test_a_library_that_cannot_load_by_itself_is_an_error(tmp_path: Path) -> None:
    library = "extern int nobodys_number;\nint of_library(void) { return nobodys_number; }\n"
    path = compiled(tmp_path, library, "-Wl,-soname,libof.so", name="libof")
    source = "int of_library(void);\n" + GOOD.replace("return 0", "return of_library()")
    found = inspect(compiled(tmp_path, source, path, "-Wl,-rpath,$ORIGIN"))
    assert has(
        found, "is linked with libof.so, which needs nobodys_number, which no library provides: opening it fails"
    )


def test_a_library_that_is_newer_where_the_plugin_was_compiled_is_told(tmp_path: Path) -> None:
    def library(version: str) -> str:
        script = tmp_path / "versions"
        script.write_text(f"{version} {{ global: of_library; }};\n")
        words = ("-Wl,-soname,libof.so", f"-Wl,--version-script={script}")
        return compiled(tmp_path, "int of_library(void) { return 0; }\n", *words, name="libof")

    source = "int of_library(void);\n" + GOOD.replace("return 0", "return of_library()")
    plugin = compiled(tmp_path, source, library("OF_2"), "-Wl,-rpath,$ORIGIN")
    assert inspect(plugin).findings == []
    library("OF_1")
    assert has(inspect(plugin), "is linked with a newer libof.so, one with OF_2: opening it fails")


@pytest.mark.skipif(lacks("objcopy"), reason="no objcopy here")
def test_a_plugin_made_with_go_is_told(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, GOOD)
    subprocess.run(["objcopy", "--add-section", f".go.buildinfo={tmp_path}/plugin.c", plugin], check=True)
    (finding,) = inspect(plugin).findings
    assert (finding.level, "is made with Go, whose runtime starts threads" in finding.text) == ("warning", True)


def test_sruns_own_options_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = 'struct spank_option spank_options[] = {{"bb", 0, "P.", 0, 0, 0}, {0}};\n'
    _, said, _ = command(capsys, "check", compiled(tmp_path, GOOD + table))
    assert "option --bb is an option of srun itself: with Slurm the plugin's is never reached" in said


def test_slurmd_init_is_judged_by_what_is_known_of_the_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = compiled(tmp_path, GOOD + HOOK.format("slurmd_init"))
    assert "slurmd_init is" not in command(capsys, "check", "--slurm", "22.05", path)[1]
    status, said, _ = command(capsys, "check", "--slurm", "26.05", path)
    assert (status, "warning: " in said, "slurm_spank_slurmd_init is in no document of Slurm 26.05" in said) == (
        0, True, True,
    )  # fmt: skip
