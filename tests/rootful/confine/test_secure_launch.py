"""Confinement in a launch: before whatever may become a program as the user, whoever dies in between."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from nodectl.launch.confine import kept_programs
from nodectl.model.launch_order import HOOKS
from rootful.confined import read_status, status
from rootful.node import NOBODY, PATIENCE, Node, running, wait_for_answer, wait_until
from rootful.raw import REQUEST
from rootful.stage import staged

NOTE = """
with open(SCRATCH + "/" + {name!r}, "w") as file:
    file.write(open("/proc/self/status").read())
"""
UNCONFINED = {"NoNewPrivs": "0", "Seccomp": "0"}
CONFINED = {"NoNewPrivs": "1", "Seccomp": "2"}
HOOK_CALLS = [hook.call for hook in HOOKS if hook.kind == "spank" and hook.call != "option"]


def facts(text: str) -> Mapping[str, str]:
    found = read_status(text)
    return {name: found[name] for name in UNCONFINED}


def test_roots_hooks_and_jobs_prologs_are_not_confined() -> None:
    with staged(jobs=True, secure_floor="strict") as stage:
        node = stage.node
        for call in HOOK_CALLS:
            stage.order(f"first.{call}", NOTE.format(name=call))
        for name in ("prolog", "epilog"):
            stage.order(name, f"cat /proc/self/status > {node.scratch}/{name}")
        done = node.run("cat", "/proc/self/status", user=NOBODY)
        assert facts(done.stdout) == CONFINED, done.stderr
        node.call("Wait", job=node.last_job(), step=0, epilog=True)
        own = read_status(Path("/proc/self/status").read_text(encoding="utf-8"))
        users = {hook.call for hook in HOOKS if hook.identity == "user" and hook.process == "task"}
        for name in (*HOOK_CALLS, "prolog", "epilog"):
            text = (node.scratch / name).read_text(encoding="utf-8")
            assert facts(text) == (CONFINED if name in users else UNCONFINED), name
            assert read_status(text)["CapBnd"] == ("0" * 16 if name in users else own["CapBnd"]), name


def test_confinement_is_a_row_before_every_hook_as_the_user(node: Node) -> None:
    node.plugin("last", "def slurm_spank_task_init(sp, ac, argv):\n    return 0\n")
    node.plugstack("required last\n")
    assert node.run("-n2", "true", user=NOBODY).returncode == 0
    calls = [str(row["call"]) for row in node.trace(node.last_job()) if row.get("task") == 0]
    assert calls[calls.index("gate") + 1] == "confine"
    assert "slurm_spank_task_init" in calls[calls.index("confine") :]


@pytest.mark.parametrize("config", [{"secure": "strict"}, {"secure": "strict", "secure_floor": "strict"}])
@pytest.mark.parametrize(
    ("kind", "name", "head"),
    [
        ("spank", "leaver", "def slurm_spank_task_init(sp, ac, argv):"),
        ("task", "leaver", "def task_p_pre_launch(step):"),
    ],
)
def test_a_plugin_that_executes_a_program_does_not_carry_it_past_confinement(
    config: dict[str, str], kind: str, name: str, head: str
) -> None:
    """Else secure_floor was void: the user's program had no_new_privs and filter of nobody."""
    if kind == "task":
        config = {**config, "task_plugin": ["task/affinity", "task/cgroup", f"task/{name}"]}  # type: ignore[dict-item]
    node = Node(**config)
    outside = node.dir / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    script = f"cat /proc/self/status; touch {outside}/x 2>/dev/null"
    node.plugin(name, f"import os\n{head}\n    os.execv('/bin/sh', ['sh', '-c', {script!r}])\n", kind)
    if kind == "spank":
        node.plugstack(f"required {name}\n")
    try:
        node.start()
        done = node.run("true", user=NOBODY)
        assert facts(done.stdout) == CONFINED, done.stderr
        if kind == "spank":  # task plugins are the node's own
            assert list(outside.iterdir()) == []
        node.assert_clean()
    finally:
        node.close()


def test_a_prolog_may_say_where_tmpdir_is(node: Node) -> None:
    """Also at strict: files are locked when it has."""
    place, prolog = node.dir / "place", node.scratch / "prolog"
    place.mkdir()
    place.chmod(0o777)
    prolog.write_text(f"#!/bin/sh\necho export TMPDIR={place}\n", encoding="utf-8")
    prolog.chmod(0o755)
    words = ("--secure=strict", f"--task-prolog={prolog}", "sh", "-c", 'echo x > "$TMPDIR/mine"')
    done = node.run(*words, user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert (place / "mine").exists()


def test_scripts_around_a_task_are_confined_as_it_is() -> None:
    with running(secure_floor="strict") as node:
        outside = node.dir / "outside"
        outside.mkdir()
        outside.chmod(0o777)
        for name in ("prolog", "epilog"):
            script = node.scratch / name
            text = f"cat /proc/self/status > {node.scratch}/{name}.out\ntouch {outside}/{name}\nexit 0"
            script.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            script.chmod(0o755)
        words = (f"--task-prolog={node.scratch}/prolog", f"--task-epilog={node.scratch}/epilog")
        done = node.run(*words, "true", user=NOBODY)
        assert done.returncode == 0, done.stderr
        for name in ("prolog", "epilog"):
            text = (node.scratch / f"{name}.out").read_text(encoding="utf-8")
            assert facts(text) == CONFINED
            assert int(read_status(text)["CapBnd"], 16) == 0
        assert list(outside.iterdir()) == []


def test_a_users_limits_are_not_confinements(node: Node) -> None:
    """Rules of Landlock are made with descriptors."""
    request = {**REQUEST, "cwd": "/tmp", "secure": "strict", "rlimits": {"NOFILE": 4}}
    job = node.call("Launch", request=request)["job"]
    record = node.call("Wait", job=job, step=0)["record"]
    assert record["exit_status"] == 0, record  # type: ignore[index]


@pytest.mark.parametrize("hook", ["slurm_spank_task_init", "slurm_spank_task_init_privileged"])
@pytest.mark.parametrize("level", ["none", "default", "strict"])
def test_a_plugin_that_has_set_no_new_privs_changes_nothing(node: Node, hook: str, level: str) -> None:
    node.plugin("early", f"import prctl\n\n\ndef {hook}(sp, ac, argv):\n    prctl.set_no_new_privs(1)\n")
    node.plugstack("required early\n")
    found = status(node, f"--secure={level}")
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "0" if level == "none" else "2")


