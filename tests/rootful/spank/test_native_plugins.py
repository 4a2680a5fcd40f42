"""Compiled plugins in real steps: loaded once, isolated from one another's steps, dangerous to nobody else."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.hook_faults import HOOK_SECONDS, LATE
from rootful.native import native
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until

SAYS = 'if (spank_remote(sp)) spank_setenv(sp, "SAID", "{word}", 1);'
ECHO = ("sh", "-c", 'echo "$SAID"')


@pytest.fixture(scope="module")
def module_node() -> Iterator[Node]:
    with running(spank_hook_timeout=HOOK_SECONDS) as started:
        yield started


@pytest.fixture
def node(module_node: Node) -> Iterator[Node]:
    """The module's node, with no plugins but those of the test."""
    for path in module_node.scratch.iterdir():
        path.unlink()
    yield module_node
    module_node.plugstack("")
    if module_node.daemon is None:
        module_node.start()
    module_node.assert_clean()


def test_hooks_of_a_compiled_plugin_run_in_the_command_and_in_the_step(node: Node) -> None:
    native(node, "hello", init='slurm_info("%s", spank_remote(sp) ? "remote" : "local");' + SAYS.format(word="hello"))
    node.plugstack("required hello.so\n")
    done = node.run("-v", *ECHO, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert "nodectl: local" in done.stderr
    assert "nodectl: remote" in done.stderr


def test_a_plugin_compiles_with_the_directory_that_the_command_prints(node: Node) -> None:
    shown = node.nodectl("plugins", "--include", user=NOBODY)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert json.loads(node.nodectl("plugins", "--include", "--json").stdout) == {"include": shown.stdout.rstrip("\n")}
    source = node.dir / "users.c"
    source.write_text(
        "#include <slurm/spank.h>\nSPANK_PLUGIN(users, 1);\n"
        'int slurm_spank_task_init(spank_t sp, int ac, char **av) { return spank_setenv(sp, "SAID", av[ac - 1], 1); }\n'
    )
    library = node.dir / "users.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-I" + shown.stdout.rstrip("\n"), source, "-o", library], check=True)
    node.plugstack(f"required {library} hello\n")
    assert node.run(*ECHO, user=NOBODY).stdout == "hello\n"


def test_each_step_finds_the_plugins_statics_as_they_were_compiled(node: Node) -> None:
    text = "static int calls;\n"
    body = 'char t[9]; snprintf(t, sizeof t, "%d", ++calls); if (spank_remote(sp)) spank_setenv(sp, "SAID", t, 1);'
    native(node, "counter", text, init=body)
    node.plugstack("required counter.so\n")
    assert [node.run(*ECHO, user=NOBODY).stdout for _ in range(3)] == ["1\n"] * 3


def test_a_step_after_a_change_of_the_plugin_runs_the_new_one_and_steps_before_it_go_on(node: Node) -> None:
    text = 'static const char *word = "{}";\n'
    exits = 'slurm_spank_log("%s ends", word);'
    native(node, "changing", text.format("old"), init=SAYS.format(word="old"), exit=exits)
    node.plugstack("required changing.so\n")
    assert node.run(*ECHO, user=NOBODY).stdout == "old\n"
    client = node.popen("sh", "-c", f"echo; while ! [ -e {node.scratch}/go ]; do sleep 0.02; done", user=NOBODY)
    assert client.stdout is not None
    client.stdout.readline()
    for word in ("new", "newer"):
        native(node, "changing", text.format(word), init=SAYS.format(word=word), exit=exits)
        assert node.run(*ECHO, user=NOBODY).stdout == f"{word}\n"
    (node.scratch / "go").touch()
    _, errors = client.communicate(timeout=PATIENCE)
    assert (client.returncode, errors.count("old ends")) == (0, 2)  # the step's exit hook and the command's
    assert node.run(*ECHO, user=NOBODY).stdout == "newer\n"


