"""`nodectl spank try`: a plugin in every context of this machine, what its failures cost, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rootful.hook_faults import HOOK_SECONDS, LATE
from rootful.node import NOBODY, OTHER, wait_until
from rootful.spank_try import HEAD, HOOKS, NATIVE, PYTHON, SpankTry, assert_named


@pytest.fixture
def spank_try() -> Iterator[SpankTry]:
    """Below /run, where only root may write: root loads plugins from there."""
    directory = Path(tempfile.mkdtemp(prefix="nodectl-test-", dir="/run"))
    directory.chmod(0o755)
    yield SpankTry(directory)
    shutil.rmtree(directory)


SLEEP = str(10_000_000 + os.getpid())  # seconds of one that is nobody else's
REMOTE = [
    "init", "option", "init_post_opt", "user_init", "task_init_privileged[0]", "task_post_fork[0]", "task_init[0]",
    "task_exit[0]", "exit",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["python", "native"])
def test_every_context_is_tried_and_told(spank_try: SpankTry, kind: str) -> None:
    plugin = spank_try.plugin(PYTHON) if kind == "python" else spank_try.native(NATIVE)
    result = spank_try.run(plugin, "a=1", "--probe=7", "--user", NOBODY.pw_name, "--", "echo", "hello")
    assert (result.status, result.document["failures"]) == (0, []), result.out
    assert result.hooks("slurmd") == ["init", "slurmd_exit"]
    assert result.hooks("allocator") == ["init", "init_post_opt", "exit"]
    assert result.hooks("local") == ["init", "option", "init_post_opt", "local_user_init", "exit"]
    assert result.hooks("job_script_prolog") == ["job_prolog"]
    assert result.hooks("job_script_epilog") == ["job_epilog"]
    remote = result.hooks("remote")
    assert sorted(remote) == sorted(REMOTE)
    assert [hook for hook in remote if "privileged" not in hook] == [hook for hook in REMOTE if "priv" not in hook]
    assert result.event("local", "option")["arguments"] == [5, "7", 0]
    who = {hook: (result.event("remote", hook)["uid"], result.event("remote", hook)["euid"]) for hook in
           ("init", "user_init", "task_init_privileged", "task_init")}  # fmt: skip
    nobody = NOBODY.pw_uid
    assert who == {
        "init": (0, 0),
        "user_init": (0, nobody),
        "task_init_privileged": (0, 0),
        "task_init": (nobody, nobody),
    }
    assert result.event("local", "init")["uid"] == nobody
    assert result.document["processes"]["local"]["stdout"] == "hello\n"
    assert result.document["step"]["state"] == "COMPLETED"


def test_options_of_the_run_are_passed_on(spank_try: SpankTry) -> None:
    plugin = spank_try.plugin(
        HEAD
        + """
def slurm_spank_task_init(sp, ac, argv):
    spank_setenv(sp, "MEMORY", str(spank_get_item(sp, S_JOB_ALLOC_MEM)))
    return 0
"""
    )
    result = spank_try.run(
        plugin, "a=1", "--mem=64M", "--job-name=try", "--", "sh", "-c", "echo $MEMORY $SLURM_JOB_NAME"
    )
    assert (result.status, result.document["failures"]) == (0, []), result.out
    assert result.document["processes"]["local"]["stdout"] == "64 try\n"
    assert (result.document["run_options"], result.document["arguments"]) == (
        ["--mem=64M", "--job-name=try"],
        ["a=1"],
    )
    refused = spank_try.run(plugin, "--mem", "64M", json=False)
    assert (refused.status, "--mem needs its argument behind a '='" in refused.err) == (2, True)
    refused = spank_try.run(plugin, "--uid=0", json=False)
    assert (refused.status, "--uid: try's own --user says whose the step is" in refused.err) == (2, True)


def test_calls_messages_and_changes_of_the_environment_are_told(spank_try: SpankTry) -> None:
    plugin = spank_try.plugin(
        HEAD
        + """