def test_a_plugin_that_gave_up_what_confinement_needs_ends_its_task_in_one_line(node: Node) -> None:
    node.plugin(
        "early",
        "import prctl\n\n\ndef slurm_spank_task_init_privileged(sp, ac, argv):\n"
        "    prctl.cap_effective.setpcap = False\n    prctl.cap_permitted.setpcap = False\n",
    )
    node.plugstack("required early\n")
    done = node.run("true", user=NOBODY)
    assert done.returncode == 1
    assert "secure=default: limit the capabilities: Operation not permitted" in done.stderr


def compilers(node: Node) -> list[int]:
    """Processes of this node's daemon that compile."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            parent = Path(f"/proc/{name}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[1]
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if node.daemon is not None and int(parent) == node.daemon.pid and b"seccomp_compiler" in words:
            found.append(int(name))
    return found


def test_a_killed_compiler_costs_one_refusal_and_the_next_step_runs() -> None:
    with running(secure="none") as node:
        for _ in range(20):  # it takes 40 ms, which may pass before it is found
            step = node.popen("--secure=default", "true", user=NOBODY)
            while step.poll() is None and not (pids := compilers(node)):
                pass
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):  # it was quicker
                    os.kill(pid, signal.SIGKILL)
            _, err = step.communicate(timeout=PATIENCE)
            if "secure: default is not possible here: the compiler of system call filters died by SIGKILL" in err:
                break
            assert step.returncode == 0, err
            (node.dir / "state" / kept_programs.NAME).unlink(missing_ok=True)
            node.restart()
        else:
            raise AssertionError("it was never found")
        assert status(node, "--secure=strict")["Seccomp"] == "2"


@pytest.mark.parametrize("victim", ["daemon", "forkserver", "stepd"])
def test_kills_in_between_leave_later_steps_confined(node: Node, victim: str) -> None:
    script = "echo ready; until [ -e go ]; do sleep 0.1; done; cat /proc/self/status"
    step = node.popen("--secure=strict", "sh", "-c", script, user=NOBODY)
    assert step.stdout is not None
    assert step.stdout.readline() == "ready\n"
    wait_for_answer(step)
    job = str(node.last_job())
    if victim == "daemon":
        node.restart(signal.SIGKILL)
    else:
        pid = named(node, {"forkserver": "nodectl-fork", "stepd": "stepd "}[victim])
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "it is noticed")
    if victim != "stepd":
        entered = node.nodectl("enter", job, "cat", "/proc/self/status", user=NOBODY)
        assert facts(entered.stdout) == {"NoNewPrivs": "1", "Seccomp": "2"}, entered.stderr
    (node.scratch / "go").touch()
    out, _ = step.communicate(timeout=PATIENCE)
    assert victim == "stepd" or facts(out) == {"NoNewPrivs": "1", "Seccomp": "2"}
    wait_until(lambda: node.record(int(job)).get("exit_status") is not None, "it is in the history")
    assert node.record(int(job))["secure"] == "strict"
    assert status(node, "--secure=strict")["Seccomp"] == "2"


def named(node: Node, name: str) -> int:
    """The newest process of the node with this name."""
    assert node.daemon is not None
    steps = [pid for pid, _ in node.processes()]
    for pid in sorted((int(pid) for pid in os.listdir("/proc") if pid.isdecimal()), reverse=True):
        try:
            comm = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8")
            parent = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[1]
        except OSError:
            continue
        if comm.startswith(name) and (int(parent) == node.daemon.pid or pid in steps):
            return pid
    raise AssertionError(f"no {name}")


def test_step_runners_killed_at_random_moments_leave_nothing(node: Node) -> None:
    for turn in range(10):
        step = node.popen("--secure=strict", "sleep", "0.02", user=NOBODY)
        while step.poll() is None and not any(name.startswith("stepd") for _, name in node.processes()):
            pass
        time.sleep(turn * 0.001)
        for pid, name in node.processes():
            with contextlib.suppress(ProcessLookupError):  # it was quicker
                if name.startswith("stepd"):
                    os.kill(pid, signal.SIGKILL)
        step.communicate(timeout=PATIENCE)


def test_a_forkserver_that_begins_anew_keeps_what_confines(node: Node) -> None:
    """A compiled plugin that changes makes it execute itself again, with the order in hand."""
    from rootful.native import native

    for text in ("one", "two"):
        native(node, "changing", init=f'slurm_info("{text}");')
        node.plugstack("required changing.so\n")
        assert status(node, "--secure=strict")["Seccomp"] == "2"
