"""Plugins that do what no plugin should: a step fails with one clear line or is unharmed, and the node lives."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from rootful.hook_faults import HOOK_SECONDS, LATE
from rootful.native import native
from rootful.node import NOBODY
from rootful.stage import Stage, ended, finished, staged

IN_STEPD = [
    "proctrack.proctrack_p_create",
    "first.slurm_spank_init",
    "task.task_p_pre_setuid",
    "first.slurm_spank_user_init",
    "first.slurm_spank_task_post_fork",
]
IN_TASK = [
    "task.task_p_pre_launch_priv",
    "first.slurm_spank_task_init_privileged",
    "task.task_p_pre_launch",
    "first.slurm_spank_task_init",
]
NAMES = {"first": "first", "task": "task/puppet", "proctrack": "proctrack/puppet"}
HANG = "time.sleep(60)"
SWALLOW = """
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
"""
DEAF = {
    "blocks": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n" + HANG,
    "stops": "os.kill(os.getpid(), signal.SIGSTOP)",
    "ignores": "signal.signal(signal.SIGALRM, signal.SIG_IGN)\n" + HANG,
}
TAKEN = {
    "blocks": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "ignores": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "defaults": "signal.signal(signal.SIGCHLD, signal.SIG_DFL)",
    "wakes nobody": "signal.set_wakeup_fd(-1)",
    "rings later": "if os.fork() == 0: time.sleep(0.1); os.kill(os.getppid(), signal.SIGALRM); os._exit(0)",
}
THREAD = "import threading; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
JOINED = "import threading; t = threading.Thread(target=int); t.start(); t.join()"
BUSY = """
import threading
ended = threading.Event()
def work():
    while not ended.is_set():
        bytearray(100_000)
def init():
    global thread
    thread = threading.Thread(target=work)
    thread.start()
def fini():
    ended.set()
    thread.join()
def slurm_spank_task_exit(sp, ac, argv): pass
"""
C_BUSY = """
static volatile int ended;
static pthread_t thread;
static void *work(void *x) { while (!ended) free(malloc(16 << 10)); return x; }
int init(void) { return pthread_create(&thread, NULL, work, NULL); }
int fini(void) { ended = 1; return pthread_join(thread, NULL); }
"""
FORK = "os.fork()"
LINGERING = "if os.fork() == 0: time.sleep(1000)"
CLOSE = "os.closerange(0, 1000)"
KILL_GROUP = "os.killpg(0, signal.SIGKILL)"
UNPRINTABLE = """
class Rude(Exception):
    def __str__(self): raise ValueError
