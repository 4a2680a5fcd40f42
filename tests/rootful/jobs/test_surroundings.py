"""What a hook, and a task, finds around it as in Slurm: variables of the job, PATH, a TMPDIR that is there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping

import pytest

from rootful.hook_faults import HOOK_SECONDS
from rootful.native import native
from rootful.node import NOBODY, OTHER
from rootful.stage import Stage, left_clean, staged

SAY = """
import json
with open(SCRATCH + "/NAME", "w") as file:
    json.dump(spank_get_item(sp, S_JOB_ENV), file)
"""
# What recordings of Slurm show in remote init, of what one node has.
AT_INIT = {
    "SLURM_CLUSTER_NAME", "SLURM_JOBID", "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_GID", "SLURM_JOB_ID", "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION", "SLURM_JOB_UID", "SLURM_JOB_USER",
    "SLURM_NNODES", "SLURM_NODELIST", "SLURM_NPROCS", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_TASKS", "SLURM_UMASK",
}  # fmt: skip


@pytest.fixture(scope="module")
def module_stage() -> Iterator[Stage]:
    with staged(cluster_name="lone", partition_name="only") as started:
        yield started


@pytest.fixture
def stage(module_stage: Stage) -> Iterator[Stage]:
    yield from left_clean(module_stage)


def seen(stage: Stage, *calls: str) -> list[Mapping[str, str]]:
    """The job's environment in these hooks of a step of two tasks."""
    for call in calls:
        stage.order(f"first.slurm_spank_{call}", SAY.replace("NAME", call))
    done = stage.node.run("-n2", "-J", "named", "true", user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads((stage.node.scratch / call).read_text(encoding="utf-8")) for call in calls]


def test_the_jobs_variables_are_there_from_the_first_hook_on(stage: Stage) -> None:
    for found in seen(stage, "init", "init_post_opt"):
        assert AT_INIT - set(found) == set()
        assert found["SLURM_JOB_ID"] == str(stage.last_job())
        assert (found["SLURM_JOB_NAME"], found["SLURM_NPROCS"]) == ("named", "2")
        assert (found["SLURM_CLUSTER_NAME"], found["SLURM_JOB_PARTITION"]) == ("lone", "only")
        assert found["SLURM_JOB_USER"] == NOBODY.pw_name
        assert "SLURM_PROCID" not in found


def test_hooks_of_the_end_are_told_which_task_has_ended(stage: Stage) -> None:
    stage.order(
        "first.slurm_spank_task_exit",
        "names = ('SLURM_PROCID', 'SLURM_LOCALID')\n"
        "open(f'{SCRATCH}/end.{rank}', 'w').write(''.join(spank_getenv(sp, name) for name in names))",
    )
    (found,) = seen(stage, "exit")
    assert [(stage.node.scratch / f"end.{rank}").read_text(encoding="ascii") for rank in (0, 1)] == ["00", "11"]
    assert found["SLURM_PROCID"] == found["SLURM_LOCALID"] in ("0", "1")


def test_which_job_it_is_no_hook_changes_and_what_its_client_said_a_hook_may(stage: Stage) -> None:
    stage.order(
        "first.slurm_spank_init",
        "[spank_setenv(sp, name, 'mine', 1) for name in ('SLURM_JOB_NAME', 'SLURM_JOB_ID', 'SLURM_JOB_USER')]",
    )
    done = stage.node.run("sh", "-c", "echo $SLURM_JOB_NAME $SLURM_JOB_ID $SLURM_JOB_USER", user=NOBODY)
    assert done.stdout.split() == ["mine", str(stage.last_job()), NOBODY.pw_name]


