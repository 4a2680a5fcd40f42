"""What a step may open: of the node's devices those that its job holds, of all others what the configuration says."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel import _kernel
from nodectl.launch.cgroup import tree
from nodectl.launch.cgroup.constraints import cannot_decide_devices
from rootful.node import NOBODY, PATIENCE, Node, wait_for_answer, wait_until

LOOP = 7  # a major number that every kernel with loop devices has; opening one that is not used harms nobody
# A test's machine may be a container that must not have it.
pytestmark = pytest.mark.skipif(cannot_decide_devices() != "", reason="no program can decide about devices here")
OPEN = 'for device in "$@"; do (: <"$device") 2>/dev/null && printf "%s " "${device##*/}"; done; echo'


@pytest.fixture
def node() -> Iterator[Node]:
    """Two devices of the key gres, and one of nobody's; the node is not started."""
    made = Node()
    try:
        for minor, name in enumerate(("first", "second", "other")):
            os.mknod(made.dir / name, stat.S_IFBLK | 0o666, os.makedev(LOOP, minor))
            (made.dir / name).chmod(0o666)
        made.configure(gres=[f"Name=gpu File={made.dir}/first", f"Name=gpu File={made.dir}/second"])
        yield made
        if made.daemon is not None:
            made.assert_clean()
    finally:
        made.close()


def opened(node: Node, *words: str, **how: object) -> str:
    """Which of them a step can open, and whether it can open what everybody can."""
    paths = [*(f"{node.dir}/{name}" for name in ("first", "second", "other")), "/dev/null", "/dev/zero"]
    done = node.run(*words, "--", "sh", "-c", OPEN, "sh", *paths, user=NOBODY, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_step_opens_the_devices_that_its_job_holds_and_not_those_of_others(node: Node) -> None:
    node.start()
    assert opened(node) == "other null zero"
    assert opened(node, "--gpus=1") == "first other null zero"
    assert opened(node, "--gpus=2") == "first second other null zero"
    with node.popen("--gpus=1", "sh", "-c", "echo on; exec sleep 60", user=NOBODY) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "on\n"
        assert opened(node, "--gpus=1") == "second other null zero"
        holder.terminate()


def test_a_command_of_notify_opens_none_of_the_devices_that_jobs_hold(node: Node) -> None:
    node.start()
    paths = " ".join(f"{node.dir}/{name}" for name in ("first", "second", "other"))
    command = f"set -- {paths} /dev/null; {{ {OPEN}; }} >>{node.scratch}/opened"
    assert node.run("--gpus=2", f"--notify={command}", "true", user=NOBODY).returncode == 0
    found = node.scratch / "opened"
    wait_until(lambda: found.exists() and len(found.read_text().splitlines()) == 2, "begin and end were told")
    assert set(found.read_text().splitlines()) == {"other null "}


def test_only_devices_that_are_named_can_be_opened_beside_those_of_the_job(node: Node) -> None:
    node.configure(allowed_devices=["/dev/nothing-of-this-name*"])
    node.start()
    assert opened(node, "--gpus=1") == "first null zero"
    node.configure(allowed_devices=["block-loop"])
    node.restart()
    assert opened(node, "--gpus=1") == "first other null zero"


def test_program_is_there_before_any_task_and_goes_with_the_step(node: Node) -> None:
    """Also for what root does in a task, and for what the step leaves in the background."""
    node.plugin("opens", f'''
def slurm_spank_task_init_privileged(sp, ac, argv):
    with open("{node.dir}/second", "rb"):
        pass
''')  # fmt: skip
    node.plugstack("required opens\n")
    node.start()
    refused = node.run("--gpus=1", "true")
    assert refused.returncode == 1
    assert "Operation not permitted" in refused.stderr
    assert node.run("--gpus=2", "true").returncode == 0


def test_job_has_a_program_of_its_own_that_no_step_can_widen(node: Node) -> None:
    node.start()
    with node.popen("--gpus=1", "sh", "-c", "echo on; exec sleep 60") as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "on\n"
        (job,) = Path(node.base).glob("job_*")
        for group in (job, job / "step_0/user"):
            fd = tree.Group(str(group)).open()
            try:
                assert _kernel.device_programs(fd) == 1
            finally:
                os.close(fd)
        extra = tree.Group(f"{job}/extra").make()
        try:
            script = f"echo $$ >{extra.full_path}/cgroup.procs; {OPEN}"
            words = ["sh", "-c", script, "sh", f"{node.dir}/first", f"{node.dir}/second"]
            tried = subprocess.run(words, capture_output=True, text=True, check=True)
            assert tried.stdout.strip() == "first"
        finally:
            wait_until(extra.remove, "the cgroup is empty")
        holder.terminate()


def test_devices_that_no_plugin_gives_to_jobs_are_everybodys(node: Node) -> None:
    node.configure(task_plugin=["task/cgroup"])
    node.start()
    assert opened(node) == "first second other null zero"
    assert "constrain_devices: not enforced: task/affinity, which gives devices to jobs, is not" in node.logged()


@pytest.mark.parametrize(("wish", "status"), [("yes", 1), ("auto", 0)])
def test_node_that_may_give_the_kernel_no_program_says_so(node: Node, wish: str, status: int) -> None:
    node.configure(constrain_devices=wish)
    lacking = ["setpriv", "--bounding-set=-bpf,-sys_admin,-net_admin", "--inh-caps=-bpf,-sys_admin,-net_admin"]
    daemon = subprocess.Popen(
        [*lacking, *node.command("daemon")], stderr=subprocess.PIPE, text=True, env=node.environment()
    )
    try:
        if wish == "auto":
            wait_until(node.socket.exists, "the daemon listens")
            daemon.terminate()
        _, told = daemon.communicate(timeout=PATIENCE)
    finally:
        daemon.kill()
    assert daemon.returncode == status
    begin = "constrain_devices = yes:" if status else "constrain_devices: not enforced:"
    assert f"nodectl daemon: {begin} Operation not permitted (BPF_PROG_LOAD)" in told


@pytest.mark.parametrize("config", [{"constrain_devices": "no"}, {"gres": []}])
def test_nothing_is_attached_where_nothing_is_denied(node: Node, config: dict[str, object]) -> None:
    node.configure(**config)
    node.start()
    assert opened(node) == "first second other null zero"
    with node.popen("sh", "-c", "echo on; exec sleep 60") as step:
        assert step.stdout is not None
        assert step.stdout.readline() == "on\n"
        (job,) = Path(node.base).glob("job_*")
        fd = tree.Group(f"{job}/step_0/user").open()
        assert _kernel.device_programs(fd) == 0
        os.close(fd)
        step.terminate()


def test_rules_survive_a_restart_of_the_daemon(node: Node) -> None:
    node.start()
    script = f"echo on; read line; {OPEN}"
    words = ["--gpus=1", "sh", "-c", script, "sh", f"{node.dir}/first", f"{node.dir}/second"]
    with node.popen(*words, user=NOBODY, stdin=subprocess.PIPE) as step:
        assert step.stdin is not None
        assert step.stdout is not None
        assert step.stdout.readline() == "on\n"
        wait_for_answer(step)
        node.restart()
        assert opened(node, "--gpus=1") == "second other null zero"
        step.stdin.write("go\n")
        step.stdin.flush()
        assert step.stdout.read().strip() == "first"
