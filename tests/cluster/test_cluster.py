"""A cluster from `nodectl cluster start` to its end, as an ordinary user has it in an allocation of Slurm's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from cluster.bed import Bed
from cluster.machine import ADDRESSES, THREE
from cluster.processes import inner
from cluster.user import User, install
from nodectl.model.schemas import files as schemas
from rootful.node import NOBODY, OTHER, PATIENCE, wait_until

_AGENT = "cluster.agent.main"
_LEADER = "cluster.leader"
_DAEMON = "of_agent"
_FORKSERVER = "nodectl-fork"  # by this name: who is forked there has its command line
_LISTENER = "nodectl-listen"


@pytest.mark.parametrize("machine", [*THREE, "head"])
def test_a_step_is_begun_on_any_machine(user: User, machine: str) -> None:
    done = user.nodectl("run", "-N3", "-n6", "-l", "sh", "-c", "echo $(hostname) $SLURM_NODEID", machine=machine)
    expected = [f"{task}: n{task // 2 + 1} {task // 2}" for task in range(6)]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected), done.stderr


def test_exit_statuses_are_as_on_one_node(user: User) -> None:
    for program, status in (("exit $SLURM_PROCID", 2), ("kill -9 $$", 137), ("true", 0)):
        assert user.nodectl("run", "-N3", "-n3", "sh", "-c", program).returncode == status
    assert user.nodectl("run", "-N3", "-n3", "nosuchprogram").returncode == 2


def test_a_node_without_nodectl_is_told(slurm: Bed) -> None:
    place = str(install(slurm, NOBODY).parent)
    with slurm.salloc() as job:
        assert slurm.run("mount", "-t", "tmpfs", "nothing", place, machine="n2").returncode == 0
        try:
            done = User(slurm, job).nodectl("cluster", "start", machine="head")
        finally:
            slurm.run("umount", place, machine="n2")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith(f"nodectl: error: node n2: there is no nodectl in {place}/")


def test_a_node_that_is_dead_is_told(slurm: Bed) -> None:
    """Slurm has not noticed yet."""
    with slurm.salloc("--no-kill") as job:
        user = User(slurm, job)
        slurm.kill("n3")
        try:
            done = user.nodectl("cluster", "start", machine="head")
        finally:
            slurm.boot("n3")
            for node in ("n1", "n2"):  # where all was killed at once, the next agent would remove the directory
                slurm.run("rm", "-rf", f"/tmp/nodectl-{NOBODY.pw_uid}", machine=node)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert done.stderr.startswith("nodectl: error: node n3: srun: error: Task launch for ")


def test_status_tells_who_is_there(user: User) -> None:
    told = user.nodectl("cluster", "status", machine="n3")
    assert [line.split()[:2] for line in told.stdout.splitlines()[-3:]] == [[name, "IDLE"] for name in THREE]


def test_what_is_printed_as_json_is_what_the_schemas_say(slurm: Bed) -> None:
    with slurm.salloc() as job:
        user = User(slurm, job)
        for name in ("start", "status"):
            told = user.nodectl("cluster", name, "--json")
            validator = Draft202012Validator(schemas.load(f"cluster-{name}"))
            assert not [error.message for error in validator.iter_errors(json.loads(told.stdout))]


@pytest.mark.parametrize("machine", ["head", "n2"])
def test_stop_ends_what_runs(user: User, machine: str) -> None:
    """Where it was started, and elsewhere."""
    step = user.popen("run", "-N3", "-n6", "sleep", "600")
    wait_until(lambda: len(user.sleeps()) == 6, "tasks sleep")
    assert user.nodectl("cluster", "stop", machine=machine).returncode == 0
    assert not user.sleeps()
    step.communicate()
    assert step.returncode != 0


def test_nothing_is_left_of_an_allocation_that_was_cancelled(user: User) -> None:
    step = user.popen("run", "-N3", "-n6", "sleep", "600")
    wait_until(lambda: len(user.sleeps()) == 6, "tasks sleep")
    user.bed.scancel(user.job.job)
    step.communicate()
    user.job.end()
    user.bed.assert_clean()


def test_whoever_has_another_secret_does_not_come_in(user: User) -> None:
    """From another node, as another user, to where the agents listen."""
    (agent,) = user.processes(_AGENT, machine="n1")
    ports = _listens(agent)
    join = (
        "import asyncio, sys; sys.path[:0] = sys.argv[1:2]; from nodectl.cluster.mesh.mesh import Mesh, NotJoined\n"
        "async def main():\n"
        "    mesh = Mesh(2, ['n1', 'n2', 'n3'], bytes(32))\n"
        "    try:\n"
        "        await mesh.join([(sys.argv[2], int(sys.argv[3]))], limit=3)\n"
        "    except NotJoined as error:\n"
        "        print('not joined')\n"
        "asyncio.run(main())\n"
    )
    packages = str(install(user.bed, OTHER).parent / "lib" / f"python3.{sys.version_info[1]}" / "site-packages")
    for port in ports:
        words = [sys.executable, "-I", "-c", join, packages, ADDRESSES["n1"], str(port)]
        done = user.bed.run(*words, user=OTHER, machine="n3")
        assert done.stdout == "not joined\n", done.stderr
    assert ports
    assert user.nodectl("run", "-N3", "-n3", "true").returncode == 0


def test_two_users_beside_each_other(user: User) -> None:
    with user.bed.salloc("--ntasks-per-node=2", user=OTHER) as job:
        other = User(user.bed, job)
        other.start()
        for one, name in ((user, NOBODY.pw_name), (other, OTHER.pw_name)):
            done = one.nodectl("run", "-N3", "-n3", "id", "-un")
            assert done.stdout.split() == [name] * 3, done.stderr
        theirs = {"SLURM_JOB_ID": user.job.job, "PATH": f"{install(user.bed, OTHER)}:/usr/bin:/bin"}
        assert other.nodectl("run", "-N3", "-n3", "true", env=theirs).returncode != 0


def test_two_jobs_of_one_user_on_the_same_nodes(user: User) -> None:
    """Each command speaks to the cluster of its job, also where the other one's is stopped."""
    with user.bed.salloc("--ntasks-per-node=2") as job:
        other = User(user.bed, job)
        other.start("head")
        steps: list[subprocess.Popen[str]] = []
        for one in (user, other):
            steps.append(one.popen("run", "-N3", "-n3", "sleep", "600", machine="n2"))
            wait_until(lambda: len(user.sleeps()) == 3 * len(steps), "tasks sleep")  # the other one's, too
            for machine in ("head", "n2"):
                done = one.nodectl("run", "-N3", "-n3", "sh", "-c", "echo $SLURM_JOB_ID", machine=machine)
                assert done.stdout.split() == [one.job.job] * 3, done.stderr
            listed = json.loads(one.nodectl("ps", "--json", machine="n3").stdout)["steps"]
            assert [str(step["job"]) for step in listed] == [one.job.job]
        assert other.nodectl("cluster", "stop", machine="n3").returncode == 0
        steps[1].communicate()
        assert steps[1].returncode != 0
        assert len(user.sleeps()) == 3
        assert user.nodectl("run", "-N3", "-n3", "true", machine="n3").returncode == 0
        assert "no cluster runs here" in other.nodectl("cluster", "status", machine="n2").stderr
        os.kill(inner(steps[0]), signal.SIGTERM)
        steps[0].communicate()


