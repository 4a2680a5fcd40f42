"""bulk --preload: the commands are forks of an interpreter that has imported their modules."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from rootful.node import NOBODY, Node, wait_until
from rootful.preloaded import module, script

MANY = [str(number) for number in range(60)]
OPTION = "--preload=preloaded_module"


def bulk(node: Node, *words: str, **how: object) -> list[str]:
    """Run `nodectl bulk` as a user. Return the lines of its output; there are no errors."""
    done = node.nodectl("bulk", *words, user=NOBODY, **how)  # type: ignore[arg-type]
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_commands_have_the_module_and_nothing_of_each_other(served: Node) -> None:
    """More commands than the trace has, so that lanes would run them."""
    env = module(served, "import random\nvalue = []\n")
    text = (
        "import os, random, sys\nbefore = 'preloaded_module' in sys.modules\nimport preloaded_module\n"
        "preloaded_module.value.append(1)\nsys.path.append('mine')\nos.environ['MINE'] = '1'\n"
        "print(before, sys.argv[1:], len(preloaded_module.value), sys.path.count('mine'), random.random(), os.getpid(),"
        " open('/proc/self/cgroup').read().rpartition('/')[2].strip() in ('task_0', 'task_1'))"
    )
    lines = bulk(served, "-k", "-j2", OPTION, f"python3 {script(served, text)} {{}}", ":::", *MANY, env=env)
    fields = [line.split() for line in lines]
    assert [" ".join(field[:4] + field[6:]) for field in fields] == [f"True ['{value}'] 1 1 True" for value in MANY]
    assert len({field[4] for field in fields}) == len({field[5] for field in fields}) == len(MANY)


def test_words_of_the_shell_run_in_a_shell_with_one_warning(served: Node) -> None:
    env = module(served, "")
    done = served.nodectl("bulk", OPTION, "python3 -c 'print(1)' | cat #", ":::", *"abc", user=NOBODY, env=env)
    assert (done.returncode, done.stdout) == (0, "1\n1\n1\n")
    assert done.stderr.count("--preload") == 1
    assert " starts without it, because its program is no Python program" in done.stderr


def test_commands_begin_with_a_script_of_the_users(served: Node) -> None:
    env = module(served, "")
    path = script(served, "#!/usr/bin/env python3\nimport sys; print('preloaded_module' in sys.modules, sys.argv[1])")
    assert bulk(served, "-k", OPTION, path, ":::", "a", "b", env=env) == ["True a", "True b"]


def test_statuses_signals_and_usage_are_in_the_log(served: Node) -> None:
    env = module(served, "import time")
    text = (
        "import os, sys, time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"
        "os._exit(7) if sys.argv[1] == 'a' else os.kill(os.getpid(), 9)"
    )
    log, usage = served.scratch / "log", served.scratch / "usage"
    for path in (log, usage):
        path.touch()
        path.chmod(0o666)
    words = (f"--joblog=+{log}", f"--usage-log=+{usage}", OPTION, f"python3 {script(served, text)}")
    done = served.nodectl("bulk", *words, ":::", "a", "b", user=NOBODY, env=env)
    assert done.returncode == 2
    rows = sorted(line.split("\t")[6:8] for line in log.read_text(encoding="utf-8").splitlines()[1:])
    assert rows == [["0", "9"], ["7", "0"]]
    used = [json.loads(line) for line in usage.read_text(encoding="utf-8").splitlines()]
    assert [line["user_seconds"] + line["system_seconds"] >= 0.2 for line in used] == [True, True]
    tasks: Any = served.record(served.last_job())["tasks"]
    assert sum(task["user_seconds"] + task["system_seconds"] for task in tasks) >= 0.4


def test_output_of_each_command_is_its_own(served: Node) -> None:
    env = module(served, "print('of the import')")
    text = "import sys; print('out', sys.argv[1]); print('err', sys.argv[1], file=sys.stderr)"
    words = ("-k", "--tag", OPTION, f"python3 {script(served, text)}", ":::", "a", "b")
    done = served.nodectl("bulk", *words, user=NOBODY, env=env)
    assert done.stdout.splitlines() == ["a\tout a", "b\tout b"]
    assert done.stderr.splitlines() == ["a\terr a", "b\terr b"]


def test_time_limit_ends_a_command_and_what_it_started(served: Node) -> None:
    env = module(served, "")
    text = (
        "import os, sys, time\nif sys.argv[1] == 'slow':\n  os.system('setsid sleep 600 &')\n  time.sleep(600)\n"
        "print(sys.argv[1])"
    )
    words = ("-k", "-j1", "--timeout=2", OPTION, f"python3 {script(served, text)}", ":::", "slow", "fast", "fast")
    done = served.nodectl("bulk", *words, user=NOBODY, env=env)
    assert done.returncode == 1
    assert done.stdout == "fast\nfast\n"


def test_commands_go_on_without_an_interpreter_that_has_died(served: Node) -> None:
    env = module(served, "import os; pid = os.getpid()")
    text = (
        "import os, signal, sys\nloaded = sys.modules.get('preloaded_module')\nprint(loaded is not None)\n"
        "if loaded and sys.argv[1] == '3': os.kill(loaded.pid, signal.SIGKILL)\n"
    )
    words = ("-k", "-j1", OPTION, f"python3 {script(served, text)}", ":::", *MANY)
    done = served.nodectl("bulk", *words, user=NOBODY, env=env)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    assert len(found) == len(MANY)
    assert found[:4] == ["True"] * 4
    assert found[-10:] == ["False"] * 10
    assert done.stderr.count("the interpreter was ended by signal 9") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_bulk_leaves_nothing(node: Node, number: signal.Signals) -> None:
    node.scratch.chmod(0o777)
    env = module(node, "")
    text = "import os, sys, time; open('begun' + sys.argv[1], 'w').close(); time.sleep(600)"
    words = ("bulk", "-j2", OPTION, f"python3 {script(node, text)}", ":::", "a", "b", "c")
    client = subprocess.Popen(
        node.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=node.environment(env), cwd=node.scratch, user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[],
    )  # fmt: skip
    wait_until(lambda: all((node.scratch / f"begun{one}").exists() for one in "ab"), "two commands have begun")
    client.send_signal(number)
    if number == signal.SIGINT:
        client.send_signal(number)
    client.communicate()
    assert client.returncode != 0
    assert not (node.scratch / "begunc").exists()
    node.assert_clean()
