"""A hook that fails costs what the table of hooks says, and is told in one line that names plugin and hook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodectl.model.launch_order import HOOKS, ROWS
from rootful.hook_faults import RETURNS
from rootful.native import native
from rootful.node import NOBODY, running
from rootful.stage import Stage

FAULTS = {
    **RETURNS,
    "exits": ("sys.exit(0)", "SystemExit"),
    "PluginError": ("raise PluginError(5, 'no luck')", "no luck"),
    "returns -1 with errno": ("set_errno(28); rc = -1", "returned -1: No space left on device"),
}
SPANK_ROWS = [row.call for row in HOOKS if row.kind == "spank" and row.call != "option" and row.process != "job script"]
TASK_ROWS = [row.call for row in HOOKS if row.kind == "task" and row.process != "daemon"]
PROGRAM = ("sh", "-c", "echo ran $SLURM_PROCID")
EVERYBODY = ["ran 0", "ran 1"]
# What the words in the table's column `costs` mean for a step of two tasks whose hook fails in task 1.
COSTS = {
    "the step fails, exit status 1": (1, "FAILED", []),
    "this task ends with status 1, the others go on": (1, "FAILED", ["ran 0"]),
    "the step is ended, exit status 1; of a bulk step this command alone": (1, "FAILED", None),
    "becomes the task's status where that was 0": (1, "FAILED", EVERYBODY),
    "the step counts as failed, exit status 1": (1, "FAILED", EVERYBODY),
    "logged, nothing else": (0, "COMPLETED", EVERYBODY),
}


ENDS = re.compile("Exited with exit code|: task 0: Terminated")


def in_task_one(call: str, code: str) -> str:
    """The fault, in the hooks of a task only in task 1."""
    return f"if rank in (None, 1): {code}" if ROWS[call].per == "task" else code


def check(stage: Stage, call: str, plugin: str, words: str, status: int | None = None) -> None:
    """Runs the step and compares exit status, record, output and messages with the row."""
    exit_status, state, ran = COSTS[ROWS[call].costs]
    exit_status = exit_status if status is None else status
    done = stage.node.run("-n2", *PROGRAM, user=NOBODY)
    record = stage.last()
    came = sorted(done.stdout.split("\n"))[1:]
    assert came == ran if ran is not None else came in ([], ["ran 0"]), done.stderr
    assert (done.returncode, record["exit_status"], record["state"]) == (exit_status, exit_status, state), done.stderr
    (line,) = [line for line in done.stderr.splitlines() if not ENDS.search(line)]
    assert all(word in line for word in (plugin, call, words)), line
    if state == "FAILED":
        assert all(word in str(record["reason"]) for word in (plugin, call, words)), record["reason"]
    else:
        assert record["reason"] == ""
    assert "Traceback" not in done.stderr + stage.node.logged()
    stage.node.assert_clean()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", SPANK_ROWS)
def test_failure_of_a_required_spank_plugin_costs_what_the_table_says(stage: Stage, call: str, fault: str) -> None:
    code, words = FAULTS[fault]
    stage.order(f"first.{call}", in_task_one(call, code))
    stage.order(f"second.{call}", in_task_one(call, "open(SCRATCH + '/second', 'w').close()"))
    check(stage, call, "plugin first", words)
    assert str(stage.node.plugins / "spank/first.py") in str(stage.last()["reason"])
    assert not (stage.node.scratch / "second").exists()  # the walk ended with the failure


@pytest.mark.parametrize("call", SPANK_ROWS)
def test_no_failure_of_a_required_spank_plugin_is_reported_as_success(stage: Stage, call: str) -> None:
    """Whatever the table says."""
    stage.order(f"first.{call}", "rc = -1")
    assert stage.node.run(*PROGRAM, user=NOBODY).returncode == 1
    assert stage.last()["state"] == "FAILED"


@pytest.mark.parametrize("call", SPANK_ROWS)
def test_failure_of_an_optional_spank_plugin_costs_nothing(stage: Stage, call: str) -> None:
    stage.stack("optional", "required")
    stage.order(f"first.{call}", "raise ValueError('broken')")
    stage.order(f"second.{call}", "open(SCRATCH + '/second', 'w').close()")
    done = stage.node.run("-n2", *PROGRAM, user=NOBODY)
    file = stage.node.plugins / "spank/first.py"
    (line,) = done.stderr.splitlines()  # not one for each task
    assert line.startswith(f"nodectl: warning: optional plugin first: {call}: ValueError: broken (line ")
    assert line.endswith(f" ({file})")
    assert done.returncode == 0
    assert sorted(done.stdout.split("\n"))[1:] == EVERYBODY
    assert stage.last()["state"] == "COMPLETED"
    assert (stage.node.scratch / "second").exists()
    failed = [line for line in stage.node.trace(stage.last_job()) if line["rc"] != 0]
    assert {(line["call"], line["plugin"]) for line in failed} == {(call, "first")}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", TASK_ROWS)
def test_failure_of_a_task_plugin_costs_what_the_table_says(stage: Stage, call: str, fault: str) -> None:
    code, words = FAULTS[fault]
    stage.order(f"task.{call}", in_task_one(call, code))
    # A PluginError's errno becomes the task's status.
    errno = {"PluginError": 5, "returns -1 with errno": 28}.get(fault)
    status = errno if call == "task_p_post_term" else None
    check(stage, call, "task/puppet", words, status)


@pytest.mark.parametrize("fault", FAULTS)
def test_failure_in_the_daemon_refuses_the_request(stage: Stage, fault: str) -> None:
    code, words = FAULTS[fault]
    before = stage.last_job()
    stage.order("task.task_p_slurmd_launch_request", code)
    done = stage.node.run(*PROGRAM, user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert f"plugin task/puppet: task_p_slurmd_launch_request: {words}" in line
    assert stage.last_job() == before
    stage.node.assert_clean()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", ["proctrack_p_create", "proctrack_p_add"])
def test_failure_of_the_tracking_of_processes_fails_the_step(stage: Stage, call: str, fault: str) -> None:
    code, words = FAULTS[fault]
    stage.order(f"proctrack.{call}", code)
    check(stage, call, "proctrack/puppet", words)


@pytest.mark.parametrize("call", ["proctrack_p_signal", "proctrack_p_wait", "proctrack_p_destroy"])
def test_processes_of_a_step_are_ended_even_when_the_tracking_fails(stage: Stage, call: str) -> None:
    stage.order(f"proctrack.{call}", "raise ValueError('broken')")
    done = stage.node.run("sh", "-c", "sleep 1000 >/dev/null 2>&1 & exit 0", user=NOBODY)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert f"plugin proctrack/puppet: {call}: ValueError: broken" in line
    stage.node.assert_clean()


@pytest.mark.parametrize("fault", FAULTS)
def test_step_whose_option_a_required_plugin_refuses_fails_and_runs_nothing(stage: Stage, fault: str) -> None:
    code, words = FAULTS[fault]
    stage.order("first.option", code)
    stage.order("second.option", "open(SCRATCH + '/second', 'w').close()")
    done = stage.node.run("--first=x", "--second=y", *PROGRAM, user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    file = str(stage.node.plugins / "spank/first.py")
    record = stage.last()
    for word in ("plugin first: option first: ", words, file):
        assert word in line
        assert word in str(record["reason"])
    assert record["state"] == "FAILED"
    assert not (stage.node.scratch / "second").exists()


def test_option_that_an_optional_plugin_refuses_costs_a_warning(stage: Stage) -> None:
    stage.stack("optional", "required")
    stage.order("first.option", "raise ValueError('broken')")
    done = stage.node.run("--first=x", *PROGRAM, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran 0\n")
    (line,) = done.stderr.splitlines()
    assert "warning: optional plugin first: option first: ValueError: broken" in line


def test_tasks_own_end_is_not_covered_by_a_plugins(stage: Stage) -> None:
    stage.order("first.slurm_spank_task_exit", "rc = -1")
    stage.order("first.slurm_spank_exit", "rc = -1")
    done = stage.node.run("sh", "-c", "exit 3", user=NOBODY)
    assert done.returncode == 3
    assert stage.last()["reason"] == "task 0 ended with exit code 3"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "call", ["slurm_spank_init", "slurm_spank_init_post_opt", "slurm_spank_local_user_init", "option"]
)
def test_required_plugin_that_fails_in_the_command_refuses_it(stage: Stage, call: str, fault: str) -> None:
    before = stage.last_job()
    stage.order(f"first.local.{call}", FAULTS[fault][0])
    done = stage.node.run("--first=x", *PROGRAM, user=NOBODY)
    assert (done.returncode, done.stdout) == (255 if call == "option" else 1, "")  # srun's statuses
    (line,) = done.stderr.splitlines()
    assert all(word in line for word in ("first", call, FAULTS[fault][1])), line
    assert call != "option" or "Invalid --first argument: x" in line
    assert stage.last_job() == before


def test_failing_exit_in_the_command_is_logged_only(stage: Stage) -> None:
    stage.order("first.local.slurm_spank_exit", "raise ValueError('broken')")
    done = stage.node.run(*PROGRAM, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran 0\n")
    (line,) = done.stderr.splitlines()
    assert "plugin first: slurm_spank_exit: ValueError: broken" in line


def test_optional_plugin_that_fails_in_the_command_costs_nothing(stage: Stage) -> None:
    stage.stack("optional", "required")
    calls = ("init", "init_post_opt", "local_user_init", "exit")
    for call in calls:
        stage.order(f"first.local.slurm_spank_{call}", "sys.exit(3)")
    done = stage.node.run(*PROGRAM, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran 0\n")
    for call, line in zip(calls, done.stderr.splitlines(), strict=True):
        assert line.startswith(f"nodectl: warning: optional plugin first: slurm_spank_{call}: SystemExit"), line


def test_hooks_of_the_command_run_as_the_user(stage: Stage) -> None:
    calls = ["init", "init_post_opt", "local_user_init", "exit"]
    for call in calls:
        stage.order(
            f"first.local.slurm_spank_{call}",
            f"open(SCRATCH + '/{call}', 'w').write(repr((os.getresuid(), os.getresgid())))",
        )
    assert stage.node.run("true", user=NOBODY).returncode == 0
    uid, gid = NOBODY.pw_uid, NOBODY.pw_gid
    for call in calls:
        assert (stage.node.scratch / call).read_text(encoding="ascii") == repr(((uid,) * 3, (gid,) * 3))


HEAD = 'plugin_type = "spank"\nplugin_name = "bad"\nplugin_version = (22, 5, 8)\n'
HOOK = "def slurm_spank_init(sp, ac, argv): return 0\n"
UNUSABLE = {
    "missing": (None, "no such file"),
    "syntax error": (HEAD + "def (:\n", "syntax error"),
    "body raises": (HEAD + "raise ValueError('broken')\n", "ValueError: broken"),
    "body exits": (HEAD + "import sys; sys.exit(0)\n", "SystemExit"),
    "wrong version": (HEAD.replace("22, 5", "21, 8") + HOOK, "21.8.8"),
    "wrong type": (HEAD.replace('"spank"', '"task/bad"') + HOOK, "plugin_type"),
    "misspelt hook": (HEAD + "def slurm_spank_task_inti(sp, ac, argv): return 0\n", "slurm_spank_task_init"),
    "no hook": (HEAD, "without any"),
    "init() fails": (HEAD + HOOK + "def init(): return 7\n", "returned 7"),
}


def bad_plugin(stage: Stage, text: str | None) -> Path:
    path = stage.node.plugins / "spank" / "bad.py"
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("case", UNUSABLE)
def test_required_plugin_that_cannot_be_loaded_refuses_the_command_and_an_optional_one_is_skipped(
    stage: Stage, case: str
) -> None:
    text, words = UNUSABLE[case]
    bad_plugin(stage, text)
    stage.node.plugstack("optional first\nrequired bad\n")
    done = stage.node.run(*PROGRAM, user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert all(word in line for word in ("plugstack.conf:2", "bad", words)), line
    stage.node.plugstack("optional bad\n")
    done = stage.node.run(*PROGRAM, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran 0\n")
    (line,) = done.stderr.splitlines()  # the command and the step have met it
    assert line.startswith("nodectl: warning: ")
    assert all(word in line for word in ("plugstack.conf:1", "bad", words, "skipped")), line


def test_plugin_that_others_may_write_is_no_plugin_for_root(stage: Stage) -> None:
    path = bad_plugin(stage, HEAD + HOOK)
    path.chmod(0o666)
    stage.node.plugstack("required bad\n")
    done = stage.node.run(*PROGRAM, user=NOBODY)  # its own process may read what it likes; the stepd refuses
    assert (done.returncode, done.stdout) == (1, "")
    about = [line for line in done.stderr.splitlines() if "plugstack.conf:1" in line]
    assert len(about) == 1
    assert "not trusted" in about[0]
    assert stage.last()["state"] == "FAILED"
    assert "bad.py: not trusted" in str(stage.last()["reason"])
    stage.node.plugstack("optional bad\n")
    assert stage.node.run(*PROGRAM, user=NOBODY).returncode == 0
    path.chmod(0o644)
    stage.node.plugstack("required bad\n")
    assert stage.node.run(*PROGRAM, user=NOBODY).returncode == 0


def test_plugin_that_was_changed_is_read_again(stage: Stage) -> None:
    stage.node.plugstack("required bad\n")
    for status, text in ((0, HOOK), (1, "def slurm_spank_user_init(sp, ac, argv): return 1\n"), (0, HOOK)):
        bad_plugin(stage, HEAD + text)
        assert stage.node.run(*PROGRAM, user=NOBODY).returncode == status


def test_hook_of_a_later_release_costs_a_warning_and_not_the_plugin(stage: Stage) -> None:
    future = "def slurm_spank_of_the_future(sp, ac, argv): return -1\n"
    path = bad_plugin(stage, HEAD + HOOK.replace("return 0", "print('called', spank_remote(sp))") + future)
    path.write_text(path.read_text(encoding="utf-8") + "from nodectl.spank import spank_remote\n", encoding="utf-8")
    stage.node.plugstack("required bad\n")
    done = stage.node.run(*PROGRAM, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran 0\ncalled 0\n")  # print() waits for its end
    (line,) = done.stderr.splitlines()
    for word in ("warning: ", "plugstack.conf:1", "bad.py:5", "slurm_spank_of_the_future", "nearest is slurm_spank_"):
        assert word in line


FINI = """
import os, sys
from nodectl.spank import S_CTX_JOB_SCRIPT, S_CTX_LOCAL, S_CTX_REMOTE, S_CTX_SLURMD, spank_context
NAMES = {S_CTX_LOCAL: "local", S_CTX_REMOTE: "remote", S_CTX_SLURMD: "slurmd", S_CTX_JOB_SCRIPT: "job_script"}
def said(word):
    with open("SCRATCH/" + NAMES[spank_context()], "a") as file:
        file.write(f"{word} {os.getpid()}\\n")