@pytest.mark.parametrize("who", [_DAEMON, _LEADER, _FORKSERVER, _LISTENER])
def test_kill_9_of_a_process_is_survived_by_the_others(user: User, who: str) -> None:
    """And another one takes its place."""
    machine = "n1" if who == _LEADER else "n3"
    step = user.popen("run", "-N3", "-n6", "sleep", "600")
    wait_until(lambda: len(user.sleeps()) == 6, "tasks sleep")
    find = user.called if who in (_FORKSERVER, _LISTENER) else user.processes
    (victim,) = find(who, machine=machine)
    os.kill(victim, signal.SIGKILL)
    assert user.nodectl("run", "-N3", "-n3", "--overlap", "true").returncode == 0
    wait_until(lambda: {*find(who, machine=machine)} - {victim}, "another one is there")
    assert len(user.sleeps()) == 6
    os.kill(inner(step), signal.SIGTERM)
    step.communicate()
    wait_until(lambda: not user.sleeps(), "the step has ended")


def test_kill_9_of_a_step_runner_ends_its_step_on_all_nodes(user: User) -> None:
    step = user.popen("run", "-N3", "-n6", "sleep", "600")
    wait_until(lambda: len(user.sleeps()) == 6, "tasks sleep")
    (victim,) = user.called("stepd", machine="n3")
    os.kill(victim, signal.SIGKILL)
    _, error = step.communicate()
    assert step.returncode != 0
    assert "n3" in error
    assert not user.sleeps()
    assert user.nodectl("run", "-N3", "-n6", "true").returncode == 0


