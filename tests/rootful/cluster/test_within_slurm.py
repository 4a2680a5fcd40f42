"""Parts of steps that root's service runs within a job of Slurm's: who may ask, what they get, that nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
from pathlib import Path

import pytest

from nodectl.launch.cgroup import tree
from rootful.fuse import unanswered_directory
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until
from rootful.parts import by_hand
from rootful.slurms import JOB, SlurmJob, why

pytestmark = pytest.mark.rootful
_SLEEP = ("sh", "-c", "(setsid sleep 1000 &); exec sleep 1000")


def _sleepers(slurm: SlurmJob) -> int:
    return len(_processes(slurm))


def _processes(slurm: SlurmJob) -> list[int]:
    """Of steps."""
    return [pid for pid in slurm.user.pids() if _word(pid) == "sleep"]


def _word(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def test_a_step_is_in_a_cgroup_beside_the_task_of_slurms(node: Node, slurm: SlurmJob) -> None:
    agent = slurm.caller(node)
    told = agent.call("SlurmJob")["parameters"]
    cpus = sum(1 << cpu for cpu in os.sched_getaffinity(0))
    assert told == {"job": JOB, "cgroup": slurm.place, "cpus": f"{cpus:x}", "memory": 0}
    assert agent.launch(JOB, 3, *_SLEEP)["parameters"] == {"job": JOB, "step": 3}
    wait_until(lambda: _sleepers(slurm) == 2, "it runs")
    step = slurm.user.child("nodectl").child("step_3")
    assert sorted(_processes(slurm)) == sorted(step.child("user").child("task_0").core.procs)
    assert len(slurm.step.child("nodectl_3").core.procs) == 1
    assert all(os.stat(f"/proc/{pid}").st_uid == NOBODY.pw_uid for pid in _processes(slurm))
    node.call("Signal", job=JOB, step=3, signal=9)
    wait_until(lambda: not slurm.ours(), "what is ours is removed")
    assert slurm.task.exists()
    assert node.record(JOB, 3)["uid"] == NOBODY.pw_uid
    agent.kill()


@pytest.mark.parametrize("kills", ["tasks", "user", "suspended"])
@pytest.mark.parametrize("daemon", ["runs", "is dead"])
def test_when_the_agent_is_killed_nothing_is_left(node: Node, slurm: SlurmJob, daemon: str, kills: str) -> None:
    """Slurm kills what it knows of, finds our directory in its own, and leaves these."""
    agent = slurm.caller(node)
    agent.launch(JOB, 3, "sh", "-c", "trap '' TERM; (setsid sleep 1000 &); sleep 1000")
    wait_until(lambda: _sleepers(slurm) == 2, "it runs")
    if daemon == "is dead":
        node.stop(signal.SIGKILL)
    slurm.end(kills)
    wait_until(lambda: not slurm.job.exists(), "processes and cgroups are gone")
    if daemon == "is dead":
        node.start()
    agent.kill()
    # Where all are killed at once the task may end before the runner knows of the agent.
    states = ("CANCELLED", "FAILED") if kills == "user" else ("CANCELLED",)
    wait_until(lambda: node.record(JOB, 3)["state"] in states, "it has a record")


def test_hooks_of_root_are_called_when_slurm_kills_all(slurm: SlurmJob) -> None:
    hook = "import os\ndef slurm_spank_{0}(s, c, v):\n    open({1!r}, 'w').write(str(os.geteuid()))\n"
    with running(slurm_scope=slurm.scope) as node:
        told = [node.scratch / name for name in ("task_exit", "exit")]
        node.plugstack(f"required {node.plugin('tells', ''.join(hook.format(p.name, str(p)) for p in told))}\n")
        agent = slurm.caller(node)
        agent.launch(JOB, 3, *_SLEEP)
        wait_until(lambda: _sleepers(slurm) == 2, "it runs")
        slurm.end("user")
        wait_until(lambda: not slurm.job.exists(), "cgroups are gone")
        assert [path.read_text() for path in told] == ["0", "0"]
        agent.kill()


def test_a_daemon_that_starts_while_slurm_has_the_job_suspended(node: Node, slurm: SlurmJob) -> None:
    """The step is not suspended, as it is not by us: it can be, later."""
    agent = slurm.caller(node)
    agent.launch(JOB, 3, *_SLEEP)
    wait_until(lambda: _sleepers(slurm) == 2, "it runs")
    node.stop(signal.SIGKILL)
    slurm.suspend()
    node.start()
    (shown,) = json.loads(node.nodectl("ps", "--json").stdout)["steps"]
    assert shown["state"] == "RUNNING"
    slurm.user.core.freeze = False
    agent.kill()
    wait_until(lambda: not slurm.ours(), "nothing is left")


def test_a_step_outlives_a_new_daemon_and_not_its_agent(node: Node, slurm: SlurmJob) -> None:
    agent = slurm.caller(node)
    agent.launch(JOB, 3, *_SLEEP)
    wait_until(lambda: _sleepers(slurm) == 2, "it runs")
    node.restart(signal.SIGKILL)
    assert _sleepers(slurm) == 2
    agent.kill()
    wait_until(lambda: not slurm.ours(), "nothing is left")


def test_what_a_killed_runner_leaves_the_daemon_removes(node: Node, slurm: SlurmJob) -> None:
    agent = slurm.caller(node)
    agent.launch(JOB, 3, *_SLEEP)
    wait_until(lambda: _sleepers(slurm) == 2, "it runs")
    (stepd,) = slurm.step.child("nodectl_3").core.procs
    node.stop(signal.SIGKILL)
    os.kill(stepd, signal.SIGKILL)
    assert not slurm.end()
    node.start()
    wait_until(lambda: not slurm.job.exists(), "processes and cgroups are gone, Slurm's too")
    agent.kill()


def test_the_step_runner_connects_to_nobody_but_its_user(node: Node, slurm: SlurmJob) -> None:
    """It is root, and what it connects to goes to a process of its user's."""
    agent = slurm.caller(node)
    for step, mode in enumerate((0o600, 0o666)):
        path = str(node.dir / f"roots{step}.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            os.chmod(path, mode)
            listener.listen()
            listener.setblocking(False)
            part = {"nnodes": 2, "ntasks": 2, "nodes": "n[1-2]", "tasks_per_node": "1,1", "exchange": path}
            assert "error" not in agent.launch(JOB, step, "true", mpi="pmi2", part=part)
            node.call("Wait", job=JOB, step=step)
            record = node.record(JOB, step)
            assert record["state"] == "FAILED"
            if mode == 0o600:
                assert "Permission denied" in str(record["reason"])
                with pytest.raises(BlockingIOError):
                    listener.accept()
            else:
                assert "it is not the user's who listens" in str(record["reason"])
                theirs, _ = listener.accept()
                assert theirs.recv(100) == b"", "nothing was said to it"
                theirs.close()
    agent.kill()


def test_a_task_epilog_does_not_outlive_the_agent(slurm: SlurmJob) -> None:
    node = Node(slurm_scope=slurm.scope, kill_wait=600)
    script = node.scratch / "epilog"
    script.write_text("#!/bin/sh\nexec sleep 1000\n", encoding="utf-8")
    script.chmod(0o755)
    node.configure(task_epilog=str(script))
    try:
        node.start()
        agent = slurm.caller(node)
        agent.launch(JOB, 3, "true")  # its epilog runs
        agent.launch(JOB, 4, "sleep", "1000")  # its epilog is to come
        wait_until(lambda: _sleepers(slurm) == 2, "both are there")
        agent.kill()
        wait_until(lambda: not slurm.ours(), "nothing is left")
        assert slurm.end()
        node.assert_clean()
    finally:
        node.close()


def test_what_no_step_has_the_next_daemon_removes(node: Node, slurm: SlurmJob) -> None:
    """A daemon may be killed when it has made cgroups and before it has written anything, or when they go."""
    agent = slurm.caller(node)
    agent.launch(JOB, 3, *_SLEEP)
    wait_until(lambda: _sleepers(slurm) == 2, "it runs")
    node.stop(signal.SIGKILL)
    known = sorted(slurm.ours())
    strays = [
        slurm.user.child("nodectl").child("step_8").make().child("user").make(),
        slurm.step.child("nodectl_9").make(),
    ]
    sleeping = [subprocess.Popen(["sleep", "1000"]) for _ in strays]
    for stray, process in zip(strays, sleeping, strict=True):
        stray.add(process.pid)
    node.start()
    for process in sleeping:
        assert process.wait(PATIENCE) == -signal.SIGKILL
    wait_until(lambda: sorted(slurm.ours()) == known, "they are removed")
    assert _sleepers(slurm) == 2
    agent.kill()
    wait_until(lambda: not slurm.ours(), "nothing is left")


def test_what_slurm_still_uses_is_left_to_it(node: Node, slurm: SlurmJob) -> None:
    """Its tasks have ended, or are still to come: slurmstepd is there."""
    agent = slurm.caller(node)
    agent.launch(JOB, 3, *_SLEEP)
    wait_until(lambda: _sleepers(slurm) == 2, "it runs")
    slurm.task.kill_all()
    wait_until(slurm.task.remove, "Slurm removes its task")
    wait_until(lambda: not slurm.ours(), "ours is gone")
    node.call("Wait", job=JOB, step=3)
    assert slurm.user.exists()
    assert slurm.end()
    agent.kill()


def test_the_number_of_another_job_is_refused(node: Node, slurm: SlurmJob) -> None:
    agent = slurm.caller(node)
    assert why(agent.launch(JOB + 1, 3, "true")) == f"part: the caller's job is {JOB}, and no other one"
    agent.kill()


def test_cpus_beyond_the_jobs_are_refused(node: Node, slurm: SlurmJob) -> None:
    cpu = min(os.sched_getaffinity(0))
    agent = slurm.caller(node)
    os.sched_setaffinity(agent.process.pid, {cpu})
    told = why(agent.launch(JOB, 3, "true", part={"cpus": f"{1 << (cpu + 1):x}"}))
    assert told.endswith(f"is none of the CPUs here, which are {cpu}")
    agent.kill()


def test_hard_limits_are_the_callers(node: Node, slurm: SlurmJob) -> None:
    agent = slurm.caller(node, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (50, 99)))
    agent.launch(JOB, 3, "sh", "-c", f"ulimit -Hn >{node.scratch}/limit")
    node.call("Wait", job=JOB, step=3)
    assert (node.scratch / "limit").read_text(encoding="utf-8") == "99\n"
    agent.kill()