def test_what_leaves_nodectl_knows_nothing_of_the_preloaded_host(node: Node) -> None:
    native(node, "hello", init=SAYS.format(word="x"))
    node.plugstack("required hello.so\n")
    program = ("sh", "-c", 'echo "${LD_PRELOAD-none}"; env | grep -c NODECTL_AGAIN; grep -c _spank_host /proc/$$/maps')
    assert node.run(*program, user=NOBODY).stdout == "none\n0\n0\n"
    assert node.run(*program, user=NOBODY, env={"LD_PRELOAD": "libm.so.6"}).stdout == "libm.so.6\n0\n0\n"


@pytest.mark.parametrize("first", ["python", "c"])
def test_python_and_compiled_plugins_see_one_step_in_the_order_of_the_stack(node: Node, first: str) -> None:
    body = """char said[99] = "";
        if (!spank_remote(sp)) return 0;
        spank_getenv(sp, "SAID", said, 90); strcat(said, " c"); spank_setenv(sp, "SAID", said, 1);"""
    native(node, "inc", init=body, task_init_privileged=body)
    text = """
from nodectl.spank import SpankError, spank_getenv, spank_remote, spank_setenv
def slurm_spank_init(sp, ac, argv):
    if spank_remote(sp):
        try:
            old = spank_getenv(sp, "SAID")
        except SpankError:
            old = ""
        spank_setenv(sp, "SAID", old + " python")
slurm_spank_task_init_privileged = slurm_spank_init
"""
    node.plugin("inpython", text)
    order = ["inpython", "inc.so"] if first == "python" else ["inc.so", "inpython"]
    node.plugstack("".join(f"required {name}\n" for name in order))
    words = ["python", "c"] if first == "python" else ["c", "python"]
    assert node.run(*ECHO, user=NOBODY).stdout.split() == words * 2


CONSTRUCTORS = {
    "crash": ("raise(SIGSEGV);", "crashed or exited"),
    "exit": ("_exit(0);", "crashed or exited"),
    "hang": ("for (;;) pause();", "took longer than"),
}
CONSTRUCTOR = """
__attribute__((constructor)) static void begin(void) {{ if (geteuid() == 0) {{ {body} }} }}
"""


@pytest.mark.parametrize("kind", CONSTRUCTORS)
def test_a_plugin_that_cannot_be_opened_costs_its_own_step_at_most(node: Node, kind: str) -> None:
    body, words = CONSTRUCTORS[kind]
    native(node, "bad", CONSTRUCTOR.format(body=body), init="")
    native(node, "good", init=SAYS.format(word="good"))
    for line, status in (("required bad.so", 1), ("optional bad.so", 0)):
        node.plugstack(f"{line}\noptional good.so\n")
        done = node.run(*ECHO, user=NOBODY)
        assert (done.returncode, done.stdout) == (status, "" if status else "good\n"), done.stderr
        if status:
            assert words in done.stderr
            assert "bad.so" in done.stderr


def test_a_plugin_that_somebody_else_may_write_is_not_opened_by_root(node: Node) -> None:
    library = native(node, "loose", init='write(2, "ran as root", 11 * (geteuid() == 0)) < 0 ? abort() : (void)0;')
    library.chmod(0o666)
    node.plugstack("required loose.so\n")
    done = node.run("true", user=NOBODY)
    assert done.returncode == 1
    assert "not trusted" in done.stderr
    assert "ran as root" not in done.stderr + node.logged()


@pytest.mark.parametrize("hook", ["init", "init_post_opt", "user_init", "task_post_fork", "task_exit", "exit"])
@pytest.mark.parametrize("end", ["raise(SIGSEGV);", "_exit(0);", "exit(0);"])
def test_a_plugin_that_ends_the_step_runner_is_named_with_its_hook(node: Node, hook: str, end: str) -> None:
    native(node, "deadly", **{hook: f"if (spank_remote(sp)) {{ {end} }}"})
    node.plugstack("optional deadly.so\n")
    done = node.run("-n2", "sleep", "0.1", user=NOBODY)
    assert done.returncode == 1
    assert re.search(rf"slurm_spank_{hook} of plugin deadly", done.stderr), done.stderr
    assert node.run("true", user=NOBODY).returncode == 1
    node.plugstack("")
    assert node.run("true", user=NOBODY).returncode == 0