def test_hooks_of_the_step_find_tools_where_the_service_does(stage: Stage) -> None:
    code = "open(SCRATCH + '/path', 'w').write(os.environ['PATH'])"
    stage.order("first.slurm_spank_init", code)
    path = f"{stage.node.dir}/tools:/usr/sbin:/usr/bin:/bin"
    stage.node.stop()
    plain = stage.node.environment
    try:
        stage.node.environment = lambda extra=None: {**plain(extra), "PATH": path}  # type: ignore[method-assign]
        stage.node.start()
    finally:
        stage.node.environment = plain  # type: ignore[method-assign]
    done = stage.node.run("sh", "-c", "echo $PATH", user=NOBODY, env={"PATH": "/bin:/of/the/user"})
    assert done.stdout == "/bin:/of/the/user\n"
    assert (stage.node.scratch / "path").read_text(encoding="ascii") == path


# TMPDIR

SHOW = ("sh", "-c", 'echo "$TMPDIR"; stat -c "%a %U" "$TMPDIR"')


def test_tmpdir_that_is_missing_is_made_for_the_user_alone(stage: Stage) -> None:
    own = stage.node.scratch / "mine"
    done = stage.node.run("-n4", *SHOW, user=NOBODY, env={"TMPDIR": str(own)})
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted([str(own), f"700 {NOBODY.pw_name}"] * 4)
    own.rmdir()


def test_tmpdir_that_nobody_names_is_tmp(stage: Stage) -> None:
    done = stage.node.run("sh", "-c", "echo $TMPDIR", user=NOBODY)
    assert (done.stdout, done.stderr) == ("/tmp\n", "")


