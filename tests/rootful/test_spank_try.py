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
from rootful.spank_try import HEAD, HOOKS, NATIVE, PYTHON, Bench, Tried


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Below /run, where only root may write: root loads plugins from there."""
    directory = Path(tempfile.mkdtemp(prefix="nodectl-test-", dir="/run"))
    directory.chmod(0o755)
    yield Bench(directory)
    shutil.rmtree(directory)


SLEEP = str(10_000_000 + os.getpid())  # seconds of one that is nobody else's
REMOTE = [
    "init", "option", "init_post_opt", "user_init", "task_init_privileged[0]", "task_post_fork[0]", "task_init[0]",
    "task_exit[0]", "exit",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["python", "native"])
def test_every_context_is_tried_and_told(bench: Bench, kind: str) -> None:
    plugin = bench.plugin(PYTHON) if kind == "python" else bench.native(NATIVE)
    tried = bench.attempt(plugin, "a=1", "--probe=7", "--user", NOBODY.pw_name, "--", "echo", "hello")
    assert (tried.status, tried.document["failures"]) == (0, []), tried.out
    assert tried.hooks("slurmd") == ["init", "slurmd_exit"]
    assert tried.hooks("allocator") == ["init", "init_post_opt", "exit"]
    assert tried.hooks("local") == ["init", "option", "init_post_opt", "local_user_init", "exit"]
    assert tried.hooks("job_script_prolog") == ["job_prolog"]
    assert tried.hooks("job_script_epilog") == ["job_epilog"]
    remote = tried.hooks("remote")
    assert sorted(remote) == sorted(REMOTE)
    assert [hook for hook in remote if "privileged" not in hook] == [hook for hook in REMOTE if "priv" not in hook]
    assert tried.event("local", "option")["arguments"] == [5, "7", 0]
    who = {hook: (tried.event("remote", hook)["uid"], tried.event("remote", hook)["euid"]) for hook in
           ("init", "user_init", "task_init_privileged", "task_init")}  # fmt: skip
    nobody = NOBODY.pw_uid
    assert who == {
        "init": (0, 0),
        "user_init": (0, nobody),
        "task_init_privileged": (0, 0),
        "task_init": (nobody, nobody),
    }
    assert tried.event("local", "init")["uid"] == nobody
    assert tried.document["processes"]["local"]["stdout"] == "hello\n"
    assert tried.document["step"]["state"] == "COMPLETED"


def test_options_of_the_run_are_passed_on(bench: Bench) -> None:
    plugin = bench.plugin(
        HEAD
        + """
def slurm_spank_task_init(sp, ac, argv):
    spank_setenv(sp, "MEMORY", str(spank_get_item(sp, S_JOB_ALLOC_MEM)))
    return 0