@pytest.mark.parametrize("hook", ["task_init_privileged", "task_init"])
def test_a_plugin_that_ends_a_task_is_named_with_its_hook(node: Node, hook: str) -> None:
    native(node, "deadly", **{hook: "int t; spank_get_item(sp, S_TASK_ID, &t); if (t == 1) raise(SIGSEGV);"})
    node.plugstack("optional deadly.so\n")
    done = node.run("-n2", "sh", "-c", "echo $SLURM_PROCID", user=NOBODY)
    assert (done.returncode, done.stdout) == (139, "0\n")
    assert f"task 1: it ended inside slurm_spank_{hook} of plugin deadly" in done.stderr


@pytest.mark.parametrize("body", ["for (;;) pause();", "for (volatile int i = 0;; i++) ;"])
@pytest.mark.parametrize(("line", "status"), [("required", 1), ("optional", 0)])
@pytest.mark.parametrize("hook", ["init", "task_init", "exit"])
def test_a_hook_that_hangs_is_a_failure_of_that_hook(node: Node, hook: str, line: str, status: int, body: str) -> None:
    native(node, "slow", **{hook: f"if (spank_remote(sp)) {{ {body} }}"})
    native(node, "after", init="")
    node.plugstack(f"{line} slow.so\nrequired after.so\n")
    before = len(node.logged())
    done = node.run("echo", "ran", user=NOBODY)
    ran = "" if status and hook != "exit" else "ran\n"
    assert (done.returncode, done.stdout) == (status, ran), done.stderr
    if line == "required":
        assert f"plugin slow: slurm_spank_{hook}: {LATE}" in done.stderr + node.logged()[before:]


def test_a_compiled_plugin_may_execute_its_own_program_around_the_users(node: Node) -> None:
    body = """char **argv, **env, *mine[64]; int n, i, k = 0;
        spank_get_item(sp, S_JOB_ARGV, &n, &argv); spank_get_item(sp, S_JOB_ENV, &env);
        mine[k++] = "sh"; mine[k++] = "-c"; mine[k++] = "echo wrapped; exec \\"$0\\" \\"$@\\"";
        for (i = 0; i < n && k < 63; i++) mine[k++] = argv[i];
        mine[k] = NULL; execve("/bin/sh", mine, env); return -1;"""
    native(node, "wrap", task_init=body)
    node.plugstack("required wrap.so\n")
    done = node.run("sh", "-c", 'echo "$SLURM_PROCID $SLURM_JOB_ID"; exit 4', user=NOBODY)
    assert (done.returncode, done.stdout) == (4, f"wrapped\n0 {node.last_job()}\n"), done.stderr


def test_a_private_node_runs_compiled_plugins_too(node: Node) -> None:
    native(node, "hello", init=SAYS.format(word="hello"))
    node.plugstack("required hello.so\n")
    node.stop()
    done = node.run(*ECHO)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    node.start()


def test_what_a_plugin_printed_is_printed_once(node: Node) -> None:
    native(node, "printer", init='if (spank_remote(sp)) printf("from init %d\\n", (int)getpid());')
    node.plugstack("required printer.so\n")
    assert node.run("-n4", "true", user=NOBODY).returncode == 0
    assert len(re.findall("from init", node.logged())) == 1


def test_a_vanished_plugin_file_is_told_and_comes_back(node: Node) -> None:
    library = native(node, "hello", init=SAYS.format(word="hello"))
    node.plugstack(f"required {library}\n")
    assert node.run(*ECHO, user=NOBODY).stdout == "hello\n"
    aside = Path(shutil.move(library, node.dir / "aside.so"))
    assert node.run(*ECHO, user=NOBODY).returncode == 1
    shutil.move(aside, library)
    os.utime(library)
    assert node.run(*ECHO, user=NOBODY).stdout == "hello\n"


def test_killing_the_forkserver_while_it_begins_anew_loses_no_later_step(node: Node) -> None:
    native(node, "hello", init=SAYS.format(word="one"))
    node.plugstack("required hello.so\n")
    assert node.run(*ECHO, user=NOBODY).stdout == "one\n"
    native(node, "hello", init=SAYS.format(word="two"))
    assert node.daemon is not None
    pid = node.daemon.pid
    client = node.popen(*ECHO, user=NOBODY)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    client.communicate(timeout=PATIENCE)
    wait_until(lambda: node.run(*ECHO, user=NOBODY).stdout == "two\n", "steps run again")