def test_the_services_budgets_hold(slurm: SlurmJob) -> None:
    with running(slurm_scope=slurm.scope, max_steps_per_user=2, kill_wait=600) as node:
        agent = slurm.caller(node)
        replies = [agent.launch(JOB, step, *_SLEEP) for step in range(20)]
        assert [step for step, reply in enumerate(replies) if "error" not in reply] == [0, 1]
        assert why(replies[-1]).endswith("max_steps_per_user = 2")
        agent.kill()
        wait_until(lambda: not slurm.ours(), "nothing is left")
        slurm.end()


def test_a_connection_of_a_process_that_has_gone_proves_nothing(node: Node, slurm: SlurmJob) -> None:
    """Its number may be another's by now, and who uses the connection anybody it was given to."""
    agent = slurm.caller(node, successor=True)
    assert why(agent.call("SlurmJob")).endswith("which process asks cannot be told for certain")
    slurm.task.kill_all()
    agent.kill()


def test_devices_are_slurms_to_give(node: Node, slurm: SlurmJob) -> None:
    agent = slurm.caller(node)
    told = why(agent.launch(JOB, 3, "true", part={"devices": ["gpu:0"]}))
    assert told.endswith("devices: those of the job are Slurm's to give")
    agent.kill()


def test_who_is_in_no_job_is_refused(node: Node) -> None:
    done = node.call("SlurmJob")
    assert "root has no need of a job" in str(done)


