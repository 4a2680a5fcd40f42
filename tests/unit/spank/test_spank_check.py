"""`nodectl spank check` and `list`: what is told of plugins that nobody runs; the compiled ones are compiled here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import nodectl
from nodectl.cli import main
from nodectl.spank.inspection import slurm_releases
from nodectl.spank.inspection.findings import Inspection
from nodectl.spank.inspection.plugin import inspect

HEADERS = Path(str(nodectl.__file__)).parent / "include"
HOOK = "int slurm_spank_{}(spank_t sp, int ac, char **av) {{ return 0; }}\n"
GOOD = "#include <slurm/spank.h>\nSPANK_PLUGIN(good, 1);\n" + HOOK.format("init")
HEAD = 'plugin_type = "spank"\nplugin_name = "good"\nplugin_version = (22, 5, 8)\n'


def compiled(directory: Path, source: str, *flags: str, name: str = "plugin") -> str:
    """A shared object made of a C text."""
    path = directory / f"{name}.c"
    path.write_text(source)
    target = directory / f"{name}.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-I{HEADERS}", "-o", str(target), str(path), *flags],
        check=True,
        capture_output=True,
    )
    return str(target)


def written(directory: Path, source: str, name: str = "plugin") -> str:
    path = directory / f"{name}.py"
    path.write_text(source)
    return str(path)


def has(found: Inspection, words: str) -> bool:
    """Whether one of the errors has these words."""
    return any(words in error for error in found.errors)


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """What `nodectl spank` with these words returns and prints."""
    status = main.main(["spank", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_good_compiled_plugin_has_no_findings(tmp_path: Path) -> None:
    found = inspect(compiled(tmp_path, GOOD))
    assert (found.kind, found.name, found.type, found.version) == ("native", "good", "spank", (22, 5, 8))
    assert (found.hooks, found.findings, found.bound) == (["slurm_spank_init"], [], "lazily")


def test_a_misspelt_hook_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    found = inspect(compiled(tmp_path, GOOD + HOOK.format("task_int")))
    assert has(found, "slurm_spank_task_int is no hook and is never called; nearest is slurm_spank_task_init")
    without_prefix = GOOD + "int slurm_spnk_task_exit(spank_t sp, int ac, char **av) { return 0; }\n"
    assert has(inspect(compiled(tmp_path, without_prefix)), "misspelt slurm_spank_task_exit")


def test_a_hook_that_does_not_leave_the_object_is_an_error(tmp_path: Path) -> None:
    hidden = GOOD + '__attribute__((visibility("hidden"))) ' + HOOK.format("exit")
    assert has(inspect(compiled(tmp_path, hidden)), "slurm_spank_exit is static or hidden")


def test_functions_of_the_host_are_told_by_provider(tmp_path: Path) -> None:
    source = GOOD + 'int slurm_spank_exit(spank_t sp, int ac, char **av) { slurm_info("x"); return getpid(); }\n'
    found = inspect(compiled(tmp_path, "#include <unistd.h>\n" + source))
    assert (found.needs["slurm_info"], found.needs["getpid"]) == ("nodectl", "libc.so.6")
    assert found.findings == []


@pytest.mark.parametrize(("flag", "when"), [("-Wl,-z,lazy", "the hook that calls it"), ("-Wl,-z,now", "opening it")])
def test_a_function_that_nobody_provides_is_told_with_the_moment_of_failure(
    tmp_path: Path, flag: str, when: str
) -> None:
    source = "int nobody_has_this(void);\n" + GOOD.replace("return 0", "return nobody_has_this()")
    found = inspect(compiled(tmp_path, source, flag))
    assert has(found, f"needs nobody_has_this, which no library provides: {when} fails")
    assert found.bound == ("now" if "now" in flag else "lazily")


def test_a_weak_reference_is_nobodys_error(tmp_path: Path) -> None:
    source = "__attribute__((weak)) int perhaps(void);\n" + GOOD.replace("return 0", "return perhaps ? perhaps() : 0")
    assert inspect(compiled(tmp_path, source)).errors == []


def test_a_missing_library_is_an_error_and_one_beside_the_plugin_is_found(tmp_path: Path) -> None:
    library = compiled(tmp_path, "int of_library(void) { return 0; }\n", "-Wl,-soname,libof.so.1", name="libof")
    os.rename(library, tmp_path / "libof.so.1")
    source = "int of_library(void);\n" + GOOD.replace("return 0", "return of_library()")
    flags = (str(tmp_path / "libof.so.1"), "-Wl,-rpath,$ORIGIN")
    found = inspect(compiled(tmp_path, source, *flags))
    assert found.libraries["libof.so.1"] == str(tmp_path / "libof.so.1")
    assert (found.needs["of_library"], found.errors) == ("libof.so.1", [])
    (tmp_path / "libof.so.1").unlink()
    assert has(inspect(str(tmp_path / "plugin.so")), "linked with libof.so.1, which is not here")


def test_a_plugin_without_its_symbols_or_hooks_is_an_error(tmp_path: Path) -> None:
    found = inspect(compiled(tmp_path, "int nothing;\n"))
    assert has(found, "plugin_name, plugin_type, plugin_version missing")
    assert has(found, "no slurm_spank_* function")


def test_the_table_of_options_is_read_from_the_file(tmp_path: Path) -> None:
    rows = '{"first", "[x]", "The first.", 2, 7, 0}, {"second", 0, "The second.", 0, 0, 0}'
    table = f"#include <stddef.h>\nstruct spank_option spank_options[] = {{{rows}, SPANK_OPTIONS_TABLE_END}};\n"
    found = inspect(compiled(tmp_path, GOOD + table))
    assert [(o.name, o.arginfo, o.usage, o.has_arg) for o in found.options] == [
        ("first", "[x]", "The first.", 2),
        ("second", "", "The second.", 0),
    ]
    endless = GOOD + f"struct spank_option spank_options[] = {{{rows}}};\n"
    assert has(inspect(compiled(tmp_path, endless)), "does not end with a row of zeros")


def test_what_is_no_shared_object_is_an_error_and_nothing_breaks(tmp_path: Path) -> None:
    whole = Path(compiled(tmp_path, GOOD)).read_bytes()
    for place, content in enumerate((b"", b"#!/bin/sh\n", whole[:200], whole[: len(whole) // 2])):
        path = tmp_path / f"broken{place}.so"
        path.write_bytes(content)
        assert inspect(str(path)).errors


def test_python_findings_name_their_lines(tmp_path: Path) -> None:
    source = HEAD + (
        "from nodectl.spank import SpankOption, no_such_call\n"
        "def slurm_spank_init(sp): return 0\n"
        "def slurm_spank_tsk_init(sp, ac, argv): return 0\n"
        "def slrm_spank_exit(sp, ac, argv): return 0\n"
        'spank_options = [SpankOption("mine", "X", "Mine.", 1, 0, None)]\n'
        'def register(): SpankOption("later", None, "Later.", 0, 0, None)\n'
    )
    path = written(tmp_path, source)
    found = inspect(path)
    assert f"{path}:4: needs no_such_call, which nodectl.spank does not provide" in found.errors
    assert f"{path}:5: slurm_spank_init takes 1 parameter(s); it is called with 3" in found.errors
    assert f"{path}:6: slurm_spank_tsk_init is unknown; nearest is slurm_spank_task_init" in found.errors
    assert f"{path}:7: slrm_spank_exit looks like a misspelt slurm_spank_exit" in found.errors
    assert [(option.name, option.static) for option in found.options] == [("mine", True), ("later", False)]


def test_nothing_of_a_plugin_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    written(tmp_path, f"{HEAD}open({str(mark)!r}, 'w')\ndef slurm_spank_init(sp, ac, argv): return 0\n")
    constructor = f'#include <fcntl.h>\n__attribute__((constructor)) static void c(void) {{ creat("{mark}", 0600); }}\n'
    compiled(tmp_path, GOOD + constructor)
    for name in ("plugin.py", "plugin.so"):
        assert inspect(str(tmp_path / name)).errors == []
    assert not mark.exists()


def test_a_release_of_slurm_is_judged_by_what_it_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = GOOD.replace("return 0", "return spank_prepend_task_argv(sp, 0, 0) + slurm_job_step_create_allocation()")
    path = compiled(tmp_path, "int slurm_job_step_create_allocation(void);\n" + source)
    answers = {
        release: json.loads(command(capsys, "check", "--json", "--slurm", release, path)[1])["plugins"][0]
        for release in ("22.05", "23.11")
    }
    refused = "spank_prepend_task_argv, which Slurm 22.05 does not provide"
    assert any(refused in finding["text"] for finding in answers["22.05"]["findings"])
    assert not any("which Slurm 23.11 does not" in finding["text"] for finding in answers["23.11"]["findings"])
    functions: dict[str, Any] = answers["23.11"]["slurm"]["functions"]
    assert (functions["spank_prepend_task_argv"], functions["slurm_job_step_create_allocation"]) == (True, None)
    assert any("compiled again for Slurm 23.11" in finding["text"] for finding in answers["23.11"]["findings"])


def test_the_exit_status_tells_findings_from_unreadable_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = compiled(tmp_path, GOOD), compiled(tmp_path, "int nothing;\n", name="bad")
    assert command(capsys, "check", good)[0] == 0
    assert command(capsys, "check", good, bad)[0] == 1
    status, _, said = command(capsys, "check", good, str(tmp_path / "missing.so"))
    assert (status, "missing.so: cannot be read: No such file" in said) == (2, True)


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A configuration with a stack of two plugins, one of them missing, and a line that makes no sense."""
    plugin = written(
        tmp_path,
        HEAD
        + "from nodectl.spank import SpankOption\n"
        + "def slurm_spank_init(sp, ac, argv): return 0\n"
        + "def slurm_spank_task_exit(sp, ac, argv): return 0\n"
        + 'spank_options = [SpankOption("mine", "X", "Mine.", 1, 0, None)]\n',
        name="stacked",
    )
    (tmp_path / "plugstack.conf").write_text(f"required {plugin} a=1 b\noptional missing\nnonsense\n")
    config = tmp_path / "nodectl.toml"
    config.write_text(f'plugstack_config = "{tmp_path}/plugstack.conf"\nplugin_dir = ["{tmp_path}"]\n')
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    return config