def test_compiled_plugins_run_around_a_job_and_beside_the_service(node: Node) -> None:
    says = 'slurm_info("context %d uid %d", (int)spank_context(), (int)getuid());'
    native(node, "everywhere", init=says, job_prolog=says, job_epilog=says, slurmd_exit=says)
    node.plugstack("required everywhere.so\n")
    node.restart()
    assert node.run("-v", "true", user=NOBODY).returncode == 0
    wait_until(lambda: node.logged().count("context 5 uid 0") == 2, "prolog and epilog have run")
    node.stop()
    assert node.logged().count("context 4 uid 0") == 2  # init and slurmd_exit
    node.start()


@pytest.mark.parametrize("hook", ["job_prolog", "slurmd_init"])
def test_a_compiled_plugin_that_crashes_outside_of_the_step_is_named(node: Node, hook: str) -> None:
    native(node, "deadly", **{hook: "raise(SIGSEGV);"})
    node.plugstack("required deadly.so\n")
    if hook == "job_prolog":
        done = node.run("true", user=NOBODY)
        assert done.returncode == 1
        said = done.stderr
    else:
        node.stop()
        with pytest.raises(AssertionError):
            node.start()
        said = node.logged()
        node.daemon = None
        node.plugstack("")
        node.start()
    assert re.search(rf"deadly.*slurm_spank_{hook}.*SIGSEGV", said), said


def test_clock_of_a_hook_rings_after_a_compiled_plugin_has_taken_its_signal(node: Node) -> None:
    native(node, "taker", init="signal(SIGALRM, SIG_IGN); signal(SIGCHLD, SIG_IGN);")
    node.plugin("hangs", "import time\ndef slurm_spank_user_init(sp, ac, argv):\n    time.sleep(60)\n")
    node.plugstack("required taker.so\nrequired hangs\n")
    done = node.run("true", user=NOBODY)
    assert done.returncode == 1
    assert f"plugin hangs: slurm_spank_user_init: {LATE}" in done.stderr
    node.plugstack("required taker.so\n")
    assert node.run("-n2", "sh", "-c", "exit 3", user=NOBODY).returncode == 3


@pytest.mark.parametrize("leaves", ["sleep(60);", "setsid(); if (fork() == 0) sleep(60); _exit(0);"])
@pytest.mark.parametrize("then", ["", "abort();"])
def test_a_process_that_opening_a_plugin_leaves_behind_does_not_keep_the_next_daemon_from_starting(
    node: Node, leaves: str, then: str
) -> None:
    text = f"""
__attribute__((constructor)) static void begin(void)
{{
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen("/proc/self/comm", "r");
    if (file == NULL || getline(&line, &size, file) < 0 || strcmp(line, "nodectl-fork\\n") != 0)
        return;
    if (fork() == 0) {{ {leaves} _exit(0); }}
    usleep(20000);
    {then}
}}
"""
    native(node, "leaves", text, task_exit="")
    node.plugstack("required leaves.so\n")
    done = node.run("true", user=NOBODY)
    assert done.returncode == 1
    assert ("opening it ended the process" if then else "opening it leaves a process running") in done.stderr
    node.restart()
    node.plugstack("")
    assert node.run("true", user=NOBODY).returncode == 0


DIES_LOADING = {
    "body": "import os\nif open('/proc/self/comm').read().startswith('stepd'): os._exit(3)\n",
    "init": "import os\ndef init():\n    if open('/proc/self/comm').read().startswith('stepd'): os.abort()\n",
}


@pytest.mark.parametrize("part", DIES_LOADING)
def test_a_step_runner_that_dies_while_it_loads_a_plugin_names_it(node: Node, part: str) -> None:
    node.plugin("good", "def slurm_spank_init(sp, ac, argv):\n    return 0\n")
    node.plugin("dies", DIES_LOADING[part] + "def slurm_spank_task_exit(sp, ac, argv):\n    return 0\n")
    node.plugstack("required good\nrequired dies\n")
    done = node.run("true", user=NOBODY)
    assert done.returncode == 1
    assert "the step runner died in loading of plugin dies" in done.stderr