def slurm_spank_task_init(sp, ac, argv):
    slurm_error("one " "message")
    spank_setenv(sp, "MINE", spank_getenv(sp, "GIVEN"))
    spank_get_item(sp, S_JOB_ID)
    try:
        spank_getenv(sp, "ABSENT")
    except SpankError:
        pass
    return 0
def slurm_spank_init_post_opt(sp, ac, argv):
    if not spank_remote(sp):
        spank_job_control_setenv(sp, "TOLD", "yes")
    return 0
def slurm_spank_job_prolog(sp, ac, argv):
    slurm_info(os.environ.get("SPANK_TOLD", "no"))
    return 0
"""
    )
    result = spank_try.run(plugin, "--", "printenv", "MINE", env={"GIVEN": "value"})
    event = result.event("remote", "task_init")
    assert (event["stdout"], event["children"]) == ("", [])
    assert [call["text"] for call in event["calls"]] == [
        "spank_getenv(GIVEN) = value",
        "spank_setenv(MINE, value) = 0",
        "spank_get_item(S_JOB_ID) = 1",
        "spank_getenv(ABSENT) failed: 3004, No such environment variable",
    ]
    assert event["messages"] == [{"level": "error", "text": "one message"}]
    assert event["environment"] == {"added": {"MINE": "value"}}
    assert result.event("local", "init_post_opt")["environment"] == {"added": {"SPANK_TOLD": "yes"}}
    assert result.event("job_script_prolog", "job_prolog")["messages"] == [{"level": "info", "text": "yes"}]
    assert result.document["processes"]["local"]["stdout"] == "value\n"


NO_TASK_RUNS = {"task_init_privileged", "task_post_fork", "task_init", "task_exit"}
STEP_FAILS = (1, "FAILED", "the step fails, exit status 1")
TASK_ENDS = (1, "FAILED", "the step is ended, exit status 1; of a bulk step this command alone")
COMMAND_FAILS = (1, None, "the command fails, exit status 1")
UNHARMED = (0, "COMPLETED", "logged, nothing else")
# --fail: exit status of `nodectl run` and state of the step (None where there is none), the words of the table of
# hooks, and hooks of the remote context that then do not run.
COSTS = {
    "slurmd:init:-1": ((None, None, "the service does not start"), None),
    "slurmd_exit:3": (UNHARMED, set()),
    "allocator:init:-1": ((0, "COMPLETED", "the command fails, exit status 1"), set()),
    "allocator:init_post_opt:-1": ((0, "COMPLETED", "the command fails, exit status 1"), set()),
    "allocator:exit:-1": ((0, "COMPLETED", "told, nothing else"), set()),
    "local:init:-1": (COMMAND_FAILS, None),
    "local:init_post_opt:2": (COMMAND_FAILS, None),
    "local_user_init:-1": (COMMAND_FAILS, None),
    "local:exit:-1": ((0, "COMPLETED", "told, nothing else"), set()),
    "local:option:-1": ((255, None, "the command refuses the option"), None),
    "job_prolog:-1": ((1, "FAILED", "the job is refused, exit status 1; its epilog runs"), None),
    "remote:init:1": (
        STEP_FAILS,
        {"init_post_opt", "user_init", *NO_TASK_RUNS},
    ),
    "remote:option:-1": (STEP_FAILS, {"init_post_opt", "user_init", *NO_TASK_RUNS}),
    "remote:init_post_opt:-1": (STEP_FAILS, {"user_init", *NO_TASK_RUNS}),
    "user_init:-1": (STEP_FAILS, NO_TASK_RUNS),
    "task_init_privileged:-1": (TASK_ENDS, {"task_init"}),
    "task_post_fork:-1": (STEP_FAILS, {"task_init"}),
    "task_init:-1": (TASK_ENDS, set()),
    "task_exit:-1": ((1, "FAILED", "becomes the task's status where that was 0"), set()),
    "remote:exit:-1": ((1, "FAILED", "the step counts as failed, exit status 1"), set()),
    "job_epilog:-1": ((0, "COMPLETED", "logged, and a note in the step's record"), set()),
}


@pytest.mark.parametrize("fail", COSTS)
def test_what_a_failure_costs_is_what_the_table_of_hooks_says(spank_try: SpankTry, fail: str) -> None:
    (ended, state, words), missed = COSTS[fail]
    result = spank_try.run(spank_try.plugin(PYTHON), "--probe=7", "--fail", fail)
    document = result.document
    assert (result.status, len(document["failures"])) == (1, 1), document["failures"]
    assert document["fails"][0]["costs"] == words
    replaced = [e for part in document["contexts"].values() for e in part["events"] if e["replaced"]]
    assert [(event["returned"], event["rc"]) for event in replaced] == [(0, int(fail.rpartition(":")[2]))]
    local = document["processes"].get("local")
    assert (None if local is None else local["status"]) == ended
    assert (document["step"] or {}).get("state") == state
    not_called = {hook.removeprefix("slurm_spank_") for hook in document["contexts"]["remote"]["not_called"]}
    expected = {hook.partition("[")[0] for hook in REMOTE} - {"option"} if missed is None else missed
    assert not_called == expected


def test_a_failure_of_an_optional_plugin_costs_nothing_and_is_told(spank_try: SpankTry) -> None:
    result = spank_try.run(spank_try.plugin(PYTHON), "--optional", "--fail", "task_init:-1", "--", "sh", "-c", "exit 0")
    assert (result.status, result.document["step"]["state"]) == (1, "COMPLETED")
    assert result.document["failures"] == ["remote: task_init[0]: returned -1"]


PLACES = (
    "slurmd:init", "slurmd:slurmd_exit", "allocator:init", "local:local_user_init", "job_script:job_prolog",
    "remote:init", "remote:task_init_privileged", "remote:task_init", "remote:task_exit", "job_script:job_epilog",
)  # fmt: skip


@pytest.mark.parametrize("how", ["crash", "exit"])
@pytest.mark.parametrize("where", PLACES)
def test_a_hook_that_crashes_or_exits_is_named(spank_try: SpankTry, where: str, how: str) -> None:
    result = spank_try.run(spank_try.plugin(PYTHON), f"{where}:{how}")
    assert_named(result, where)
    if where.startswith("remote:task_init"):
        words = "the process died in it: Seg" if how == "crash" else "it ended the process"
        assert words in result.document["failures"][0]


@pytest.mark.parametrize(
    "where", ["slurmd:init", "local:local_user_init", "job_script:job_prolog", "remote:init", "remote:task_init"]
)
def test_a_hook_that_hangs_is_interrupted_and_named(spank_try: SpankTry, where: str) -> None:
    result = spank_try.run(spank_try.plugin(PYTHON), f"{where}:hang", "--timeout", str(HOOK_SECONDS))
    assert_named(result, where)
    assert result.document["failures"][0].endswith(LATE)


@pytest.mark.parametrize("where", ["local:init", "remote:init"])
def test_a_hook_that_swallows_its_interruption_is_ended_and_named(spank_try: SpankTry, where: str) -> None:
    result = spank_try.run(spank_try.plugin(PYTHON), f"{where}:swallow", "--timeout", str(HOOK_SECONDS))
    assert (result.status, len(result.document["failures"])) == (1, 1), result.document["failures"]
    assert result.document["failures"][0].startswith(where.replace(":", ": "))


WRITES_AND_FORKS = """
def act(sp, ac, argv):
    os.write(1, b"written\\n")
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
"""


def test_what_a_hook_writes_and_which_processes_it_leaves_is_told_of_every_hook(spank_try: SpankTry) -> None:
    hooks = "".join(f"slurm_spank_{name} = act\n" for name in HOOKS)
    plugin = spank_try.plugin(HEAD + WRITES_AND_FORKS + hooks)
    result = spank_try.run(plugin)
    assert (result.status, result.document["failures"]) == (0, [])
    events = [event for part in result.document["contexts"].values() for event in part["events"]]
    assert {
        (event["hook"], event["stdout"], len(event["children"])) for event in events if event["hook"] != "load"
    } == {(f"slurm_spank_{name}", "written\n", 1) for name in HOOKS if name != "slurmd_init"}
    text = spank_try.run(plugin, json=False).out
    assert "writes to standard output: written" in text
    assert "leaves behind: process" in text


def test_the_line_told_of_an_exception_is_the_plugins_own(spank_try: SpankTry) -> None:
    result = spank_try.run(
        spank_try.plugin(HEAD + 'def slurm_spank_local_user_init(sp, ac, argv):\n    spank_getenv(sp, "X")')
    )
    assert result.document["failures"] == [
        "local: local_user_init: SpankError: Valid only in remote context (line 7)"
    ], result.document["failures"]


def test_a_misspelt_hook_is_a_failure(spank_try: SpankTry) -> None:
    result = spank_try.run(spank_try.native(NATIVE + "int slurm_spank_task_inti(void) { return 0; }\n"))
    assert result.status == 1
    assert result.document["failures"] == [
        f"check: {spank_try.directory}/probe.so: slurm_spank_task_inti is no hook and is never called; "
        "nearest is slurm_spank_task_init"
    ]


def test_a_plugin_that_does_its_work_is_not_failed_for_its_names(spank_try: SpankTry) -> None:
    """A word of Slurm's log, and a function of its own whose name begins like a hook's."""
    source = (
        "#include <slurm/spank.h>\nSPANK_PLUGIN(named, 1);\nvoid debug(const char *, ...);\n"
        'int slurm_spank_helper(int x) { debug("helped"); return x; }\n'
        "int slurm_spank_task_init(spank_t sp, int ac, char **av) { return slurm_spank_helper(0); }\n"
    )
    result = spank_try.run(spank_try.native(source))
    assert (result.status, result.document["failures"]) == (0, []), result.out


def test_a_missing_function_is_a_failure_of_the_hook_that_calls_it(spank_try: SpankTry) -> None:
    result = spank_try.run(
        spank_try.native(
            "#include <slurm/spank.h>\nSPANK_PLUGIN(lacks, 1);\nint nobody_has_it(void);\n"
            "int slurm_spank_task_init(spank_t sp, int ac, char **av) { return nobody_has_it(); }\n"
        )
    )
    assert result.status == 1
    assert result.document["failures"][1:] == [
        "remote: task_init[0]: RuntimeError: calls nobody_has_it, which nodectl does not provide"
    ]


def test_an_absent_plugin_is_told_in_one_line(spank_try: SpankTry) -> None:
    result = spank_try.run(f"{spank_try.directory}/absent.so", json=False)
    assert (result.status, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert "No such file" in result.err


def test_a_built_in_plugin_is_found_by_its_name(spank_try: SpankTry) -> None:
    result = spank_try.run("renice", "--renice=7", "--", "nice")
    assert (result.status, result.document["processes"]["local"]["stdout"]) == (0, "7\n")


@pytest.mark.parametrize("hook", ["init", "task_init"])
def test_a_compiled_hook_that_aborts_is_named(spank_try: SpankTry, hook: str) -> None:
    result = spank_try.run(spank_try.native(NATIVE), hook)
    assert result.status == 1
    assert any(f": {hook}" in failure for failure in result.document["failures"]), result.document["failures"]


def test_a_refused_plugin_is_told_with_its_reason(spank_try: SpankTry) -> None:
    result = spank_try.run(spank_try.plugin(PYTHON.replace("(22, 5, 8)", "(23, 2, 0)")))
    assert result.status == 1
    assert "slurmd: load:" in result.document["failures"][0]
    assert "written for version 23.2.0" in result.document["failures"][0]


def test_the_programs_own_failure_is_told_apart(spank_try: SpankTry) -> None:
    result = spank_try.run(spank_try.plugin(PYTHON), "--", "sh", "-c", "exit 7")
    assert (result.status, result.document["processes"]["local"]["status"]) == (4, 7)


def test_without_root_allocator_and_local_are_tried(spank_try: SpankTry) -> None:
    how: dict[str, Any] = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
    plugin = spank_try.plugin(PYTHON)
    result = spank_try.run(plugin, "--probe=7", **how)
    assert (result.status, result.document["failures"]) == (3, [])
    assert result.hooks("local") == ["init", "option", "init_post_opt", "local_user_init", "exit"]
    assert result.document["contexts"]["remote"]["why"] == "not tried: only root can"
    assert spank_try.run(plugin, "--fail", "local:init:-1", **how).status == 1
    assert spank_try.run(plugin, "--user", "root", json=False, **how).status == 2


@pytest.mark.parametrize(
    "words",
    [
        ["--fail", "init:-1"],  # of which context?
        ["--fail", "nonsense:-1"],
        ["--fail", "init_post_opt"],
        ["--jobid=7"],  # a probe run has a job of its own
        ["--no-such-option"],
        ["two words"],
        ["--user", "no-such-user"],
        ["-n", "0"],
    ],
)
def test_words_that_make_no_sense_are_told_apart(spank_try: SpankTry, words: list[str]) -> None:
    assert spank_try.run(spank_try.plugin(PYTHON), *words, json=False).status == 2


def test_a_file_of_the_user_behind_sudo_is_tried_as_roots_copy_and_anybody_elses_is_not(spank_try: SpankTry) -> None:
    home = spank_try.directory / "home"
    home.mkdir()
    path = home / "probe.py"
    path.write_text(PYTHON)
    for one in (home, path):
        os.chown(one, OTHER.pw_uid, OTHER.pw_gid)
    result = spank_try.run(str(path), env={"SUDO_UID": str(OTHER.pw_uid)})
    assert (result.status, result.document["plugin"]) == (0, str(path))
    assert f"belongs to uid {OTHER.pw_uid}" in result.document["copied"]
    refused = spank_try.run(str(path), json=False, env={"SUDO_UID": str(NOBODY.pw_uid)})
    assert (refused.status, "root does not run it" in refused.err) == (1, True)


def test_the_text_names_every_context_and_the_consequence(spank_try: SpankTry) -> None:
    result = spank_try.run(spank_try.plugin(PYTHON), "--fail", "task_init:-1", "--", "true", json=False)
    lines = result.out.splitlines()
    for context in ("slurmd", "allocator", "local", "job_script_prolog", "remote", "job_script_epilog"):
        assert any(line.startswith(f"{context}: ") for line in lines)
    assert "  said of a required plugin: the step is ended, exit status 1; of a bulk step this command alone" in lines
    assert any(line.startswith("  what came: nodectl run: exit status 1, step FAILED") for line in lines)
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in result.out
    assert "nodectl-try-" not in result.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_nothing_or_the_next_one_removes_it(
    spank_try: SpankTry, number: signal.Signals
) -> None:
    plugin = spank_try.plugin(PYTHON)
    process = spank_try.start(plugin, "--", "sh", "-c", f"exec sleep {SLEEP}")  # so found by its own line only
    wait_until(lambda: spank_try.processes_of("sleep\0" + SLEEP), "the program runs")
    process.send_signal(number)
    status = process.wait(timeout=60)
    if number is signal.SIGKILL:
        assert spank_try.run(plugin).status == 0
    else:
        assert status == 128 + number
    spank_try.assert_nothing_left_of(process.pid)
    assert not spank_try.processes_of("sleep\0" + SLEEP)


def test_the_next_run_removes_what_a_killed_one_has_left(spank_try: SpankTry) -> None:
    left = Path(tempfile.mkdtemp(prefix="nodectl-try-", dir="/run"))
    assert spank_try.run(spank_try.plugin(PYTHON)).status == 0
    assert not left.exists()


@pytest.mark.parametrize("language", ["c", "python"])
def test_the_plugins_of_the_guide_work(spank_try: SpankTry, language: str) -> None:
    guide = Path(__file__).resolve().parents[3] / "docs/guides/spank-plugins.md"
    text = guide.read_text(encoding="utf-8")
    source = text.partition(f"```{language}\n")[2].partition("```")[0]
    plugin = spank_try.native(source) if language == "c" else spank_try.plugin(source, "nofile.py")
    result = spank_try.run(plugin, "--nofile=64", "--user", NOBODY.pw_name, "--", "sh", "-c", "ulimit -n; echo $NOFILE")
    assert (result.status, result.document["processes"]["local"]["stdout"]) == (0, "64\n64\n")
    assert spank_try.run(plugin, "--nofile=none").status == 1