def test_a_cgroup_of_the_users_own_is_no_job_of_slurms(node: Node, slurm: SlurmJob) -> None:
    """Slurm gives users the directory of their task. What they name in it is not believed, and where a directory above
    is theirs nothing is.
    """
    os.chown(slurm.task.full_path, NOBODY.pw_uid, -1)
    below = slurm.task
    for name in ("job_78", "step_0", "user", "task_0"):
        below = below.child(name).make()
    slurm.task, own = below, slurm.task
    agent = slurm.caller(node)
    assert agent.call("SlurmJob")["parameters"]["job"] == JOB
    os.chown(slurm.user.full_path, NOBODY.pw_uid, -1)
    assert why(agent.call("SlurmJob")).endswith(f"the cgroup {slurm.place} is not root's alone")
    agent.kill()
    while below.full_path != own.full_path:
        wait_until(below.remove, "it is empty")
        below = tree.Group(os.path.dirname(below.full_path))
    slurm.task = own


def test_a_process_that_sees_other_files_is_refused(node: Node, slurm: SlurmJob) -> None:
    agent = slurm.caller(node, apart=True)
    assert why(agent.call("SlurmJob")).endswith("has another namespace (mnt) than this service")
    agent.kill()


def test_without_the_key_nobody_has_one(slurm: SlurmJob) -> None:
    with running() as node:
        agent = slurm.caller(node)
        assert why(agent.call("SlurmJob")).endswith("the configuration names no slurm_scope")
        assert why(agent.launch(JOB, 3, "true")).endswith("the configuration names no slurm_scope")
        agent.kill()
    slurm.end()


