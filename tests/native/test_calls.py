"""The functions that compiled plugins call: C types, error codes, and what is in the variables after an error.

The codes are those of a real Slurm's recording, the types those of the interface's documents.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from native.host import STRICT, compiled, lines, run
from needs import need
from nodectl.spank import S_CTX_ALLOCATOR, S_CTX_JOB_SCRIPT, S_CTX_LOCAL, S_CTX_SLURMD, _spank_host
from packages import unpacked

ALL_ONES = 0xFFFFFFFF
VERSIONS = {
    "S_SLURM_VERSION": "0 22.05.8",
    "S_SLURM_VERSION_MAJOR": "0 22",
    "S_SLURM_VERSION_MINOR": "0 05",
    "S_SLURM_VERSION_MICRO": "0 8",
}
OF_STEP = {
    "S_JOB_UID": "0 2001",
    "S_JOB_GID": "0 2002",
    "S_JOB_ID": "0 4000000001",
    "S_JOB_STEPID": "0 3",
    "S_JOB_NNODES": "0 1",
    "S_JOB_NODEID": "0 0",
    "S_JOB_LOCAL_TASK_COUNT": "0 2",
    "S_JOB_TOTAL_TASK_COUNT": "0 2",
    "S_JOB_NCPUS": "0 6",
    "S_JOB_LOCAL_TO_GLOBAL_ID(1)": "0 1",
    "S_JOB_LOCAL_TO_GLOBAL_ID(99999)": f"3007 {ALL_ONES}",
    "S_JOB_GLOBAL_TO_LOCAL_ID(0xfffffffe)": f"3001 {ALL_ONES}",
    "S_STEP_CPUS_PER_TASK": "0 3",
    "S_JOB_ALLOC_MEM": "0 512",
    "S_STEP_ALLOC_MEM": "0 512",
    "S_SLURM_RESTART_COUNT": "0 3",
    "S_JOB_ARRAY_ID": "0 3999999999",
    "S_JOB_ARRAY_TASK_ID": "0 7",
    "S_JOB_ALLOC_CORES": "0 0-3",
    "S_STEP_ALLOC_CORES": "0 0-3",
    "S_JOB_ARGV": "0 2 /bin/true one",
    "S_JOB_ENV": "0 COLOUR=green EMPTY=",
    "S_JOB_SUPPLEMENTARY_GIDS": "0 3 2002 2100 2101",
    **VERSIONS,
}
OUTSIDE_OF_TASKS = {
    "S_TASK_ID": f"3002 {ALL_ONES}",
    "S_TASK_GLOBAL_ID": "3002 untouched",
    "S_TASK_EXIT_STATUS": "3002 untouched",
    "S_TASK_PID": "3002 untouched",
    "S_JOB_PID_TO_GLOBAL_ID(4001)": f"3008 {ALL_ONES}",
    "S_JOB_PID_TO_LOCAL_ID(1)": f"3008 {ALL_ONES}",
}
OF_TASK = {
    "S_TASK_ID": "0 1",
    "S_TASK_GLOBAL_ID": "0 1",
    "S_TASK_PID": "0 4001",
    "S_JOB_PID_TO_GLOBAL_ID(4001)": "0 1",
    "S_JOB_PID_TO_LOCAL_ID(1)": f"3007 {ALL_ONES}",
}
WRONG = {
    "no_item": "3001 untouched",
    "no_handle": "3001 untouched",
    "other_handle": "3001 untouched",
    "no_place": "3001",
    "remote": "1 -1 context 2",
}
REMOTE = {
    "slurm_spank_init": OF_STEP | OUTSIDE_OF_TASKS | WRONG,
    "slurm_spank_task_post_fork@1": OF_STEP | OF_TASK | WRONG | {"S_TASK_EXIT_STATUS": "3002 untouched"},
    "slurm_spank_task_exit@1": OF_STEP | OF_TASK | WRONG | {"S_TASK_EXIT_STATUS": f"0 {23 << 8}"},
}
# The context, and the items that it has besides the versions; what it says of the others.
ELSEWHERE = {
    S_CTX_LOCAL: (
        {"S_JOB_UID", "S_JOB_GID", "S_JOB_ID", "S_JOB_STEPID", "S_JOB_NNODES", "S_JOB_TOTAL_TASK_COUNT", "S_JOB_ARGV"},
        "3006",
    ),
    S_CTX_JOB_SCRIPT: ({"S_JOB_UID", "S_JOB_GID", "S_JOB_ID"}, "3009"),
    S_CTX_SLURMD: (set[str](), "3009"),
}
BOTH_HEADERS = pytest.mark.parametrize("headers", ["ours", pytest.param("Debian's", marks=pytest.mark.packages)])


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("so"), "items")


def with_headers(headers: str, into: Path, source: str, *options: str) -> str:
    if headers == "ours":
        return compiled(into, source, *options)
    return compiled(into, source, *options, include=unpacked().include())


def answers(printed: list[str]) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in printed if not line.startswith("="))


@pytest.mark.parametrize("hook", REMOTE)
@BOTH_HEADERS
def test_items_have_their_types_and_codes_in_the_stepd(headers: str, hook: str, tmp_path: Path) -> None:
    printed = lines(run(with_headers(headers, tmp_path, "items"), hook))
    assert answers(printed) == REMOTE[hook]


@pytest.mark.parametrize("context", ELSEWHERE)
def test_items_have_their_codes_in_other_contexts(context: int, items: str) -> None:
    found = answers(lines(run(items, "slurm_spank_init", context=context)))
    here, code = ELSEWHERE[context]
    assert found.pop("remote") == f"0 -1 context {context}"
    for name in ("no_handle", "other_handle"):
        assert found.pop(name) == "3001 untouched"
    del found["no_place"]
    for name, answer in found.items():
        if name in here:
            assert answer == OF_STEP[name], name
        elif name in VERSIONS:
            assert answer == VERSIONS[name], name
        elif name == "S_JOB_ENV" and context == S_CTX_LOCAL:
            assert answer == "0"
        else:
            assert answer.split()[0] == code, name
            assert answer.split()[-1] in {"untouched", "NULL", "-7", code}, name


def test_before_there_is_a_job_the_command_has_no_items(items: str) -> None:
    found = answers(lines(run(items, "slurm_spank_init", context=S_CTX_LOCAL, job=False)))
    assert found["S_JOB_UID"] == found["S_JOB_TOTAL_TASK_COUNT"] == "3009 untouched"
    assert found["S_TASK_ID"] == "3006 untouched"


@BOTH_HEADERS
def test_environment_functions_have_their_codes_in_the_stepd(headers: str, tmp_path: Path) -> None:
    found = answers(lines(run(with_headers(headers, tmp_path, "environment"), "slurm_spank_init")))
    assert found == {
        "get": "0 green",
        "get_short": "3005 gr",
        "get_exact": "3005 gree",
        "get_size_0": "3005 untouched",
        "get_size_-1": "3001 untouched",
        "get_absent": "3004 untouched",
        "get_absent_size_-1": "3001 untouched",
        "get_no_name": "3001 untouched",
        "get_no_handle": "3001 untouched",
        "get_no_buffer": "3001",
        "set_new": "0",
        "set_again": "3003",
        "set_over": "0",
        "set_no_name": "3001",
        "set_no_value": "3001",
        "set_equals": "3001",
        "set_bytes": "0",
        "get_bytes": "0 \ufffd\ufffd",
        "set_no_handle": "3001",
        "unset": "0",
        "unset_absent": "0",
        "unset_no_name": "3001",
        "control_set": "3010",
        "control_get": "3010 #######",
        "control_unset": "3010",
        "control_get_absent": "3010",
        "prepend": "3002",
    }


@pytest.mark.parametrize("context", [S_CTX_LOCAL, S_CTX_ALLOCATOR])
def test_environment_functions_have_their_codes_in_the_command(context: int, tmp_path: Path) -> None:
    result = run(compiled(tmp_path, "environment"), "slurm_spank_init", context=context)
    found = answers(lines(result))
    of_step = {name: answer for name, answer in found.items() if name.startswith(("get", "set", "unset", "prepend"))}
    for name, answer in of_step.items():
        assert answer.split()[0] == ("3001" if name.endswith("no_handle") else "3006"), name
    assert found["control_set"] == found["control_unset"] == "0"
    assert found["control_get"] == "3005 va"
    assert found["control_get_absent"] == "3004"
    assert "FROM_C yes None" in result.stdout  # what setenv(3) changed is seen by environ() and not by os.environ


def test_array_of_the_environment_follows_what_the_plugin_changes(tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "environment"), "slurm_spank_user_init"))
    assert printed[1:5] == [
        " COLOUR=green EMPTY=",
        " COLOUR=blue EMPTY= LATER=1",
        " EMPTY= LATER=1",
        "202",
    ]


def test_prepended_words_stand_before_the_tasks_arguments(tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "environment"), "slurm_spank_task_init@1"))
    assert printed[1:5] == ["no_words 3001", "no_handle 3001", "words 0", "5 nice -n 4 /bin/true one"]


@BOTH_HEADERS
def test_messages_keep_their_format_and_errno(headers: str, tmp_path: Path) -> None:
    printed = lines(run(with_headers(headers, tmp_path, "messages"), "slurm_spank_init", level=6))
    assert printed[1:] == [
        "nodectl: error: open x: No such file or directory",
        "nodectl: info 1 two",
        "nodectl: verbose",
        "nodectl: debug: debug",
        "nodectl: debug2: debug2",
        "nodectl: debug3: debug3",
        "log: Operation not permitted",
        "nodectl: not UTF-8: \ufffd.",
        "x" * 2999,
        "errno 1",
        "errno 1",
        "Valid only in a hook of a task",
        "1 0 -1",
        "= slurm_spank_init 0 ",
    ]


@BOTH_HEADERS
def test_options_reach_their_callbacks_and_what_was_not_given_is_empty(headers: str, tmp_path: Path) -> None:
    plugin = with_headers(headers, tmp_path, "options")
    given = [["options", "first", "word"], ["options", "second"], ["options", "silent"]]
    printed = lines(run(plugin, "slurm_spank_init", "options", "slurm_spank_user_init", options=given))
    assert printed[1:] == [
        "register 0",
        "no_option 3001",
        "no_name 3001",
        "no_usage 3001",
        "long_name 3005",
        "no_handle 3001",
        "getopt 3009 NULL",
        "= slurm_spank_init 0 ",
        "cb 11 word 1",
        "cb 13  1",
        "register 3001",
        "first 0 word",
        "second 0 ",
        "no_place 3001",
        "silent 0",
        "no_option 3001",
        "no_handle 3001",
        "kept ",
        "= slurm_spank_user_init 0 ",
    ]


def test_argument_of_an_option_stays_where_the_callback_saw_it(tmp_path: Path) -> None:
    given = [["options", "first", "a word to keep"]]
    printed = lines(
        run(compiled(tmp_path, "options"), "slurm_spank_init", "options", "slurm_spank_user_init", options=given)
    )
    assert "kept a word to keep" in printed


def test_failure_of_an_options_callback_is_told(tmp_path: Path) -> None:
    given = [["options", "first", "bad"]]
    printed = lines(run(compiled(tmp_path, "options"), "slurm_spank_init", "options", options=given))
    assert printed[-1].endswith("plugin options: option first: returned -1")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ""),
        ("login", "login "),
        ("n1,n2 n3", "n1 n2 n3 "),
        ("n[1-3]", "n1 n2 n3 "),
        ("n[08-10,2]x,y", "n08x n09x n10x n2x y "),
        ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2 "),
        ("n[0-70000]", None),
        ("n[3-1]", None),
        ("n[1", None),
        ("n1]", None),
        ("n[]", None),
        ("n[a]", None),
        ("n[1,]", None),
        ("n[99999999999999999999]", None),
        ("x" * 300, None),
    ],
)
def test_host_lists_are_taken_apart(text: str, names: str | None, tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "hostlist"), "slurm_spank_init", argv=[text]))
    assert printed[1] == ("no list 1" if names is None else f"{names}.")


def test_host_lists_are_added_to_searched_and_sorted(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "hostlist")
    printed = lines(run(plugin, "slurm_spank_exit", argv=["n[9-11,9],m", "n2,n[9-10]", "n10"]))
    assert printed[1:] == [
        "count 5",
        "pushed 3 1",
        "found 0 none -1",
        "count 6: m n2 n9 n10 n11 n[9-11,9],m",
        "left 0 nothing -1 0",
        "= slurm_spank_exit 0 ",
    ]


def test_ten_thousand_calls_leave_no_memory_behind(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "threads", "-pthread")
    printed = lines(run(plugin, *["slurm_spank_user_init"] * 3, memory=True))
    _, blocks, _, pages = printed[5].split()  # of the third time: what is made once, was
    # One kept at each call would be 10,000; the interpreter's free lists come and go by some hundred.
    assert int(blocks) < 1000
    assert int(pages) < 16


def test_headers_are_plain_c99_and_cplusplus(tmp_path: Path) -> None:
    compiled(tmp_path, "items", "-Wpedantic", "-Wno-pointer-arith", strict=STRICT)
    source = tmp_path / "plugin.cc"
    source.write_text(
        "#include <slurm/spank.h>\n"
        "SPANK_PLUGIN(plus, 1);\n"
        "struct spank_option spank_options[] = {SPANK_OPTIONS_TABLE_END};\n"
        'int slurm_spank_init(spank_t, int, char **) { slurm_spank_log("%s", "from C++"); return 0; }\n'
    )
    include = Path(_spank_host.__file__).parents[1] / "include"
    need("c++")
    command = ["c++", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([*command, "-o", str(tmp_path / "plus.so"), str(source)], check=True)
    os.chmod(tmp_path / "plus.so", 0o755)
    assert lines(run(str(tmp_path / "plus.so"), "slurm_spank_init"))[1] == "from C++"


def test_plugin_finds_nothing_of_its_host_in_a_buffer_that_it_has_not_written_to(tmp_path: Path) -> None:
    """A plugin that forgets the end of a text there would read on: public ones do, and pass it on to the user."""
    printed = lines(run(compiled(tmp_path, "stack"), *["slurm_spank_init"] * 2))
    assert printed[1:] == ["bytes that are not zero: 0", "= slurm_spank_init 0 "] * 2
