"""init() and fini() of task, proctrack and job_container plugins: whatever they do, the node starts or says in one line
which plugin keeps it from starting, and nothing of it is left.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from rootful.hook_faults import HOOK_SECONDS, LATE
from rootful.node import NOBODY, PATH, PATIENCE, Node, wait_until

THREAD = """
import os, threading
_end = threading.Event()
_threads = []
def init():
    {guard}
        _threads.append(threading.Thread(target=_end.wait))
        _threads[0].start()
def fini():
    _end.set()
    for thread in _threads:
        thread.join()
    with open({said!r}, "a") as file:
        file.write("fini\\n")
"""
HANG = "import time\ndef init():\n    time.sleep(1000)\n"
DEAF = """
import time
def init():
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass
"""


@pytest.fixture
def made() -> Iterator[Node]:
    """A node that has not been started, with task/odd among its plugins."""
    node = Node(task_plugin=["task/cgroup", "task/odd"])
    yield node
    node.close()


def refused(node: Node) -> str:
    """The one line of a daemon that does not start."""
    done = subprocess.run(
        node.command("daemon"), capture_output=True, text=True, check=False, timeout=2 * PATIENCE,
        env=node.environment(),
    )  # fmt: skip
    assert done.returncode == 1, done
    (line,) = [line for line in done.stderr.splitlines() if "not enforced" not in line and "constrain_" not in line]
    return line


def serves_without_it(node: Node) -> None:
    """The next daemon does not wait for anybody: the lock is free at once."""
    node.configure(task_plugin=["task/cgroup"])
    node.start()
    assert node.run("echo", "served", user=NOBODY).stdout == "served\n"
    node.stop()
    wait_until(lambda: not forkservers(node), "the forkserver has ended")


def forkservers(node: Node) -> list[str]:
    return [line for line in node.remains() if line.startswith("process")]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import sys\ndef init():\n    sys.exit(0)\n", "init(): SystemExit: 0 (line 6)"),
        ("import os\ndef init():\n    raise KeyboardInterrupt\n", "init(): KeyboardInterrupt (line 6)"),
        ("def init():\n    return -1\n", "init(): returned -1"),
        (HANG, f"init(): {LATE}"),
        ("import time\ntime.sleep(1000)\n", f"its body raised Overrun: {LATE}"),
        (DEAF, f"it {LATE} to begin, and nothing interrupted it"),
    ],
    ids=["exits", "interrupts", "fails", "hangs", "body hangs", "deaf"],
)
def test_an_init_that_does_not_come_back_well_refuses_the_start(made: Node, body: str, words: str) -> None:
    path = made.plugin("odd", body, "task")
    if "longer than" in words:
        made.configure(spank_hook_timeout=HOOK_SECONDS)
    line = refused(made)
    made.configure(spank_hook_timeout=60)
    assert line.startswith(f"nodectl daemon: {path}")
    assert line.endswith(words)
    serves_without_it(made)


def test_a_thread_of_init_where_processes_are_forked_from_refuses_the_start_and_is_ended(made: Node) -> None:
    said = made.dir / "said"
    path = made.plugin("odd", THREAD.format(guard="if True:", said=str(said)), "task")
    line = refused(made)
    assert line.startswith(f"nodectl daemon: start the forkserver: {path}: init() left a thread running")
    wait_until(lambda: not forkservers(made), "the forkserver has ended")
    assert said.read_text(encoding="ascii").split() == ["fini", "fini"]
    serves_without_it(made)


def test_a_thread_that_nobody_ends_holds_neither_the_daemon_nor_the_lock(made: Node) -> None:
    body = "import threading\ndef init():\n    threading.Thread(target=threading.Event().wait).start()\n"
    made.plugin("odd", body, "task")
    command = [made.command("daemon")[0], "-IS", "-c", _AS_THE_COMMAND, *made.command("daemon")[4:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE)
    assert (done.returncode, done.stderr.count("left a thread running")) == (1, 1)
    serves_without_it(made)


_AS_THE_COMMAND = f"import sys; sys.path[:0] = {PATH!r}; from nodectl.cli.main import command; command()"


def test_a_thread_in_the_daemon_alone_lives_from_init_to_fini(made: Node) -> None:
    said = made.dir / "said"
    guard = "from nodectl.plugin_api import may_have_threads\n    if may_have_threads():"
    made.plugin("odd", THREAD.format(guard=guard, said=str(said)), "task")
    made.start()
    assert made.run("echo", "served", user=NOBODY).stdout == "served\n"
    made.stop()
    wait_until(lambda: said.read_text(encoding="ascii").count("fini") == 2, "both processes have called fini()")
    assert "thread" not in made.logged()


def test_fini_of_the_plugins_before_it_is_called_where_one_is_refused(made: Node) -> None:
    said = made.dir / "said"
    made.plugin("before", f"def fini():\n    open({str(said)!r}, 'a').write('fini')\n", "task")
    made.plugin("odd", "def init():\n    return -1\n", "task")
    made.configure(task_plugin=["task/before", "task/odd"])
    assert "init(): returned -1" in refused(made)
    assert said.read_text(encoding="ascii") == "fini"


# What plugins say where no user is.

SAYS = """
from nodectl import messages
def init():
    messages.error("in init")