def test_a_later_cluster_of_the_job_has_the_same_numbers(node: Node, slurm: SlurmJob) -> None:
    for restart in range(2):
        agent = slurm.caller(node)
        assert agent.launch(JOB, 0, "true")["parameters"] == {"job": JOB, "step": 0}
        wait_until(lambda: not slurm.ours(), "it has ended")
        node.call("Wait", job=JOB, step=0)
        assert node.record(JOB, 0)["restart"] == restart
        agent.kill()


def test_own_jobs_have_other_numbers(node: Node, slurm: SlurmJob) -> None:
    """Else the first agent of Slurm's job would lead the service to those that Slurm gives next."""
    agent = slurm.caller(node)
    assert agent.call("SlurmJob")["parameters"]["job"] == JOB
    assert node.run("true").returncode == 0
    assert node.last_job() >= 1 << 26
    agent.kill()


@pytest.mark.parametrize("whose", ["own", "another"])
def test_a_number_that_has_been_anothers_is_refused(slurm: SlurmJob, whose: str) -> None:
    with running() as node:
        assert node.run("true").returncode == 0
        node.stop()
        node.configure(slurm_scope=slurm.scope, kill_wait=600)
        with contextlib.closing(sqlite3.connect(node.dir / "state/history.db")) as history:
            history.execute("UPDATE step SET job = ?", (JOB,))
            if whose == "another":
                history.execute("UPDATE step SET record = json_set(record, '$.part', json_object('nodes', 'n1'))")
            history.commit()
        node.start()
        agent = slurm.caller(node)
        said = f"job: {JOB} was one of this node's own, or another user's"
        assert why(agent.call("SlurmJob")).endswith(said)
        assert why(agent.launch(JOB, 3, "true")).endswith(said)
        agent.kill()
        slurm.end()


def test_hooks_of_root_are_called(slurm: SlurmJob) -> None:
    hooks = "".join(
        f"def slurm_spank_{name}(s, c, v):\n    import os\n    open({{!r}} + '/{name}', 'w').write(str(os.geteuid()))\n"
        for name in ("init", "task_init_privileged", "task_init", "exit")
    )
    with running(slurm_scope=slurm.scope) as node:
        plugin = node.plugin("tells", hooks.format(*[str(node.scratch)] * 4))
        node.plugstack(f"required {plugin}\n")
        agent = slurm.caller(node)
        assert agent.launch(JOB, 0, "true")["parameters"] == {"job": JOB, "step": 0}
        node.call("Wait", job=JOB, step=0)
        told = {path.name: path.read_text() for path in node.scratch.iterdir()}
        nobody = str(NOBODY.pw_uid)
        assert told == {"init": "0", "task_init_privileged": "0", "task_init": nobody, "exit": "0"}
        agent.kill()
        wait_until(lambda: not slurm.ours(), "nothing is left")
        slurm.end()


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no file systems in user space here")
def test_sigkill_ends_a_step_whose_mpi_server_cannot_look_for_its_agent(slurm: SlurmJob) -> None:
    """The user names the path: no process of root's looks there."""
    with running(slurm_scope=slurm.scope, unkillable_step_timeout=1) as node:
        directory = node.scratch / "directory"
        with unanswered_directory(directory):
            agent = slurm.caller(node)
            (part, _) = by_hand(3, ["0", "1"], job=JOB, exchange=f"{directory}/agent")
            assert "error" not in agent.launch(JOB, 3, "true", mpi="pmi2", part=part)
            wait_until(lambda: _stuck(slurm), "the server waits for the file system")
            assert _stuck(slurm) == [NOBODY.pw_uid]
            node.call("Signal", job=JOB, step=3, signal=9)
            wait_until(lambda: not node.call("List")["steps"], "the step has ended")
        wait_until(lambda: not slurm.ours(), "what is ours is removed")
        agent.kill()
        slurm.end()


def _stuck(slurm: SlurmJob) -> list[int]:
    """The users of processes of steps that wait in a file system."""
    found = []
    for pid in (pid for path in slurm.ours() for pid in tree.Group(path).core.procs):
        with contextlib.suppress(OSError):
            if "fuse" in Path(f"/proc/{pid}/stack").read_text(encoding="utf-8"):
                found.append(os.stat(f"/proc/{pid}").st_uid)
    return found
