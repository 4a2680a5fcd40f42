"""--preload: tasks are forks of an interpreter that has imported their modules, and cannot tell."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from rootful.node import FORKS, NOBODY, OTHER, Node, running, wait_until
from rootful.preloaded import SHOW, module, proportional, script

WITH = "--preload=json,decimal"
PRELOADED = "import sys; print('preloaded_module' in sys.modules)\n"


def same(node: Node, *words: str, **how: object) -> str:
    """Run words with and without --preload: the same comes. Return the output."""
    with_it, without = (node.run(*option, *words, user=NOBODY, **how) for option in ((WITH,), ()))
    for one, other in zip(with_it.stdout.splitlines(), without.stdout.splitlines(), strict=False):
        assert one == other
    assert (with_it.returncode, with_it.stdout) == (without.returncode, without.stdout)
    assert without.stderr.replace("step 0", "") == with_it.stderr.replace("step 0", "")
    return with_it.stdout


def test_task_is_a_fork_of_the_interpreter_with_the_module(served: Node) -> None:
    env = module(served, "value = 1\n")
    path = script(served, PRELOADED)
    done = served.run("-n2", "--preload=preloaded_module", "python3", path, user=NOBODY, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nTrue\n", "")
    assert served.run("python3", path, user=NOBODY, env=env).stdout == "False\n"


@pytest.mark.parametrize("level", ["none", "default", "strict"])
def test_program_sees_what_it_sees_in_a_new_interpreter(served: Node, level: str) -> None:
    path = script(served, SHOW)
    words = (f"--secure={level}", "--cpu-bind=cores", "python3", path, "a b", "")
    shown = same(served, *words, env={"MARK": "x"}, stdin="line\n")
    assert "task_0" in shown


@pytest.mark.parametrize(
    "words",
    [
        ("-c", SHOW, "x"), ("-u", "-c", SHOW), ("-m", "script", "x"), ("-m", "no_such_module"), ("no_such_file.py",),
        ("./script.py", "y"), ("../scratch/script.py",),
    ],
    ids=["c", "u", "m", "no-module", "no-file", "relative", "above"],
)  # fmt: skip
def test_ways_to_name_a_program(served: Node, words: tuple[str, ...]) -> None:
    script(served, SHOW)
    same(served, "python3", *words)


@pytest.mark.parametrize("line", ["#!/usr/bin/env python3", "#!/usr/bin/python3", "#! /usr/bin/python3 -u "])
def test_script_is_executed_by_the_interpreter_of_its_first_line(served: Node, line: str) -> None:
    path = script(served, f"{line}\n{SHOW}")
    same(served, path, "x")
    env = module(served, "")
    done = served.run("--preload=preloaded_module", script(served, f"{line}\n{PRELOADED}"), user=NOBODY, env=env)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    "text",
    [
        "raise SystemExit(7)", "import sys; sys.exit('words')", "def f():\n  return 1 / 0\nf()",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "import os; os.abort()", "broken (",
        "import sys\nsys.excepthook = lambda *_: print('own hook')\nraise ValueError",
        "import atexit, threading, time\natexit.register(print, 'atexit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\nprint('main')",
        "print('not flushed', end='')", "import os; os._exit(3)", "import sys; sys.stdout.close(); 1 / 0",
        "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))) is C)",
        "import os\npid = os.fork()\nif pid == 0: raise SystemExit(4)\nprint(os.waitpid(pid, 0)[1])",
        "import subprocess as s; print(s.run(['sh', '-c', 'ls /proc/self/fd | wc -l'], capture_output=True).stdout)",
        "import multiprocessing as m\nif __name__ == '__main__': print(m.get_context('spawn').Pool(1).map(abs, [-1]))",
    ],
)  # fmt: skip
def test_program_ends_as_in_a_new_interpreter(served: Node, text: str) -> None:
    same(served, "python3", script(served, text))


def test_each_task_has_random_numbers_of_its_own(served: Node) -> None:
    path = script(served, "import random; print(random.random())")
    done = served.run("-n4", "--preload=random", "python3", path, user=NOBODY)
    assert len(set(done.stdout.split())) == 4


def test_record_has_status_time_and_process_of_the_program(served: Node) -> None:
    text = (
        "import os, time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
        "print(os.getpid(), flush=True)\nos._exit(5)"
    )
    done = served.run(WITH, "python3", script(served, text), user=NOBODY)
    assert done.returncode == 5
    tasks: Any = served.record(served.last_job())["tasks"]
    (task,) = tasks
    assert task["pid"] == int(done.stdout)
    assert task["user_seconds"] + task["system_seconds"] >= 0.3


def test_interpreter_with_little_address_space_takes_a_task(served: Node) -> None:
    """As of a user with `ulimit -v`: the texts of a task are short."""
    text = (
        "import resource\nsize = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20), resource.RLIM_INFINITY))\n"
    )
    env = module(served, text)
    path = script(served, PRELOADED)
    done = served.run("--preload=preloaded_module", "python3", path, user=NOBODY, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_program_that_is_no_python_runs_as_always_with_one_warning(served: Node) -> None:
    done = served.run("-n2", WITH, "echo", "hello", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "hello\nhello\n")
    assert done.stderr.count("--preload") == 1
    assert "its program is no Python program" in done.stderr
    done = served.run(WITH, "no-such-program", user=NOBODY)
    assert done.returncode == 2
    assert "execute 'no-such-program': No such file or directory" in done.stderr


def test_warning_comes_though_the_program_has_ended_before_the_interpreter_tells_why(served: Node) -> None:
    env = module(served, "import os, time\nw = os.write\nos.write = lambda *words: time.sleep(0.3) or w(*words)\n")
    done = served.run("--preload=preloaded_module", "echo", "hello", user=NOBODY, env=env)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "its program is no Python program" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("python3", "-O", "script.py"), "other options than -u, -m and -c"),
        (("env", "PYTHONSAFEPATH=1", "python3", "script.py"), "no Python program"),
    ],
)
def test_interpreter_with_options_of_its_own_is_a_new_one(served: Node, words: tuple[str, ...], why: str) -> None:
    script(served, "print('ran')")
    done = served.run(WITH, *words, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert why in done.stderr


def test_script_that_is_called_python_chooses_the_interpreter_itself(served: Node) -> None:
    script(served, '#!/bin/sh\nexec /usr/bin/python3 "$@"\n', "python3")
    done = served.run(WITH, "python3", "-c", "print(1)", user=NOBODY, env={"PATH": f"{served.scratch}:/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "its python is a script that chooses an interpreter" in done.stderr
    (served.scratch / "python3").unlink()


def test_prolog_that_changes_a_variable_of_python_gets_a_new_interpreter(served: Node) -> None:
    prolog = script(served, "#!/bin/sh\necho export PYTHONOPTIMIZE=1\n", "prolog.sh")
    path = script(served, "import sys; print(sys.flags.optimize)")
    done = served.run(WITH, f"--task-prolog={prolog}", "python3", path, user=NOBODY)
    assert done.stdout == "1\n"
    assert "its variables that Python reads when it begins" in done.stderr


def test_prolog_sets_variables_of_the_program(served: Node) -> None:
    prolog = script(served, "#!/bin/sh\necho export OF_PROLOG=1\necho unset GONE\n", "prolog.sh")
    text = (
        "import os; print(os.environ['OF_PROLOG'], 'GONE' in os.environ, flush=True)\n"
        "os.system('echo $OF_PROLOG $GONE')"
    )
    path = script(served, text)
    done = served.run(WITH, f"--task-prolog={prolog}", "python3", path, user=NOBODY, env={"GONE": "here"})
    assert (done.stdout, done.stderr) == ("1 False\n1\n", "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise SystemExit('words\\nof two lines')", "SystemExit: words of two lines"),
        ("import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
         "it starts 1 thread, and a process with threads cannot be forked"),
        ("import os; os._exit(3)", "interpreter ended with exit code 3 before it had imported the modules"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "interpreter was ended by signal 9 before"),
        ("import os, time; os.closerange(3, 100); time.sleep(600)", "interpreter was ended by signal 9 before"),
        ("import os, sys; os.write(int(sys.argv[2]), b'x' * 100_000)", "interpreter was ended by signal 9 before"),
        ("import os, sys; os.write(int(sys.argv[2]), b'failed \\x1b[31m' + b'y' * 600 + b'\\n')", "yyy"),
    ],
)  # fmt: skip
def test_module_that_cannot_be_preloaded_ends_the_step_before_its_tasks(served: Node, text: str, why: str) -> None:
    env = module(served, text)
    path = script(served, "print('ran')")
    done = served.run("--preload=preloaded_module", "python3", path, user=NOBODY, env=env)
    assert done.returncode != 0
    assert done.stdout == ""
    assert why in done.stderr
    assert "\x1b" not in done.stderr


# What a module does to the interpreter once a task comes.
HOSTILE = """
import os, signal, sys
_fork, _pid = os.fork, os.getpid()
def words(text):
    os.write(int(sys.argv[2]), text)