raise Rude
"""


@pytest.fixture(scope="module")
def module_hurried() -> Iterator[Stage]:
    with staged(spank_hook_timeout=HOOK_SECONDS) as started:
        yield started


@pytest.fixture
def stage(module_stage: Stage) -> Iterator[Stage]:
    yield from unharmed_by_the_test(module_stage)


@pytest.fixture
def hurried(module_hurried: Stage) -> Iterator[Stage]:
    """A stage whose hooks have little time, for tests of those that take more: a busy machine makes others slow."""
    yield from unharmed_by_the_test(module_hurried)


def unharmed_by_the_test(module_stage: Stage) -> Iterator[Stage]:
    """The module's stage, whose daemon is still there at the end, and runs steps."""
    module_stage.reset()
    assert module_stage.node.daemon is not None
    pid = module_stage.node.daemon.pid
    yield module_stage
    module_stage.reset()
    module_stage.node.assert_clean()
    assert module_stage.node.daemon.poll() is None
    assert module_stage.node.daemon.pid == pid
    done = module_stage.node.run("echo", "alive", user=NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


def fails(stage: Stage, order: str, *words: str, status: int = 1, ran: str = "", state: str = "FAILED") -> None:
    """A step of one task: its exit status, its state, and one line beside the task's end that says plugin and hook."""
    client = stage.node.popen("-n1", "echo", "ran", user=NOBODY)
    code, out, err = finished(client)
    assert (code, out) == (status, ran), err
    (line,) = [line for line in err.splitlines() if ": task 0: " not in line or "step " in line]
    plugin, call = order.split(".")
    record = ended(stage, stage.last_job())
    assert (record["state"], record["exit_status"]) == (state, status)
    for word in (call, NAMES[plugin], *words):
        assert word in line
        assert word in str(record["reason"])
    assert "Traceback" not in err


def unharmed(stage: Stage) -> None:
    done = stage.node.run("-n2", "-l", "sh", "-c", "pwd; umask", user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")
    where = str(stage.node.scratch)
    assert sorted(done.stdout.splitlines()) == [f"0: {where}", "0: 0022", f"1: {where}", "1: 0022"]


@pytest.mark.parametrize("order", IN_STEPD + IN_TASK)
def test_hook_that_hangs_is_interrupted(hurried: Stage, order: str) -> None:
    hurried.order(order, HANG)
    fails(hurried, order, LATE)


@pytest.mark.parametrize("order", ["task.task_p_slurmd_launch_request"])
def test_hook_that_hangs_in_the_daemon_is_interrupted(hurried: Stage, order: str) -> None:
    hurried.order(order, HANG)
    done = hurried.node.run("true", user=NOBODY)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"plugin task/puppet: task_p_slurmd_launch_request: {LATE}" in line


@pytest.mark.parametrize("order", ["first.slurm_spank_task_exit", "first.slurm_spank_exit", "task.task_p_post_step"])
def test_hook_that_hangs_after_the_tasks_costs_its_time_only(hurried: Stage, order: str) -> None:
    hurried.order(order, HANG)
    done = hurried.node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (int("slurm_spank" in order), "ran\n")
    (line,) = [line for line in done.stderr.splitlines() if "Exited with exit code" not in line]
    assert order.partition(".")[2] in line
    assert LATE in line


@pytest.mark.slow
@pytest.mark.parametrize("order", ["first.slurm_spank_init", "first.slurm_spank_task_init"])
def test_hook_that_swallows_its_interruption_is_ended_with_its_process(hurried: Stage, order: str) -> None:
    hurried.order(order, SWALLOW)
    fails(hurried, order, state="NODE_FAIL" if order in IN_STEPD else "FAILED")


@pytest.mark.slow
@pytest.mark.parametrize("order", ["first.slurm_spank_init", "first.slurm_spank_task_init"])
@pytest.mark.parametrize("deaf", DEAF)
def test_hook_that_nothing_interrupts_is_ended_with_its_process(hurried: Stage, order: str, deaf: str) -> None:
    hurried.order(order, DEAF[deaf])
    fails(hurried, order, state="NODE_FAIL" if order in IN_STEPD else "FAILED")


def test_hook_of_the_command_that_swallows_its_interruption_is_named_and_ends_the_command(hurried: Stage) -> None:
    hurried.order("first.local.slurm_spank_init", SWALLOW)
    done = hurried.node.run("true", user=NOBODY)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "plugin first: slurm_spank_init: ran over its time and could not be interrupted" in line


@pytest.mark.slow
@pytest.mark.parametrize("deaf", DEAF)
def test_hook_of_the_command_that_nothing_interrupts_ends_the_command(hurried: Stage, deaf: str) -> None:
    hurried.order("first.local.slurm_spank_init", DEAF[deaf])
    assert hurried.node.run("true", user=NOBODY).returncode == -signal.SIGKILL


def test_command_whose_plugin_closes_its_connection_says_so_in_one_line(stage: Stage) -> None:
    stage.order("first.local.slurm_spank_init", "os.closerange(3, 1000)")
    done = stage.node.run("true", user=NOBODY)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("nodectl: error: ")


@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("order", IN_STEPD)
def test_signals_that_a_plugin_takes_are_still_the_step_runners(stage: Stage, order: str, taken: str) -> None:
    stage.order(order, TAKEN[taken])
    unharmed(stage)


def test_clock_of_a_hook_runs_whatever_an_earlier_plugin_did_to_its_signal(hurried: Stage) -> None:
    hurried.order("first.slurm_spank_init", TAKEN["blocks"])
    hurried.order("second.slurm_spank_init", HANG)
    done = hurried.node.run("true", user=NOBODY)
    assert done.returncode == 1
    assert f"plugin second: slurm_spank_init: {LATE}" in done.stderr


def test_task_whose_exit_status_a_plugin_has_taken_did_not_succeed(stage: Stage) -> None:
    stage.order("first.slurm_spank_task_exit", "if rank == 0: open(SCRATCH + '/go', 'w').close(); os.waitpid(-1, 0)")
    script = "test $SLURM_PROCID = 0 || until [ -e go ]; do sleep 0.02; done"
    done = stage.node.run("-n2", "sh", "-c", script, user=NOBODY)
    assert done.returncode == 1
    assert "task 1: a plugin in the step runner has taken its exit status" in done.stderr
    assert ended(stage, stage.last_job())["state"] == "FAILED"


@pytest.mark.parametrize("order", IN_STEPD)
def test_exit_of_the_step_runner_in_a_hook_is_no_success(stage: Stage, order: str) -> None:
    stage.order(order, "os._exit(0)")
    fails(stage, order, "the step runner died in", state="NODE_FAIL")


@pytest.mark.parametrize("order", IN_TASK)
def test_exit_of_a_task_in_a_hook_is_no_success(stage: Stage, order: str) -> None:
    stage.order(order, "os._exit(0)")
    fails(stage, order, "it ended inside")


@pytest.mark.parametrize("order", IN_STEPD)
def test_thread_left_in_the_step_runner_fails_the_step(stage: Stage, order: str) -> None:
    stage.order(order, THREAD)
    fails(stage, order, "left a thread running")


@pytest.mark.parametrize("order", [order for order in IN_STEPD if order.startswith("first.")])
def test_thread_that_an_optional_plugin_leaves_costs_a_warning(stage: Stage, order: str) -> None:
    stage.stack("optional", "optional")
    stage.order(order, THREAD)
    done = stage.node.run("-n2", "echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran\nran\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"nodectl: warning: optional plugin first: {order[6:]}: left a thread running")


@pytest.mark.parametrize("line", ["required", "optional"])
@pytest.mark.parametrize("kind", ["python", "c"])
def test_thread_that_init_makes_and_fini_ends_is_a_plugins_good_right(stage: Stage, kind: str, line: str) -> None:
    if kind == "python":
        stage.node.plugin("busy", BUSY)
    else:
        native(stage.node, "busy", C_BUSY, task_exit="")
    stage.node.plugstack(f"{line} busy{'.py' if kind == 'python' else '.so'}\nrequired first\n")
    for _ in range(5):  # a fork beside a thread that does nothing but allocate
        done = stage.node.run("-n8", "echo", "ran", user=NOBODY)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n" * 8, "")


@pytest.mark.parametrize("order", IN_TASK)
def test_thread_left_in_a_task_ends_with_the_exec(stage: Stage, order: str) -> None:
    stage.order(order, THREAD)
    unharmed(stage)


@pytest.mark.parametrize("code", [JOINED, "for _ in range(30):\n    " + JOINED.replace("; ", "\n    ")])
@pytest.mark.parametrize("order", IN_STEPD)
def test_thread_that_was_joined_is_nobodys_business(stage: Stage, order: str, code: str) -> None:
    stage.order(order, code)
    unharmed(stage)


@pytest.mark.parametrize("order", IN_STEPD + IN_TASK)
def test_child_that_returns_from_a_hook_does_not_go_on_as_a_second_launch(stage: Stage, order: str) -> None:
    stage.order(order, FORK)
    unharmed(stage)


@pytest.mark.parametrize("order", IN_STEPD + IN_TASK)
def test_child_that_stays_is_ended_with_the_step(stage: Stage, order: str) -> None:
    stage.order(order, LINGERING)
    done = stage.node.popen("-n1", "-o", "none", "-e", "none", "true", user=NOBODY)
    assert finished(done) == (0, "", "")
    assert ended(stage, stage.last_job())["state"] == "COMPLETED"


@pytest.mark.parametrize("order", IN_STEPD)
def test_step_runner_without_descriptors_is_a_dead_one(stage: Stage, order: str) -> None:
    stage.order(order, CLOSE)
    fails(stage, order, "the step runner died in", state="NODE_FAIL")


@pytest.mark.parametrize("order", IN_TASK)
def test_task_without_descriptors_ends(stage: Stage, order: str) -> None:
    stage.order(order, CLOSE)
    fails(stage, order, "it ended inside")


@pytest.mark.parametrize("order", [*IN_STEPD, *IN_TASK[:2]])
def test_directory_and_umask_of_a_hook_are_not_the_programs(stage: Stage, order: str) -> None:
    stage.order(order, "os.chdir('/proc'); os.umask(0o777)")
    unharmed(stage)


@pytest.mark.parametrize("order", IN_STEPD + IN_TASK)
@pytest.mark.parametrize(("code", "word"), [("raise KeyboardInterrupt", "KeyboardInterrupt"), (UNPRINTABLE, "Rude")])
def test_whatever_a_hook_raises_is_told_in_one_line(stage: Stage, order: str, code: str, word: str) -> None:
    stage.order(order, code)
    fails(stage, order, word)


@pytest.mark.parametrize("order", IN_TASK)
def test_task_that_kills_its_group_takes_tasks_with_it_and_not_the_step_runner(stage: Stage, order: str) -> None:
    stage.order(order, KILL_GROUP)
    fails(stage, order, "it ended inside", status=1 if "spank" in order else 128 + 9)
    stage.order(order, f"if rank == 1: {KILL_GROUP}")
    done = stage.node.run("-n4", "sleep", "0.3", user=NOBODY)
    # A required SPANK plugin's failure is the step's, also of a task that was in its hook when the others were killed.
    status = 1 if "it ended inside slurm_spank" in done.stderr else 128 + 9
    assert done.returncode == status
    record = ended(stage, stage.last_job())
    assert (record["state"], record["exit_status"]) == ("FAILED", status)
    assert "task 1: it ended inside" in done.stderr
