"""What a plugin's names are bound to: ours, libc's, a library's, or nobody's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from native.host import compiled, lines, run
from nodectl.spank import S_CTX_LOCAL, _spank_host
from packages import unpacked

NOBODYS = "which nodectl does not provide"


def test_host_stands_in_front_only_where_it_is_preloaded(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "messages")
    assert "= slurm_spank_init 0 " in run(plugin, "slurm_spank_init").stdout
    alone = run(plugin, "slurm_spank_init", preload=False).stdout
    assert f"RuntimeError: calls slurm_error, {NOBODYS}" in alone


def test_preloaded_host_does_no_harm_to_other_programs() -> None:
    environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": _spank_host.__file__}
    result = subprocess.run(["sh", "-c", "true && echo well"], env=environment, capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"well\n", b"")


def test_call_of_a_missing_function_fails_the_hook_and_the_next_one_runs(tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "missing"), "slurm_spank_init", "slurm_spank_exit"))
    assert printed[1:] == [
        "before",
        f"= slurm_spank_init -1 plugin missing: slurm_spank_init: RuntimeError: calls no_such_function, {NOBODYS}",
        "exit hook",
        "= slurm_spank_exit 0 ",
    ]


def test_call_of_a_missing_function_by_a_callback_is_told(tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "missing"), "options", options=[["missing", "call"]]))
    assert f"plugin missing: option call: RuntimeError: calls no_such_function, {NOBODYS}" in printed[-1]


def test_missing_functions_are_listed_before_they_are_called(tmp_path: Path) -> None:
    code = "import sys; from nodectl.spank import _spank_host as host; print(sorted(host.open(sys.argv[1]).missing))"
    plugin = compiled(tmp_path, "missing")
    command = [sys.executable, "-IPc", code, plugin]
    listed = subprocess.run(
        command, env={"LD_PRELOAD": _spank_host.__file__}, capture_output=True, text=True, check=True
    )
    assert listed.stdout == "['no_such_function', 'slurm_conf_lock']\n"


def test_plugin_whose_missing_function_is_bound_at_once_is_refused_by_name(tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "missing", "-Wl,-z,now")))
    assert printed[0].startswith("= load -1 plugstack.conf:1: required plugin ")
    assert printed[0].partition("missing.so: undefined symbol: ")[2] in {"no_such_function", "slurm_conf_lock"}


@pytest.mark.parametrize(
    "options",
    [(), ("-fno-plt", "-DONLY_ERROR"), ("-Wl,-z,now", "-DONLY_ERROR"), ("-Wl,-z,relro,-z,now", "-DONLY_ERROR")],
)
def test_plain_names_are_ours_in_the_plugin_and_libcs_elsewhere(options: tuple[str, ...], tmp_path: Path) -> None:
    library = compiled(tmp_path, "library", name="liblibrary")
    plugin = compiled(tmp_path, "plain_names", *options, library, f"-Wl,-rpath,{tmp_path}")
    result = run(plugin, "slurm_spank_init", argv=["x"], level=4)
    assert result.returncode == 0
    found = [line for line in result.stdout.splitlines() if line.startswith("nodectl: ")]
    both = ["nodectl: info too", "nodectl: debug: debug 5"]
    assert found == ["nodectl: error: ours, 1", *(both if not options else [])]
    assert result.stderr.endswith("libc's, debug 1: No such file or directory\n")
    assert "init of the library" not in result.stderr


def test_plain_name_that_a_library_of_the_plugin_has_is_the_librarys(tmp_path: Path) -> None:
    source = tmp_path / "own.c"
    source.write_text('#include <stdio.h>\nvoid info(const char *text, ...) { printf("its own: %s\\n", text); }\n')
    library = tmp_path / "libown.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    other = compiled(tmp_path, "library", name="liblibrary")
    plugin = compiled(tmp_path, "plain_names", other, str(library), f"-Wl,-rpath,{tmp_path}")
    printed = run(plugin, "slurm_spank_init", level=4).stdout.splitlines()
    assert "its own: info %s" in printed
    assert "nodectl: debug: debug 5" in printed


def test_plugin_that_brings_libslurm_has_its_words_and_not_its_search_for_a_slurm_conf(tmp_path: Path) -> None:
    source = tmp_path / "real.c"
    source.write_text(
        "#include <stdlib.h>\nvoid slurm_init(const char *conf) { exit(1); }\n"
        'char *slurm_strerror(int number) { return "its own words"; }\n'
    )
    library = tmp_path / "libslurm.so.38"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libslurm.so.38", "-o", library, source], check=True)
    plugin = compiled(tmp_path, "jobs", str(library), f"-Wl,-rpath,{tmp_path}")
    printed = lines(run(plugin, "slurm_spank_init", argv=["1"], job=False))
    assert "its own words" in printed


def test_fatal_ends_the_hook_and_not_the_process(tmp_path: Path) -> None:
    library = compiled(tmp_path, "library", name="liblibrary")
    plugin = compiled(tmp_path, "plain_names", library, f"-Wl,-rpath,{tmp_path}")
    printed = lines(run(plugin, "slurm_spank_exit"))
    assert "RuntimeError: called fatal: cannot go on, 42" in printed[1]


@pytest.mark.parametrize("release", [36, 38, 43, 45])
def test_plugin_linked_with_a_libslurm_that_is_not_installed_runs(release: int, tmp_path: Path) -> None:
    name = f"libslurm.so.{release}"
    (tmp_path / "empty.c").write_text("int nothing_at_all;\n")
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(tmp_path / name), str(tmp_path / "empty.c")]
    subprocess.run(command, check=True)
    plugin = compiled(tmp_path, "messages", "-Wl,--no-as-needed", str(tmp_path / name))
    (tmp_path / name).unlink()
    result = run(plugin, "slurm_spank_init", level=1)
    assert (result.returncode, result.stderr) == (0, "")
    assert "nodectl: error: open x: No such file or directory" in result.stdout


def test_plugin_that_needs_another_missing_library_is_refused_by_its_name(tmp_path: Path) -> None:
    library = compiled(tmp_path, "library", name="libgone")
    plugin = compiled(tmp_path, "plain_names", library)
    Path(library).unlink()
    printed = lines(run(plugin))
    assert "libgone.so: cannot open shared object file" in printed[0]


@pytest.mark.packages
def test_plugin_linked_with_an_installed_libslurm_calls_ours_and_its_host_lists(tmp_path: Path) -> None:
    libslurm = unpacked().libslurm()
    where = f"-Wl,-rpath,{libslurm.parent}"
    plugin = compiled(tmp_path, "messages", "-Wl,--no-as-needed", str(libslurm), where)
    result = run(plugin, "slurm_spank_init", level=1)
    assert (result.returncode, result.stderr) == (0, "")
    assert "nodectl: error: open x: No such file or directory" in result.stdout
    source = compiled(tmp_path, "hostlist", "-DRANGED", "-Wl,--no-as-needed", str(libslurm), where)
    counted = lines(run(source, "slurm_spank_init", argv=["n[1-3]"]))
    assert counted[1:3] == ["ranged n[1-3]", "n1 n2 n3 ."]
    asking = compiled(tmp_path, "jobs", "-Wl,--no-as-needed", str(libslurm), where)
    assert "records 1 recent 1" in lines(run(asking, "slurm_spank_init"))


def test_thread_of_a_plugin_may_write_messages_while_its_hook_waits(tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "threads", "-pthread"), "slurm_spank_init", context=S_CTX_LOCAL))
    assert printed[1:] == ["nodectl: from a thread", "= slurm_spank_init 0 "]