def init(): said("init")
def fini(): said("fini")
def slurm_spank_init(sp, ac, argv): pass
def slurm_spank_exit(sp, ac, argv): said("exit")
def slurm_spank_slurmd_exit(sp, ac, argv): said("exit")
def slurm_spank_job_prolog(sp, ac, argv): said("exit")
"""
C_FINI = """
#include <fcntl.h>
static int said(const char *word)
{
    static const char *const names[] = {"error", "local", "remote", "allocator", "slurmd", "job_script"};
    char path[4096], line[99];
    snprintf(path, sizeof path, "SCRATCH/%s", names[spank_context()]);
    snprintf(line, sizeof line, "%s %d\\n", word, getpid());
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (write(fd, line, strlen(line)) < 0) return -1;
    return close(fd);
}
INIT
int fini(void) { return said("fini"); }
"""


@pytest.mark.parametrize("kind", ["python", "c", "c without init"])
def test_fini_is_the_last_word_of_a_plugin_in_every_context(kind: str) -> None:
    with running() as node:
        node.scratch.chmod(0o777)
        if kind == "python":
            node.plugin("last", FINI.replace("SCRATCH", str(node.scratch)))
        else:
            says = 'said("exit");'
            text = C_FINI.replace("SCRATCH", str(node.scratch))
            text = text.replace("INIT", "" if "without" in kind else 'int init(void) { return said("init"); }')
            native(node, "last", text, init="", exit=says, slurmd_exit=says, job_prolog=says)
        node.plugstack(f"required last{'.py' if kind == 'python' else '.so'}\n")
        node.restart()
        assert node.run("-n2", "true", user=NOBODY).returncode == 0
        node.assert_clean()
        node.stop()
        words = ["exit", "fini"] if "without" in kind else ["init", "exit", "fini"]
        for context in ("local", "remote", "slurmd", "job_script"):
            lines = [line.split() for line in (node.scratch / context).read_text(encoding="ascii").splitlines()]
            by_process = {pid: [word for word, other in lines if other == pid] for _, pid in lines}
            # job_script: the process of the prolog; that of the epilog has no such hook.
            assert words in by_process.values(), (context, lines)
            assert all(said[-1] == "fini" for said in by_process.values()), (context, lines)


def test_failing_fini_costs_nothing_where_a_plugin_is_refused_too(stage: Stage) -> None:
    bad_plugin(stage, HEAD + HOOK + "def fini(): raise ValueError('broken')\n")
    stage.node.plugstack("required bad\n")
    done = stage.node.run(*PROGRAM, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran 0\n")
    (line,) = done.stderr.splitlines()
    assert "warning: plugin bad: fini(): ValueError: broken" in line
    stage.node.plugstack("required bad\nrequired nowhere\n")
    done = stage.node.run(*PROGRAM, user=NOBODY)
    assert done.returncode == 1
    assert "plugin bad: fini(): " in done.stderr


@pytest.mark.parametrize("code", ["rc = -1", "os.kill(os.getpid(), signal.SIGKILL)"])
@pytest.mark.parametrize("call", ["slurm_spank_task_init", "slurm_spank_task_init_privileged"])
def test_a_required_plugin_that_fails_in_one_task_ends_the_others(stage: Stage, call: str, code: str) -> None:
    stage.order(f"first.{call}", in_task_one(call, code))
    done = stage.node.run("-n3", "sleep", "1000", user=NOBODY)
    assert done.returncode == 1
    record = stage.last()
    assert (record["state"], record["exit_status"]) == ("FAILED", 1)
    assert str(record["reason"]).startswith("task 1: ")
    assert call in str(record["reason"])
    stage.node.assert_clean()


def test_an_optional_plugin_that_fails_in_one_task_ends_none(stage: Stage) -> None:
    stage.stack("optional", "optional")
    stage.order("first.slurm_spank_task_init", in_task_one("slurm_spank_task_init", "rc = -1"))
    done = stage.node.run("-n2", *PROGRAM, user=NOBODY)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, EVERYBODY)