@pytest.mark.parametrize(("machine", "leads"), [("n3", "n1"), ("n1", "n2")])
def test_kill_9_of_an_agent_is_its_nodes_end_in_this_cluster(user: User, machine: str, leads: str) -> None:
    """Also of the one with the leader: another one leads, and the steps that it has no part in go on."""
    step = user.popen("run", "-N3", "-n3", "sleep", "600", machine="n2")
    other = user.popen("run", "-n1", "-w", "n2", "sleep", "600", machine="n2")
    wait_until(lambda: len(user.sleeps()) == 4, "tasks sleep")
    (victim,) = user.processes(_AGENT, machine=machine)
    os.kill(victim, signal.SIGKILL)
    _, error = step.communicate()
    assert step.returncode != 0
    assert f"{machine} was lost" in error
    assert user.nodectl("run", "-N2", "-n2", "--overlap", "true", machine="n2").returncode == 0
    assert user.processes(_LEADER, machine=leads)
    wait_until(lambda: not user.processes(machine=machine), "nothing of it is left")
    assert len(user.sleeps()) == 1
    os.kill(inner(other), signal.SIGTERM)
    other.communicate()


def test_a_client_that_is_killed_takes_its_step_with_it(user: User) -> None:
    step = user.popen("run", "-N3", "-n6", "sleep", "600")
    wait_until(lambda: len(user.sleeps()) == 6, "tasks sleep")
    os.kill(inner(step), signal.SIGKILL)
    step.communicate()
    wait_until(lambda: not user.sleeps(), "its step has ended")


def test_a_node_that_loses_its_power_is_told(user: User) -> None:
    step = user.popen("run", "-N3", "-n6", "sleep", "600")
    wait_until(lambda: len(user.sleeps()) == 6, "tasks sleep")
    try:
        user.bed.kill("n3")
        _, error = step.communicate()
        assert step.returncode != 0
        assert "n3 was lost" in error
        assert user.nodectl("run", "-N2", "-n2", "true").returncode == 0
    finally:
        user.bed.boot("n3")


def test_a_cable_that_is_cut_is_noticed(user: User) -> None:
    step = user.popen("run", "-N3", "-n6", "sleep", "600")
    wait_until(lambda: len(user.sleeps()) == 6, "tasks sleep")
    user.bed.cut("n3")
    try:
        _, error = step.communicate()
        assert step.returncode != 0
        assert "n3 was lost" in error
        wait_until(lambda: not user.sleeps(), "what is alone has ended, too", 2 * PATIENCE)
    finally:
        user.bed.mend("n3")


def test_the_cable_of_the_leaders_node_is_cut_and_another_one_leads(user: User) -> None:
    """It sees the homes still."""
    step = user.popen("run", "-N2", "-n4", "-w", "n[2-3]", "sleep", "600", machine="n3")
    wait_until(lambda: len(user.sleeps()) == 4, "tasks sleep")
    lost = user.popen("run", "-n1", "-w", "n1", "sleep", "600", machine="n2")
    wait_until(lambda: len(user.sleeps()) == 5, "tasks sleep")
    user.bed.cut("n1")
    try:
        _, error = lost.communicate()
        assert lost.returncode != 0
        assert "n1 was lost" in error
        done = user.nodectl("run", "-N2", "-n2", "--overlap", "hostname", machine="n2")
        assert (done.returncode, sorted(done.stdout.split())) == (0, ["n2", "n3"]), done.stderr
        assert user.processes(_LEADER, machine="n2")
        wait_until(lambda: len(user.sleeps()) == 4, "what is alone has ended", 2 * PATIENCE)
        assert not user.processes(_AGENT, machine="n1")
        assert step.poll() is None
        os.kill(inner(step), signal.SIGTERM)
        step.communicate()
        assert user.nodectl("cluster", "stop", machine="head").returncode == 0
    finally:
        user.bed.kill("n1")  # Slurm has given it up, and takes it back at once when it starts anew
        user.bed.boot("n1")
    assert not list((user.bed.home(NOBODY) / ".local" / "state" / "nodectl" / "cluster").glob("*"))


def _listens(pid: int) -> list[int]:
    """Ports on which a process listens."""
    own = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    listening = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]
    return [int(row[1].rpartition(":")[2], 16) for row in listening]