def test_tmpdir_is_there_for_the_plugins_of_a_task_and_where_it_alone_may_be_written(stage: Stage) -> None:
    stage.order("first.slurm_spank_task_init", "open(spank_getenv(sp, 'TMPDIR') + '/by_plugin', 'w').close()")
    own = stage.node.scratch / "strict"
    words = ("--secure=strict", "-D", "/usr", "sh", "-c", "ls $TMPDIR; : >$TMPDIR/mine && rm -r $TMPDIR/*")
    done = stage.node.run(*words, user=NOBODY, env={"TMPDIR": str(own)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "by_plugin\n", "")
    own.rmdir()


@pytest.mark.parametrize("kind", ["root's directory", "a file", "a dangling link", "a link of /proc", "no name"])
def test_tmpdir_is_made_with_no_more_rights_than_the_users(stage: Stage, kind: str) -> None:
    scratch = stage.node.scratch
    closed = stage.node.dir / "closed"
    closed.mkdir(mode=0o700, exist_ok=True)
    path = {
        "root's directory": f"{closed}/made",
        "a file": f"{scratch}/file",
        "a dangling link": f"{scratch}/link",
        "a link of /proc": "/proc/self/fd/3/made",
        "no name": "",
    }[kind]
    (scratch / "file").touch()
    (scratch / "link").symlink_to(closed / "made")
    done = stage.node.run("-n2", "sh", "-c", "echo $TMPDIR", user=NOBODY, env={"TMPDIR": path})
    assert (done.returncode, done.stdout) == (0, "/tmp\n/tmp\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"nodectl: warning: make TMPDIR {path!r}: ")
    assert os.listdir(closed) == []
    (scratch / "link").unlink()


def test_tmpdir_of_somebody_else_is_left_as_it_is(stage: Stage) -> None:
    own = stage.node.scratch / "others"
    own.mkdir(mode=0o700)
    os.chown(own, OTHER.pw_uid, -1)
    done = stage.node.run(*SHOW, user=NOBODY, env={"TMPDIR": str(own)})
    assert done.stdout.splitlines() == [str(own), f"700 {OTHER.pw_name}"]
    own.rmdir()


# Threads

CONSTRUCTOR = """
static volatile int beats;
static void *beat(void *x) { for (;;) { free(malloc(16 << 10)); beats++; } return x; }
__attribute__((constructor)) static void begin(void) { pthread_t t; pthread_create(&t, 0, beat, 0); }
"""


@pytest.mark.parametrize("line", ["required", "optional"])
def test_plugin_whose_library_brings_threads_is_opened_by_each_step(stage: Stage, line: str) -> None:
    body = 'int before = beats; while (beats == before) usleep(1000); spank_setenv(sp, "SAID", "runs", 1);'
    remote = f"if (spank_remote(sp)) {{ {body} }}"
    native(stage.node, "gopher", CONSTRUCTOR, init=remote, task_init='spank_setenv(sp, "SAID", "here", 1);')
    stage.node.plugstack(f"{line} gopher.so\nrequired first\n")
    for _ in range(3):
        done = stage.node.run("-n8", "sh", "-c", "echo $SAID", user=NOBODY)
        assert (done.returncode, done.stdout, done.stderr) == (0, "here\n" * 8, "")


# A fork whose child becomes the program

FORKS = {
    "python": """
import os
def slurm_spank_task_init(sp, ac, argv):
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        os._exit(os.waitstatus_to_exitcode(status) % 256)
""",
    "c": """
#include <sys/wait.h>
static int stand_aside(void)
{
    int status;
    pid_t pid = fork();
    if (pid > 0) {
        if (waitpid(pid, &status, 0) != pid)
            _exit(99);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
    }
    return pid < 0 ? -1 : 0;
}
""",
}


def forking(stage: Stage, kind: str) -> str:
    """A plugin whose task_init waits for a child that returns; the plugin's name."""
    if kind == "python":
        stage.node.plugin("aside", FORKS[kind])
        return "aside"
    native(stage.node, "aside", FORKS[kind], task_init="return stand_aside();")
    return "aside.so"


@pytest.mark.parametrize("line", ["required", "optional"])
@pytest.mark.parametrize("kind", FORKS)
def test_child_that_comes_out_of_task_init_while_its_parent_waits_is_the_program(
    stage: Stage, kind: str, line: str
) -> None:
    name = forking(stage, kind)
    # Behind it: alone, and with a Python plugin, where hooks are called another way.
    for more in ("", f"{line} {name}\n", "required first\n"):
        stage.node.plugstack(f"{line} {name}\n{more}")
        done = stage.node.run("-n3", "sh", "-c", "echo ran $SLURM_PROCID; exit 7", user=NOBODY)
        assert sorted(done.stdout.splitlines()) == ["ran 0", "ran 1", "ran 2"], done.stderr
        assert done.returncode == 7
        assert "it ended inside" not in done.stderr
        assert stage.node.run("true", user=NOBODY).returncode == 0
        stage.node.assert_clean()


@pytest.mark.parametrize("kind", FORKS)
def test_parent_that_waits_for_the_program_is_not_late(kind: str) -> None:
    with staged(spank_hook_timeout=HOOK_SECONDS) as stage:
        stage.node.plugstack(f"required {forking(stage, kind)}\n")
        script = "i=0; while [ $i -lt 70 ]; do sleep 0.1; i=$((i+1)); done; echo ran; exit 7"
        done = stage.node.run("sh", "-c", script, user=NOBODY)  # seven seconds, and more where the machine is busy
        assert (done.returncode, done.stdout) == (7, "ran\n"), done.stderr


@pytest.mark.parametrize("kind", ["python", "c"])
def test_fork_of_which_both_come_out_runs_the_program_once(stage: Stage, kind: str) -> None:
    if kind == "python":
        stage.node.plugin("twice", "import os\ndef slurm_spank_task_init(sp, ac, argv): os.fork()\n")
    else:
        native(stage.node, "twice", task_init="if (fork() < 0) return -1;")
    name = "twice" if kind == "python" else "twice.so"
    stage.node.plugstack(f"required {name}\nrequired {name}\n")
    for _ in range(10):
        done = stage.node.run("-n2", "sh", "-c", "echo ran $SLURM_PROCID; exit $SLURM_PROCID", user=NOBODY)
        assert sorted(done.stdout.splitlines()) == ["ran 0", "ran 1"], done.stderr
        assert done.returncode == 1


def test_child_that_fails_in_task_init_is_nobodys_successor(stage: Stage) -> None:
    stage.order("first.slurm_spank_task_init", "if os.fork() == 0: rc = -1")
    done = stage.node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


# What plugins say


def test_what_plugins_say_can_be_looked_up_by_the_steps_number(stage: Stage) -> None:
    for call in ("init", "user_init", "task_init_privileged", "task_init", "task_exit", "exit"):
        stage.order(f"first.slurm_spank_{call}", f"slurm_info('said in {call}\\nand a\\x1bbell')")
    stage.order("second.slurm_spank_init", "slurm_verbose('unheard'); slurm_error('wrong'); slurm_spank_log('plain')")
    done = stage.node.run("true", user=NOBODY)
    assert done.stderr == "nodectl: error: wrong\nplain\n"  # the user has not asked for more
    step = f"step {stage.last_job()}.0"
    stage.node.assert_clean()
    kept = [line for line in stage.node.logged().splitlines() if step in line]
    assert f"nodectl stepd: plugin second: {step}: error: wrong" in kept
    assert f"nodectl stepd: plugin second: {step}: plain" in kept
    for call in ("init", "user_init", "task_init_privileged", "task_init", "task_exit", "exit"):
        assert kept.count(f"nodectl stepd: plugin first: {step}: said in {call}") == 1
    assert kept.count(f"nodectl stepd: plugin first: {step}: and a\\x1bbell") == 6
    assert "unheard" not in stage.node.logged()


def test_what_a_compiled_plugin_says_can_be_looked_up_too(stage: Stage) -> None:
    says = 'if (spank_remote(sp)) slurm_info("said here");'
    native(stage.node, "speaker", init=says, task_init=says)
    stage.node.plugstack("required speaker.so\n")
    assert stage.node.run("-n2", "true", user=NOBODY).returncode == 0
    stage.node.assert_clean()
    line = f"nodectl stepd: plugin speaker: step {stage.last_job()}.0: said here"
    assert stage.node.logged().splitlines().count(line) == 3


def test_what_a_hook_writes_to_stderr_reaches_the_user_and_the_log(stage: Stage) -> None:
    calls = ["init", "user_init", "task_init_privileged", "task_exit", "exit"]
    for call in calls:
        stage.order(f"first.slurm_spank_{call}", f"os.system('echo {call} of a tool >&2')")
    done = stage.node.run("sh", "-c", "echo ran; echo own >&2", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    said = [f"{call} of a tool" for call in calls]
    assert sorted(done.stderr.splitlines()) == sorted([*said, "own"])
    step = f"step {stage.last_job()}.0"
    stage.node.assert_clean()
    kept = [line for line in stage.node.logged().splitlines() if step in line]
    assert [line for line in kept if "of a tool" in line] == [f"nodectl stepd: {step}: {line}" for line in said]


def test_what_a_hook_wrote_before_its_step_runner_died_is_in_the_log(stage: Stage) -> None:
    stage.order("first.slurm_spank_user_init", "os.write(2, b'last words\\x1b'); os._exit(1)")
    assert stage.node.run("true", user=NOBODY).returncode == 1
    stage.node.assert_clean()
    assert f"nodectl stepd: step {stage.last_job()}.0: last words\\x1b\n" in stage.node.logged()


def test_much_on_stderr_blocks_no_hook_and_no_user_writes_there(stage: Stage) -> None:
    stage.order("first.slurm_spank_init", "os.write(2, b'x' * 99 + b'\\n' + b'y' * (1 << 20))")
    code = (
        "import os, glob; print([os.readlink(p) for p in glob.glob('/proc/self/fd/*') if 'stderr' in os.readlink(p)])"
    )
    done = stage.node.run(
        "/usr/bin/python3", "-c", f"import os\ntry:\n    {code}\nexcept OSError: print([])", user=NOBODY
    )
    assert done.returncode == 0
    assert done.stdout == "[]\n"
    assert "x" * 99 in done.stderr.splitlines()
    assert "bytes more" in done.stderr
    assert len(done.stderr) < 1 << 17