def fork():
    if os.getpid() == _pid:
        {}
    return _fork()
os.fork = fork
"""


@pytest.mark.parametrize(
    "does",
    [
        "os._exit(1)", "os.kill(os.getpid(), signal.SIGKILL)", "raise OSError", "raise ValueError",
        "words(b'took 1 1\\n')",
        "words(b'took 1 %d\\n' % os.getppid()); os._exit(0)", "words(b'took 1 %d\\n' % os.getpid()); os._exit(0)",
        "words(b'took 2 4\\ntook 1 x\\ntook 1\\n\\n\\xff\\n'); os._exit(0)", "words(b'declined 1 nonsense\\n')",
        "words(b'x' * 70000)", "os.closerange(3, 100)",
    ],
)  # fmt: skip
def test_lies_of_the_interpreter_leave_the_task_with_one_of_its_own(served: Node, does: str) -> None:
    env = module(served, HOSTILE.format(does))
    path = script(served, PRELOADED + "import os; print(open('/proc/self/cgroup').read().rpartition('/')[2])")
    done = served.run("--preload=preloaded_module", "python3", path, user=NOBODY, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("False\ntask_0\n\n", "True\ntask_0\n\n")


def test_orphan_of_a_task_does_not_become_another_task(served: Node) -> None:
    """The interpreter names a process of the step that it has not forked."""
    place = served.scratch / "orphan"
    place.mkdir()
    place.chmod(0o777)
    does = f"words(b'took 2 ' + open('{place}/pid', 'rb').read() + b'\\n')"
    env = module(served, HOSTILE.format(f"if os.path.exists('{place}/pid'): {does}"))
    text = (
        "import os, subprocess, time\nif os.environ['SLURM_PROCID'] == '0':\n"
        f"  os.system('(setsid sleep 600 & echo -n $! > {place}/new); mv {place}/new {place}/pid')\n"
        f"while not os.path.exists('{place}/pid'): time.sleep(0.02)\n"
        f"pid = open('{place}/pid').read()\nprint(open(f'/proc/{{pid}}/cgroup').read().rpartition('/')[2].strip())"
    )
    prolog = script(
        served, f"#!/bin/sh\n[ $SLURM_PROCID = 0 ] || until [ -e {place}/pid ]; do sleep 0.02; done\n", "prolog.sh"
    )
    words = ("-n2", "--preload=preloaded_module", f"--task-prolog={prolog}", "python3", script(served, text))
    done = served.run(*words, user=NOBODY, env=env)
    assert (done.returncode, done.stdout) == (0, "task_0\ntask_0\n"), done.stderr


@pytest.mark.parametrize("ends", ["cancel", "time", "kill"])
def test_step_ends_whose_interpreter_is_stopped(node: Node, ends: str) -> None:
    env = module(node, HOSTILE.format("open('stopped', 'w').close(); os.kill(os.getpid(), signal.SIGSTOP)"))
    node.scratch.chmod(0o777)
    limit = ("--time=0:01",) if ends == "time" else ()
    words = (*limit, "--preload=preloaded_module", "python3", "-c", "print('ran')")
    client = node.popen(*words, user=NOBODY, env=env)
    wait_until((node.scratch / "stopped").exists, "the interpreter is stopped")
    if ends == "cancel":
        assert node.nodectl("cancel", str(node.last_job()), user=NOBODY).returncode == 0
    elif ends == "kill":
        assert node.nodectl("cancel", "--signal=KILL", str(node.last_job()), user=NOBODY).returncode == 0
    out, _ = client.communicate()
    assert client.returncode != 0
    assert out == ""
    node.assert_clean()


def test_import_that_does_not_end_is_cancelled(node: Node) -> None:
    node.scratch.chmod(0o777)
    env = module(node, "import time; open('begun', 'w').close(); time.sleep(600)")
    client = node.popen("--preload=preloaded_module", "python3", "-c", "", user=NOBODY, env=env)
    wait_until((node.scratch / "begun").exists, "the import has begun")
    assert node.nodectl("cancel", str(node.last_job()), user=NOBODY).returncode == 0
    client.communicate()
    assert client.returncode != 0
    node.assert_clean()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_the_program(node: Node, number: signal.Signals) -> None:
    node.scratch.chmod(0o777)
    text = (
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(8))\nopen('begun', 'w').close()\nsignal.pause()"
    )
    client = node.popen("-n1", WITH, "python3", "-c", text, user=NOBODY)
    wait_until((node.scratch / "begun").exists, "the program has begun")
    assert node.nodectl("cancel", f"--signal={number.name}", str(node.last_job()), user=NOBODY).returncode == 0
    client.communicate()
    wanted = {signal.SIGTERM: 9, signal.SIGUSR1: 8}.get(number, 128 + number)
    assert client.returncode == wanted


def test_interpreter_that_dies_between_two_tasks_ends_no_task(node: Node) -> None:
    node.scratch.chmod(0o777)
    env = module(node, "import os; open('pid', 'w').write(str(os.getpid()))")
    text = (
        "import os, signal, time\nos.kill(int(open('pid').read()), signal.SIGKILL)\n"
        "open('killed', 'w').close()\nprint('first')"
    )
    prolog = script(node, "#!/bin/sh\n[ $SLURM_PROCID = 0 ] || until [ -e killed ]; do sleep 0.02; done\n", "prolog.sh")
    rest = f"import os; print('second') if os.environ['SLURM_PROCID'] == '1' else exec({text!r})"
    words = ("-n2", "--preload=preloaded_module", f"--task-prolog={prolog}", "python3", "-c", rest)
    done = node.run(*words, user=NOBODY, env=env)
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["first", "second"]), done.stderr
    assert "the interpreter was ended by signal 9: from now on tasks start one of their own" in done.stderr


def test_memory_limit_ends_the_program_and_no_other(node: Node) -> None:
    text = "import os\nx = bytearray(10**9) if os.environ['SLURM_PROCID'] == '1' else 0\nprint('well')"
    done = node.run("-n2", "--mem=96M", WITH, "python3", "-c", text, user=NOBODY)
    if "does not limit memory" in done.stderr:
        pytest.skip("no memory controller")
    assert "out of memory: task 1: killed process" in done.stderr
    assert done.stdout == "well\n"


def test_two_users_have_interpreters_of_their_own(node: Node) -> None:
    text = "import os; print(os.getuid(), os.stat('/proc/self').st_uid)"
    for user in (NOBODY, OTHER):
        assert node.run(WITH, "python3", "-c", text, user=user).stdout == f"{user.pw_uid} {user.pw_uid}\n"
    assert node.run(WITH, "python3", "-c", text).stdout == "0 0\n"


def test_interpreter_has_nothing_of_roots(node: Node) -> None:
    node.scratch.chmod(0o777)
    text = (
        "import os\nopen('seen', 'w').write(repr([os.getresuid(), os.getgroups(), "
        "sorted(os.readlink(f'/proc/self/fd/{fd}').partition(':')[0] "
        "for fd in range(3, 20) if os.path.exists(f'/proc/self/fd/{fd}'))"
        ", [line for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapPrm', 'CapInh'))], "
        "open('/proc/self/cgroup').read().rpartition('/')[2].strip(), sorted(os.environ) == sorted(set(os.environ))]))"
    )
    done = node.run("--preload=preloaded_module", "python3", "-c", "", user=NOBODY, env=module(node, text))
    assert done.returncode == 0, done.stderr
    ids, groups, fds, capabilities, cgroup, _ = eval((node.scratch / "seen").read_text())  # noqa: S307
    assert ids == (NOBODY.pw_uid,) * 3
    assert 0 not in groups
    assert [fd for fd in fds if fd not in ("pipe", "socket") and not fd.startswith(str(node.scratch))] == []
    assert all(line.split()[1] == "0" * 16 for line in capabilities)
    assert cgroup == "preload"


def test_what_does_not_go_with_it_is_refused(served: Node) -> None:
    for words, why in (
        (("--preload=a-b",), "'a-b' is no name of a Python module"),
        (("--pty", "--preload=json"), "not with --pty"),
        (("-n2", "--mpi=pmi2", "--preload=json"), "not with --mpi=pmi2"),
    ):
        done = served.run(*words, "python3", "-c", "", user=NOBODY)
        assert done.returncode != 0
        assert why in done.stderr


@pytest.mark.parametrize(
    ("kind", "hook"),
    [
        ("spank", "slurm_spank_task_init_privileged(spank, ac, argv)"),
        ("spank", "slurm_spank_task_post_fork(spank, ac, argv)"),
        ("task", "task_p_pre_launch_priv(step)"),
        ("task", "task_p_pre_launch_priv_plan(step, task)"),
    ],
)
def test_plugin_that_acts_as_root_on_each_task_is_not_gone_round(kind: str, hook: str) -> None:
    """As one that gives each task a network or a /tmp of its own: a fork of the interpreter would be without it."""
    node = Node(task_plugin=["task/affinity", "task/cgroup", *(["task/own"] if kind == "task" else [])])
    node.plugin("own", f"def {hook}:\n    return {'[]' if 'plan' in hook else 0}\n", kind)
    if kind == "spank":
        node.plugstack("required own.py\n")
    try:
        node.start()
        imported = node.scratch / "imported"
        (node.scratch / "told.py").write_text(f"open({str(imported)!r}, 'w')\n", encoding="utf-8")
        done = node.run("--preload=told", f"--export=ALL,PYTHONPATH={node.scratch}", "python3", "-c", "", user=NOBODY)
        assert done.returncode == 1
        assert f"--preload: not with a plugin that has {hook.partition('(')[0]}: what it does as root" in done.stderr
        assert not imported.exists()
    finally:
        node.close()


def test_pid_namespace_is_refused() -> None:
    with running(job_container_type="job_container/namespace", container_namespaces=["pid"]) as node:
        done = node.run(WITH, "python3", "-c", "", user=NOBODY)
        assert done.returncode != 0
        assert "a pid namespace of their own" in done.stderr


@pytest.mark.parametrize("kind", ["cgroup", "linuxproc"])
@pytest.mark.parametrize("forks", [False, True])
def test_trackers_and_forks(kind: str, *, forks: bool) -> None:
    with running(proctrack_type=f"proctrack/{kind}", **{**FORKS, "always_fork": forks}) as node:
        env = module(node, "")
        text = PRELOADED + "import os; os.system('setsid sleep 600 & :')"
        done = node.run("-n2", "--preload=preloaded_module", "python3", script(node, text), user=NOBODY, env=env)
        assert (done.returncode, done.stdout, done.stderr) == (0, "True\nTrue\n", "")
        node.assert_clean()


def test_without_cgroups_program_and_interpreter_end_with_a_killed_step_runner() -> None:
    with running(proctrack_type="proctrack/linuxproc", task_plugin=["task/affinity"], **FORKS) as node:
        env = module(node, "import os; warm = os.getpid()")
        text = (
            "import os, preloaded_module, time\n"
            "open('new', 'w').write(f'{os.getppid()} {os.getpid()} {preloaded_module.warm}')\n"
            "os.rename('new', 'pids')\ntime.sleep(600)"
        )
        client = node.popen("--preload=preloaded_module", "python3", "-c", text, user=NOBODY, env=env)
        wait_until((node.scratch / "pids").exists, "the program has begun")
        runner, *users = map(int, (node.scratch / "pids").read_text().split())
        ends = [os.pidfd_open(pid) for pid in users]
        try:
            os.kill(runner, signal.SIGKILL)
            for end in ends:
                wait_until(lambda end=end: select.select([end], [], [], 0)[0], "it has ended with the step runner")
            client.communicate()
        finally:
            for end in ends:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(end, signal.SIGKILL)
                os.close(end)
        assert client.returncode != 0


def _has_text(place: Path) -> bool:
    return place.exists() and bool(place.read_text())


def test_eight_tasks_share_the_memory_of_the_modules(node: Node) -> None:
    node.scratch.chmod(0o777)
    env = module(node, "table = [str(number) * 8 for number in range(400_000)]\n")
    text = (
        "import preloaded_module, os, time\n"
        "open('begun' + os.environ['SLURM_PROCID'], 'w').write(str(os.getpid()))\n"
        "while not os.path.exists('end'): time.sleep(0.05)"
    )
    found = {}
    places = [node.scratch / f"begun{number}" for number in range(8)]
    for option in ("--preload=preloaded_module", "--export=ALL"):
        client = node.popen("-n8", "--overcommit", option, "python3", "-c", text, user=NOBODY, env=env)
        wait_until(lambda: all(map(_has_text, places)), "all have begun")
        pids = [int(place.read_text()) for place in places]
        found[option] = proportional(pids)
        (node.scratch / "end").touch()
        assert client.wait() == 0
        for place in (*places, node.scratch / "end"):
            place.unlink()
    assert found["--preload=preloaded_module"] <= 0.4 * found["--export=ALL"], found


def test_further_step_of_a_job_has_an_interpreter_of_its_own(node: Node) -> None:
    words = node.command("run", WITH, "python3", "-c", "import json; print(json.dumps(2))")
    done = node.run("sh", "-c", f"{shlex.join(words)}; {shlex.join(words)}", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "2\n2\n"), done.stderr


def test_trace_has_the_rows_of_every_task(served: Node) -> None:
    served.run("-n2", WITH, "python3", "-c", "", user=NOBODY)
    calls = [line["call"] for line in served.trace(served.last_job())]
    assert calls.count("exec") == 2
