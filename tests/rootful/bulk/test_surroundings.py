"""`nodectl bulk` where the step sees other directories than the command, may write few, waits for its turn, or has no
service.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from rootful.contained import contained
from rootful.node import NOBODY, PATIENCE, Node, running


def test_in_a_container_with_directories_of_its_own_outputs_are_kept_elsewhere() -> None:
    with contained() as inside:
        node = inside.node
        done = node.nodectl("bulk", "-n2", "-k", "ls -A /tmp | wc -l; echo {}", ":::", "a", "b", user=NOBODY)
        assert (done.returncode, done.stdout) == (0, "0\na\n0\nb\n"), done.stderr
        assert [path.name for path in node.scratch.iterdir() if path.name.startswith("nodectl-bulk")] == []


@pytest.mark.parametrize("secure", ["default", "strict"])
def test_commands_that_may_write_nowhere_print(served: Node, secure: str) -> None:
    done = served.nodectl(
        "bulk", "-n2", "-k", "--secure", secure, "echo {}; echo e{} >&2", ":::", "a", "b", user=NOBODY
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\nb\n", "ea\neb\n")


def test_it_waits_for_its_turn() -> None:
    with running(select_type="select/cons_tres", over_subscribe="no") as node:
        holder = node.popen("--exclusive", "-n1", "sh", "-c", "echo on; read line", stdin=subprocess.PIPE)
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "on\n"
        command = subprocess.Popen(
            node.command("bulk", "-n1", "echo", ":::", "a"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=node.environment(), cwd=node.scratch,
        )  # fmt: skip
        assert command.stderr is not None
        assert "queued and waiting for resources" in command.stderr.readline()
        holder.stdin.close()
        out, _ = command.communicate(timeout=PATIENCE)
        assert (command.returncode, out) == (0, "a\n")
        holder.stdin = None
        holder.communicate(timeout=PATIENCE)


def test_without_a_service_root_has_one_for_its_length() -> None:
    node = Node()
    try:
        done = node.nodectl("bulk", "-n2", "-k", "echo", ":::", *map(str, range(20)))
        assert (done.returncode, done.stdout) == (0, "".join(f"{number}\n" for number in range(20))), done.stderr
    finally:
        node.close()


def test_progress_is_shown_on_a_terminal_and_nowhere_else(served: Node) -> None:
    words = served.command("bulk", "-n2", "--bar", "--eta", "sleep 0.3; echo {}", ":::", *"abcdef")
    plain = subprocess.run(
        words, capture_output=True, text=True, env=served.environment(), cwd=served.scratch, check=True
    )
    assert plain.stderr == ""
    leader, terminal = os.openpty()
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal, env=served.environment(),
        cwd=served.scratch,
    ) as command:  # fmt: skip
        os.close(terminal)
        seen = b""
        while True:
            try:
                data = os.read(leader, 4096)
            except OSError:
                break
            seen += data
            if not data:
                break
        out, _ = command.communicate(timeout=PATIENCE)
    os.close(leader)
    assert command.returncode == 0
    assert sorted(out.split()) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert b"/6 done" in seen
    assert b"%" in seen
    assert seen.endswith(b"\r\x1b[K")


def test_hooks_of_a_step_are_called_once_and_of_a_task_for_each_command(node: Node) -> None:
    called = node.scratch / "called"
    node.plugin(
        "count",
        "def note(word):\n"
        f"    with open({str(called)!r}, 'a') as file:\n"
        "        file.write(word + '\\n')\n"
        "def slurm_spank_init_post_opt(sp, ac, argv):\n    note('step')\n"
        "def slurm_spank_task_init_privileged(sp, ac, argv):\n    note('task')\n"
        "def slurm_spank_task_exit(sp, ac, argv):\n    note('end')\n",
    )
    node.plugstack("required count.py\n")
    done = node.nodectl("bulk", "-n2", "echo", ":::", *map(str, range(12)))
    assert done.returncode == 0, done.stderr
    words = called.read_text().split()
    assert (words.count("task"), words.count("end")) == (12, 12)
    assert words.count("step") == 2  # in the command, and in the step


def test_hooks_of_the_step_see_the_variables_of_no_command_that_has_ended(node: Node) -> None:
    called = node.scratch / "called"
    node.plugin(
        "look",
        "from nodectl.spank import *\n"
        "def note(word, sp):\n"
        "    if spank_context() == S_CTX_REMOTE:\n"
        f"        with open({str(called)!r}, 'a') as file:\n"
        "            file.write(f\"{word}:{spank_get_item(sp, S_JOB_ENV).get('SLURM_PROCID')}\\n\")\n"
        "def slurm_spank_task_post_fork(sp, ac, argv):\n    note('start', sp)\n"
        "def slurm_spank_task_exit(sp, ac, argv):\n    note('end', sp)\n"
        "def slurm_spank_exit(sp, ac, argv):\n    note('last', sp)\n",
    )
    node.plugstack("required look.py\n")
    done = node.nodectl("bulk", "-n1", "echo", ":::", *"abc")
    assert done.returncode == 0, done.stderr
    assert called.read_text().split() == [
        *(word for number in (1, 2, 3) for word in ("start:None", f"end:{number}")), "last:None",
    ]  # fmt: skip


def test_many_commands_leave_no_trace_of_each(served: Node) -> None:
    """Thousands, of which some fail: the record, and what `show` prints, are of a few lines."""
    script = subprocess.Popen(
        [sys.executable, "-c", "for n in range(3000): print('false' if n % 500 == 499 else 'true')"],
        stdout=subprocess.PIPE,
    )
    done = subprocess.run(
        served.command("bulk", "-n2", "--joblog", "many.log"), stdin=script.stdout, capture_output=True, text=True,
        env=served.environment(), cwd=served.scratch, timeout=4 * PATIENCE, check=False,
    )  # fmt: skip
    script.communicate()
    told = "nodectl: 3000 of 3000 commands ended, 6 failed; the first was number 500 (exit status 1): false\n"
    assert (done.returncode, done.stderr) == (6, told)
    assert len((served.scratch / "many.log").read_text().splitlines()) == 3001
    job = served.last_job()
    record = json.loads(served.nodectl("show", "--json", f"{job}.0").stdout)
    assert (record["bulk"]["commands"], record["bulk"]["failed"]) == (3000, 6)
    assert len(served.nodectl("show", f"{job}.0").stdout) < 6_000