def test_clashes_with_the_configured_stack_are_warnings(stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = 'struct spank_option spank_options[] = {{"mine", 0, "M.", 0, 0, 0}, {"label", 0, "L.", 0, 0, 0}, {0}};\n'
    path = compiled(stack.parent, GOOD + table)
    main.main(["--config", str(stack), "spank", "check", path])
    said = capsys.readouterr().out
    assert "is called 'good' too" in said
    assert "option --mine is offered by" in said
    assert "option --label is an option of `nodectl run` itself" in said


def test_the_list_shows_each_context_as_it_would_load(stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--config", str(stack), "spank", "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    contexts = document["contexts"]
    assert list(contexts) == ["slurmd", "allocator", "local", "job_script", "remote"]
    first = {name: rows[0] for name, rows in contexts.items()}
    assert {name: row["hooks"] for name, row in first.items()} == {
        "slurmd": ["slurm_spank_init"],
        "allocator": ["slurm_spank_init"],
        "local": ["slurm_spank_init"],
        "job_script": [],
        "remote": ["slurm_spank_init", "slurm_spank_task_exit"],
    }
    assert (first["allocator"]["options"], first["local"]["options"]) == ([], ["mine"])
    row = first["local"]
    assert (row["place"], row["required"], row["argv"], row["name"]) == (1, True, ["a=1", "b"], "good")
    assert row["origin"].endswith("plugstack.conf:1")
    assert contexts["remote"][1]["problems"] == ["missing: no such file in plugin_dir"]
    assert "plugstack.conf:3" in document["warnings"][0]


def test_a_required_plugin_that_cannot_be_used_is_the_lists_exit_status(
    stack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = stack.parent / "other.conf"
    other.write_text("required missing\n")
    other.chmod(0o644)
    status = main.main(["--config", str(stack), "spank", "list", "--context", "remote", "--plugstack", str(other)])
    said = capsys.readouterr().out
    assert (status, "problem: missing: no such file" in said, "local:" in said) == (1, True, False)


def test_releases_are_spelt_as_slurm_does() -> None:
    assert (slurm_releases.unpack(0x160508), slurm_releases.spell((22, 5, 8))) == ((22, 5, 8), "22.05.8")
    assert slurm_releases.has_function("22.05", "spank_get_item")
    assert slurm_releases.has_function("22.05", "spank_no_such_call") is False


CALLS = """
from nodectl.spank import *
def slurm_spank_init(sp, ac, argv):
    slurm_error("%s is wrong", argv)
    spank_get_item(sp)
    spank_setenv(sp, *argv)
    print("hello")
    return spank_get_itme(sp, S_JOB_IDD)
"""


def test_calls_that_the_interface_does_not_take_are_found_in_python(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + CALLS)
    found = inspect(path)
    assert sorted(found.errors) == [
        f"{path}:11: needs S_JOB_IDD, which nodectl.spank does not provide",
        f"{path}:11: needs spank_get_itme, which nodectl.spank does not provide",
        f"{path}:7: slurm_error: too many positional arguments",
        f"{path}:8: spank_get_item: missing a required argument: 'item'",
    ]
    assert [finding.text.partition(": ")[0] for finding in found.findings if finding.level == "warning"] == [
        f"{path}:10"
    ]


def test_what_a_compiled_plugin_prints_is_warned_of(tmp_path: Path) -> None:
    source = GOOD.replace("#include", "#include <stdio.h>\n#include", 1).replace("return 0", 'return puts("x")')
    found = inspect(compiled(tmp_path, source))
    assert [finding.text.split(": ")[1] for finding in found.findings] == ["puts"]


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone distrusts files of others")
def test_root_looks_at_the_whole_of_another_users_plugin(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "def slurm_spank_init(sp, ac, argv):\n    return 0\n")
    os.chown(path, 65534, 65534)
    assert (inspect(path).hooks, inspect(path).findings) == (["slurm_spank_init"], [])


def test_what_is_no_file_is_told_and_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    status, _, err = command(capsys, "check", str(tmp_path / "pipe.py"))
    assert (status, err) == (2, f"nodectl: error: {tmp_path}/pipe.py: cannot be read: no regular file\n")


def test_a_built_in_plugin_is_checked_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = command(capsys, "check", "renice")
    assert (status, "--renice=" in out, out.splitlines()[-1]) == (0, True, "  no errors, no warnings")