"""
    )
    tried = bench.attempt(
        plugin, "a=1", "--mem=64M", "--job-name=tried", "--", "sh", "-c", "echo $MEMORY $SLURM_JOB_NAME"
    )
    assert (tried.status, tried.document["failures"]) == (0, []), tried.out
    assert tried.document["processes"]["local"]["stdout"] == "64 tried\n"
    assert (tried.document["run_options"], tried.document["arguments"]) == (["--mem=64M", "--job-name=tried"], ["a=1"])
    refused = bench.attempt(plugin, "--mem", "64M", json=False)
    assert (refused.status, "--mem needs its argument behind a '='" in refused.err) == (2, True)
    refused = bench.attempt(plugin, "--uid=0", json=False)
    assert (refused.status, "--uid: try's own --user says whose the step is" in refused.err) == (2, True)


def test_calls_messages_and_changes_of_the_environment_are_told(bench: Bench) -> None:
    plugin = bench.plugin(
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
    tried = bench.attempt(plugin, "--", "printenv", "MINE", env={"GIVEN": "value"})
    event = tried.event("remote", "task_init")
    assert (event["stdout"], event["children"]) == ("", [])
    assert [call["text"] for call in event["calls"]] == [
        "spank_getenv(GIVEN) = value",
        "spank_setenv(MINE, value) = 0",
        "spank_get_item(S_JOB_ID) = 1",
        "spank_getenv(ABSENT) failed: 3004, No such environment variable",
    ]
    assert event["messages"] == [{"level": "error", "text": "one message"}]
    assert event["environment"] == {"added": {"MINE": "value"}}
    assert tried.event("local", "init_post_opt")["environment"] == {"added": {"SPANK_TOLD": "yes"}}
    assert tried.event("job_script_prolog", "job_prolog")["messages"] == [{"level": "info", "text": "yes"}]
    assert tried.document["processes"]["local"]["stdout"] == "value\n"


NO_TASK_RUNS = {"task_init_privileged", "task_post_fork", "task_init", "task_exit"}
STEP_FAILS = (1, "FAILED", "the step fails, exit status 1")
TASK_ENDS = (1, "FAILED", "this task ends with status 1, the others go on")
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
def test_what_a_failure_costs_is_what_the_table_of_hooks_says(bench: Bench, fail: str) -> None:
    (ended, state, words), missed = COSTS[fail]
    tried = bench.attempt(bench.plugin(PYTHON), "--probe=7", "--fail", fail)
    document = tried.document
    assert (tried.status, len(document["failures"])) == (1, 1), document["failures"]
    assert document["fails"][0]["costs"] == words
    replaced = [e for part in document["contexts"].values() for e in part["events"] if e["replaced"]]
    assert [(event["returned"], event["rc"]) for event in replaced] == [(0, int(fail.rpartition(":")[2]))]
    local = document["processes"].get("local")
    assert (None if local is None else local["status"]) == ended
    assert (document["step"] or {}).get("state") == state
    not_called = {hook.removeprefix("slurm_spank_") for hook in document["contexts"]["remote"]["not_called"]}
    expected = {hook.partition("[")[0] for hook in REMOTE} - {"option"} if missed is None else missed
    assert not_called == expected


def test_a_failure_of_an_optional_plugin_costs_nothing_and_is_told(bench: Bench) -> None:
    tried = bench.attempt(bench.plugin(PYTHON), "--optional", "--fail", "task_init:-1", "--", "sh", "-c", "exit 0")
    assert (tried.status, tried.document["step"]["state"]) == (1, "COMPLETED")
    assert tried.document["failures"] == ["remote: task_init[0]: returned -1"]


PLACES = (
    "slurmd:init", "slurmd:slurmd_exit", "allocator:init", "local:local_user_init", "job_script:job_prolog",
    "remote:init", "remote:task_init_privileged", "remote:task_init", "remote:task_exit", "job_script:job_epilog",
)  # fmt: skip


@pytest.mark.parametrize("how", ["crash", "exit"])
@pytest.mark.parametrize("where", PLACES)
def test_a_hook_that_crashes_or_exits_is_named(bench: Bench, where: str, how: str) -> None:
    tried = bench.attempt(bench.plugin(PYTHON), f"{where}:{how}")
    assert_named(tried, where)
    if where.startswith("remote:task_init"):
        words = "the process died in it: Seg" if how == "crash" else "it ended the process"
        assert words in tried.document["failures"][0]


@pytest.mark.parametrize(
    "where", ["slurmd:init", "local:local_user_init", "job_script:job_prolog", "remote:init", "remote:task_init"]
)
def test_a_hook_that_hangs_is_interrupted_and_named(bench: Bench, where: str) -> None:
    tried = bench.attempt(bench.plugin(PYTHON), f"{where}:hang", "--timeout", str(HOOK_SECONDS))
    assert_named(tried, where)
    assert tried.document["failures"][0].endswith(LATE)


def assert_named(tried: Tried, where: str) -> None:
    """One failure, of the context and the hook that `where` names."""
    assert (tried.status, len(tried.document["failures"])) == (1, 1), tried.document["failures"]
    context, _, hook = where.partition(":")
    failure = tried.document["failures"][0]
    assert failure.startswith(context), failure
    assert f": {hook}" in failure, failure


@pytest.mark.parametrize("where", ["local:init", "remote:init"])
def test_a_hook_that_swallows_its_interruption_is_ended_and_named(bench: Bench, where: str) -> None:
    tried = bench.attempt(bench.plugin(PYTHON), f"{where}:swallow", "--timeout", str(HOOK_SECONDS))
    assert (tried.status, len(tried.document["failures"])) == (1, 1), tried.document["failures"]
    assert tried.document["failures"][0].startswith(where.replace(":", ": "))


WRITES_AND_FORKS = """
def act(sp, ac, argv):
    os.write(1, b"written\\n")
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
"""


def test_what_a_hook_writes_and_which_processes_it_leaves_is_told_of_every_hook(bench: Bench) -> None:
    hooks = "".join(f"slurm_spank_{name} = act\n" for name in HOOKS)
    plugin = bench.plugin(HEAD + WRITES_AND_FORKS + hooks)
    tried = bench.attempt(plugin)
    assert (tried.status, tried.document["failures"]) == (0, [])
    events = [event for part in tried.document["contexts"].values() for event in part["events"]]
    assert {
        (event["hook"], event["stdout"], len(event["children"])) for event in events if event["hook"] != "load"
    } == {(f"slurm_spank_{name}", "written\n", 1) for name in HOOKS if name != "slurmd_init"}
    text = bench.attempt(plugin, json=False).out
    assert "writes to standard output: written" in text
    assert "leaves behind: process" in text


def test_the_line_told_of_an_exception_is_the_plugins_own(bench: Bench) -> None:
    tried = bench.attempt(
        bench.plugin(HEAD + 'def slurm_spank_local_user_init(sp, ac, argv):\n    spank_getenv(sp, "X")')
    )
    assert tried.document["failures"] == [
        "local: local_user_init: SpankError: Valid only in remote context (line 7)"
    ], tried.document["failures"]


def test_a_misspelt_hook_is_a_failure(bench: Bench) -> None:
    tried = bench.attempt(bench.native(NATIVE + "int slurm_spank_task_inti(void) { return 0; }\n"))
    assert tried.status == 1
    assert tried.document["failures"] == [
        f"check: {bench.directory}/probe.so: slurm_spank_task_inti is no hook and is never called; "
        "nearest is slurm_spank_task_init"
    ]


def test_a_plugin_that_does_its_work_is_not_failed_for_its_names(bench: Bench) -> None:
    """A word of Slurm's log, and a function of its own whose name begins like a hook's."""
    source = (
        "#include <slurm/spank.h>\nSPANK_PLUGIN(named, 1);\nvoid debug(const char *, ...);\n"
        'int slurm_spank_helper(int x) { debug("helped"); return x; }\n'
        "int slurm_spank_task_init(spank_t sp, int ac, char **av) { return slurm_spank_helper(0); }\n"
    )
    tried = bench.attempt(bench.native(source))
    assert (tried.status, tried.document["failures"]) == (0, []), tried.out


def test_a_missing_function_is_a_failure_of_the_hook_that_calls_it(bench: Bench) -> None:
    tried = bench.attempt(
        bench.native(
            "#include <slurm/spank.h>\nSPANK_PLUGIN(lacks, 1);\nint nobody_has_it(void);\n"
            "int slurm_spank_task_init(spank_t sp, int ac, char **av) { return nobody_has_it(); }\n"
        )
    )
    assert tried.status == 1
    assert tried.document["failures"][1:] == [
        "remote: task_init[0]: RuntimeError: calls nobody_has_it, which nodectl does not provide"
    ]


def test_an_absent_plugin_is_told_in_one_line(bench: Bench) -> None:
    tried = bench.attempt(f"{bench.directory}/absent.so", json=False)
    assert (tried.status, tried.out, len(tried.err.splitlines())) == (2, "", 1)
    assert "No such file" in tried.err


def test_a_built_in_plugin_is_found_by_its_name(bench: Bench) -> None:
    tried = bench.attempt("renice", "--renice=7", "--", "nice")
    assert (tried.status, tried.document["processes"]["local"]["stdout"]) == (0, "7\n")


@pytest.mark.parametrize("hook", ["init", "task_init"])
def test_a_compiled_hook_that_aborts_is_named(bench: Bench, hook: str) -> None:
    tried = bench.attempt(bench.native(NATIVE), hook)
    assert tried.status == 1
    assert any(f": {hook}" in failure for failure in tried.document["failures"]), tried.document["failures"]


def test_a_refused_plugin_is_told_with_its_reason(bench: Bench) -> None:
    tried = bench.attempt(bench.plugin(PYTHON.replace("(22, 5, 8)", "(23, 2, 0)")))
    assert tried.status == 1
    assert "slurmd: load:" in tried.document["failures"][0]
    assert "written for version 23.2.0" in tried.document["failures"][0]


def test_the_programs_own_failure_is_told_apart(bench: Bench) -> None:
    tried = bench.attempt(bench.plugin(PYTHON), "--", "sh", "-c", "exit 7")
    assert (tried.status, tried.document["processes"]["local"]["status"]) == (4, 7)


def test_without_root_allocator_and_local_are_tried(bench: Bench) -> None:
    how: dict[str, Any] = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
    plugin = bench.plugin(PYTHON)
    tried = bench.attempt(plugin, "--probe=7", **how)
    assert (tried.status, tried.document["failures"]) == (3, [])
    assert tried.hooks("local") == ["init", "option", "init_post_opt", "local_user_init", "exit"]
    assert tried.document["contexts"]["remote"]["why"] == "not tried: only root can"
    assert bench.attempt(plugin, "--fail", "local:init:-1", **how).status == 1
    assert bench.attempt(plugin, "--user", "root", json=False, **how).status == 2


@pytest.mark.parametrize(
    "words",
    [
        ["--fail", "init:-1"],  # of which context?
        ["--fail", "nonsense:-1"],
        ["--fail", "init_post_opt"],
        ["--jobid=7"],  # a trial has a job of its own
        ["--no-such-option"],
        ["two words"],
        ["--user", "no-such-user"],
        ["-n", "0"],
    ],
)
def test_words_that_make_no_sense_are_told_apart(bench: Bench, words: list[str]) -> None:
    assert bench.attempt(bench.plugin(PYTHON), *words, json=False).status == 2


def test_a_file_of_the_user_behind_sudo_is_tried_as_roots_copy_and_anybody_elses_is_not(bench: Bench) -> None:
    home = bench.directory / "home"
    home.mkdir()
    path = home / "probe.py"
    path.write_text(PYTHON)
    for one in (home, path):
        os.chown(one, OTHER.pw_uid, OTHER.pw_gid)
    tried = bench.attempt(str(path), env={"SUDO_UID": str(OTHER.pw_uid)})
    assert (tried.status, tried.document["plugin"]) == (0, str(path))
    assert f"belongs to uid {OTHER.pw_uid}" in tried.document["copied"]
    refused = bench.attempt(str(path), json=False, env={"SUDO_UID": str(NOBODY.pw_uid)})
    assert (refused.status, "root does not run it" in refused.err) == (1, True)


def test_the_text_names_every_context_and_the_consequence(bench: Bench) -> None:
    tried = bench.attempt(bench.plugin(PYTHON), "--fail", "task_init:-1", "--", "true", json=False)
    lines = tried.out.splitlines()
    for context in ("slurmd", "allocator", "local", "job_script_prolog", "remote", "job_script_epilog"):
        assert any(line.startswith(f"{context}: ") for line in lines)
    assert "  said of a required plugin: this task ends with status 1, the others go on" in lines
    assert any(line.startswith("  what came: nodectl run: exit status 1, step FAILED") for line in lines)
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in tried.out
    assert "nodectl-try-" not in tried.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_trial_that_is_ended_leaves_nothing_or_the_next_one_removes_it(bench: Bench, number: signal.Signals) -> None:
    plugin = bench.plugin(PYTHON)
    process = bench.start(plugin, "--", "sh", "-c", f"exec sleep {SLEEP}")  # so found by its own line only
    wait_until(lambda: bench.processes_of("sleep\0" + SLEEP), "the program runs")
    process.send_signal(number)
    status = process.wait(timeout=60)
    if number is signal.SIGKILL:
        assert bench.attempt(plugin).status == 0
    else:
        assert status == 128 + number
    bench.assert_nothing_left_of(process.pid)
    assert not bench.processes_of("sleep\0" + SLEEP)


def test_the_next_trial_removes_what_a_killed_one_has_left(bench: Bench) -> None:
    left = Path(tempfile.mkdtemp(prefix="nodectl-try-", dir="/run"))
    assert bench.attempt(bench.plugin(PYTHON)).status == 0
    assert not left.exists()


@pytest.mark.parametrize("language", ["c", "python"])
def test_the_plugins_of_the_readme_work(bench: Bench, language: str) -> None:
    readme = Path(__file__).resolve().parents[2] / "README.md"
    text = readme.read_text(encoding="utf-8").partition("## Test a SPANK plugin in one command")[2]
    source = text.partition(f"```{language}\n")[2].partition("```")[0]
    plugin = bench.native(source) if language == "c" else bench.plugin(source, "nofile.py")
    tried = bench.attempt(plugin, "--nofile=64", "--user", NOBODY.pw_name, "--", "sh", "-c", "ulimit -n; echo $NOFILE")
    assert (tried.status, tried.document["processes"]["local"]["stdout"]) == (0, "64\n64\n")
    assert bench.attempt(plugin, "--nofile=none").status == 1