def task_p_slurmd_launch_request(step, node):
    messages.info("about it\\x1b")
    messages.error("at launch")
    return {rc}
"""
CONTAINER = """
from nodectl import messages
def _say(where):
    messages.error(where)
    return 0
def container_p_delete(job_id): return _say("in delete")
def container_p_restore(): return _say("in restore")
def container_p_reconfig(): return _say("in reconfig")
def container_p_add_pid(job_id, pid, uid): return _say("in add_pid")
"""


def test_what_plugins_say_in_the_daemon_and_its_errands_is_in_the_log_and_told_to_the_steps_user(made: Node) -> None:
    made.plugin("odd", SAYS.format(rc=0), "task")
    made.plugin("odd", CONTAINER, "job_container")
    made.configure(job_container_type="job_container/odd")
    made.start()
    for process in ("daemon", "forkserver"):
        assert f"nodectl {process}: plugin task/odd: error: in init\n" in made.logged()
    done = made.run("true", user=NOBODY)
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, "nodectl: error: at launch")
    assert "about it" not in done.stderr
    assert "nodectl: about it\x1b\n" in made.run("-v", "true", user=NOBODY).stderr
    job = made.last_job()
    made.call("Wait", job=job, step=0, epilog=True)
    made.daemon.send_signal(1)  # type: ignore[union-attr]
    wait_until(lambda: "in reconfig" in made.logged(), "the forkserver is told")
    log = made.logged()
    assert f"nodectl daemon: plugin task/odd: job {job}: about it\\x1b\n" in log
    assert f"nodectl daemon: plugin task/odd: job {job}: error: at launch\n" in log
    assert f"nodectl errand: plugin job_container/odd: job {job}: error: in delete\n" in log
    assert "nodectl errand: plugin job_container/odd: error: in restore\n" in log
    assert "nodectl forkserver: plugin job_container/odd: error: in reconfig\n" in log


def test_what_a_plugin_says_before_it_refuses_a_launch_its_user_hears(made: Node) -> None:
    made.plugin("odd", SAYS.format(rc=-1), "task")
    made.start()
    done = made.run("true", user=NOBODY)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.endswith("returned -1; it said: at launch")) == (1, True), line


def test_a_helper_beside_a_plugin_is_there_in_every_process(made: Node) -> None:
    (made.plugins / "task").mkdir()
    (made.plugins / "task" / "helper.py").write_text(
        "from nodectl import messages\ndef say(where):\n    messages.error(where)\n    return 0\n", encoding="utf-8"
    )
    body = "".join(
        f"def {call}({arguments}): return helper.say({call!r})\n"
        for call, arguments in (
            ("task_p_slurmd_launch_request", "step, node"),
            ("task_p_pre_setuid", "step"),
            ("task_p_pre_launch", "step"),
        )
    )
    made.plugin("odd", f"from . import helper\n{body}", "task")
    made.start()
    done = made.run("true", user=NOBODY)
    said = ["task_p_slurmd_launch_request", "task_p_pre_setuid", "task_p_pre_launch"]
    assert (done.returncode, done.stderr.splitlines()) == (0, [f"nodectl: error: {call}" for call in said])


def test_a_hook_of_the_future_is_told_once_in_the_log(made: Node) -> None:
    path = made.plugin("odd", "def task_p_of_the_future(step):\n    return -1\n", "task")
    made.start()
    assert made.run("true", user=NOBODY).returncode == 0
    told = [line for line in made.logged().splitlines() if "of_the_future" in line]
    assert len(told) == 1
    assert told[0].startswith(f"nodectl daemon: {path}:4: task_p_of_the_future is unknown; nearest is task_p_")
