"""A cluster on hosts without a scheduler, which an sshd on each of them reaches: `nodectl cluster start -w HOSTS`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import sshd
from cluster.bed import Bed
from cluster.machine import NODES
from cluster.processes import inner
from cluster.user import User, install, who_tells
from nodectl.cluster.engine.hosts import PROGRAM
from rootful.node import NOBODY, PATH, PATIENCE, wait_until

_HOSTS = "n[1-3]"


class Shell:
    """In place of an allocation: a user's shell on any machine, in which commands find the cluster."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self.user = NOBODY
        self.environment = {"PATH": bed.environment(NOBODY)["PATH"]}
        self.job = 0  # none that is known

    def found(self, job: int) -> None:
        self.job = job

    def popen(self, *words: str, **how: Any) -> Any:
        return self._bed.popen(*words, user=NOBODY, **self._with_cluster(how))

    def run(self, *words: str, **how: Any) -> Any:
        return self._bed.run(*words, user=NOBODY, **self._with_cluster(how))

    def _with_cluster(self, how: dict[str, Any]) -> dict[str, Any]:
        here = how.get("machine", "head")
        gateway = {"NODECTL_CLUSTER": f"{self.job}.{'-' if here == 'head' else here}"} if self.job else {}
        return {**how, "env": {**gateway, **how.get("env", {})}}


class SshUser(User):
    """One with a key that the hosts know, and who knows theirs."""

    def __init__(self, bed: Bed) -> None:
        self.shell = Shell(bed)
        super().__init__(bed, self.shell)  # type: ignore[arg-type]  # it has what is used of one
        self.place = bed.home(NOBODY) / ".ssh"
        self.key = self.place / "id_ed25519"
        bed.run("mkdir", "-m", "700", str(self.place), user=NOBODY)
        bed.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key), user=NOBODY)
        shutil.copy2(self.key.with_suffix(".pub"), self.place / "authorized_keys")
        (self.place / "known_hosts").write_text("".join(sshd.known(bed.dir, node) for node in NODES))
        for node in NODES:
            wait_until(lambda node=node: self._reaches(node), node)

    def _reaches(self, node: str) -> bool:
        return bool(self.shell.run("ssh", "-o", "BatchMode=yes", node, "true").returncode == 0)

    def started(self, hosts: str = _HOSTS, **how: Any) -> Any:
        """`nodectl cluster start`, as it is typed at the head."""
        done = self.nodectl("cluster", "start", "-w", hosts, machine="head", **how)
        if done.returncode == 0:
            self.shell.found(int(done.stdout.partition("=")[2].partition(".")[0]))
        return done

    def refused(self, **how: Any) -> str:
        """The only line that a start says, which starts nothing."""
        done = self.started(**how)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.stderr
        return str(done.stderr)

    def state(self, node: str) -> str:
        """As the leader sees it."""
        told = json.loads(self.nodectl("cluster", "status", "--json", machine="head").stdout)
        return next(str(one["state"]) for one in told["nodes"] if one["name"] == node)

    def clients(self, node: str) -> list[int]:
        """Of ssh."""
        return [pid for pid in self.processes(PROGRAM) if f" {node} " in self.bed.processes(NOBODY).get(pid, "")]


@pytest.fixture
def user(slurm: Bed) -> Iterator[SshUser]:
    """Nothing of theirs is left but a venv."""
    found = SshUser(slurm)
    try:
        yield found
    finally:
        shutil.rmtree(found.place)


def test_steps_bulk_and_a_stop_that_leaves_nothing(user: SshUser) -> None:
    done = user.started()
    assert done.returncode == 0, done.stderr
    hosts = [f"{task}: n{task // 2 + 1}" for task in range(6)]
    for machine in ("head", "n2"):
        done = user.nodectl("run", "-N3", "-n6", "-l", "hostname", machine=machine)
        assert (done.returncode, sorted(done.stdout.splitlines()), done.stderr) == (0, hosts, "")
    done = user.nodectl("bulk", "--nodes=3", "echo", ":::", *map(str, range(50)), machine="head")
    assert sorted(done.stdout.split(), key=int) == [*map(str, range(50))], done.stderr
    step = user.popen("run", "-N3", "-n6", "sleep", "600", machine="head")
    wait_until(lambda: len(user.sleeps()) == 6, "tasks sleep")
    assert user.nodectl("cluster", "stop", machine="head").returncode == 0
    step.communicate()
    assert step.returncode != 0
    wait_until(lambda: not user.bed.processes(NOBODY), "sshd's have ended, too")
    for machine in ("head", *NODES):
        assert user.bed.run("find", "/tmp", "-name", "nodectl-*", machine=machine).stdout == ""


def test_the_secret_is_in_no_argument_and_no_environment(user: SshUser) -> None:
    """Of ssh, of sshd, of agents."""
    place = user.bed.home(NOBODY) / "seen"
    place.mkdir()
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    words = [sys.executable, "-I", user.bed.starting, PATH[0], str(place), "30", _HOSTS, PROGRAM]
    started = json.loads(user.shell.run(*words).stdout)
    assert started["missing"] == {}
    secret = (place / "told.n1").read_bytes().splitlines()[0]
    there = {**user.bed.processes(NOBODY), **user.bed.daemons()}
    assert len(secret) == 64
    assert {name for line in there.values() for name in ("ssh -T", "sshd: nobody", "small_agent") if name in line}
    assert not who_tells(secret, there)
    user.shell.found(started["job"])
    assert user.nodectl("cluster", "stop", machine="head").returncode == 0


def test_a_host_whose_key_is_not_known_is_told(user: SshUser) -> None:
    (user.place / "known_hosts").write_text("".join(sshd.known(user.bed.dir, node) for node in ("n1", "n3")))
    assert user.refused().startswith("nodectl: error: node n2: Host key verification failed")


def test_a_host_with_another_key_is_told(user: SshUser) -> None:
    others = sshd.known(user.bed.dir, "n1").replace("n1 ", "n2 ")
    (user.place / "known_hosts").write_text(others + "".join(sshd.known(user.bed.dir, node) for node in ("n1", "n3")))
    assert user.refused().startswith("nodectl: error: node n2: Host key verification failed")


def test_who_is_not_let_in_is_not_asked_for_a_password(user: SshUser) -> None:
    (user.place / "authorized_keys").write_text("")
    said = user.refused()
    assert "Permission denied (publickey,password)" in said
    assert "-> `ssh -o BatchMode=yes n" in said


def test_a_host_that_does_not_answer_is_told(user: SshUser) -> None:
    """The kernel takes the connection, and its sshd hangs."""
    (daemon,) = (pid for pid, words in user.bed.daemons().items() if "sshd -D" in words and user.bed.runs_on(pid, "n3"))
    os.kill(daemon, signal.SIGSTOP)
    try:
        said = user.refused()
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert said.startswith("nodectl: error: node n3: Connection")
    assert "timed out" in said


def test_a_name_that_nobody_knows_is_told(user: SshUser) -> None:
    assert "node n9: ssh: Could not resolve hostname n9" in user.refused(hosts="n1,n9")


def test_a_host_without_nodectl_and_one_with_another_version_are_told(user: SshUser) -> None:
    place = str(install(user.bed, NOBODY).parent)
    assert user.bed.run("mount", "-t", "tmpfs", "nothing", place, machine="n2").returncode == 0
    try:
        assert f"node n2: there is no nodectl in {place}/" in user.refused()
    finally:
        user.bed.run("umount", place, machine="n2")
    (module,) = Path(place).glob("lib/python3*/site-packages/nodectl/__init__.py")
    other = user.bed.dir / "other.py"
    other.write_text('__version__ = "0.0.7"\n')
    assert user.bed.run("mount", "--bind", str(other), str(module), machine="n3").returncode == 0
    try:
        assert "node n3: version 0.0.7 of nodectl is in " in user.refused()
    finally:
        user.bed.run("umount", str(module), machine="n3")


def test_a_users_own_configuration_of_ssh_is_for_their_shells(user: SshUser) -> None:
    (user.place / "config").write_text(
        f"ControlMaster auto\nControlPersist 60\nControlPath {user.place}/%h\nRequestTTY force\nForwardAgent yes\n"
        "RemoteCommand date\nLocalForward 7777 localhost:22\n"
    )
    assert user.started().returncode == 0
    assert user.nodectl("run", "-N3", "-n3", "true", machine="head").returncode == 0
    assert user.nodectl("cluster", "stop", machine="head").returncode == 0


def test_a_client_of_ssh_that_is_killed_costs_its_node_alone(user: SshUser) -> None:
    assert user.started().returncode == 0
    step = user.popen("run", "-N3", "-n3", "--no-kill", "sleep", "600", machine="head")
    wait_until(lambda: len(user.sleeps()) == 3, "tasks sleep")
    (client,) = user.clients("n3")
    os.kill(client, signal.SIGKILL)
    wait_until(lambda: not user.processes(machine="n3"), "n3 has nothing of theirs")
    assert len(user.sleeps()) == 2
    assert user.nodectl("run", "-N2", "-n2", "--overlap", "true", machine="head").returncode == 0
    wait_until(lambda: user.state("n3") == "DOWN", "n3 is lost for the others")
    os.kill(inner(step), signal.SIGTERM)
    step.communicate()
    assert user.nodectl("cluster", "stop", machine="head").returncode == 0


def test_all_clients_of_ssh_are_killed_and_nothing_stays(user: SshUser) -> None:
    assert user.started().returncode == 0
    step = user.popen("run", "-N3", "-n3", "sleep", "600", machine="head")
    wait_until(lambda: len(user.sleeps()) == 3, "tasks sleep")
    for pid in user.processes(PROGRAM):
        os.kill(pid, signal.SIGKILL)
    step.communicate()
    wait_until(lambda: not user.bed.processes(NOBODY), "holder, agents and tasks have ended")


def test_a_cable_that_is_cut_costs_its_node_alone(user: SshUser) -> None:
    assert user.started().returncode == 0
    step = user.popen("run", "-N3", "-n3", "sleep", "600", machine="head")
    wait_until(lambda: len(user.sleeps()) == 3, "tasks sleep")
    user.bed.cut("n3")
    try:
        _, error = step.communicate()
        assert step.returncode != 0
        assert "n3 was lost" in error
        assert user.nodectl("run", "-N2", "-n2", "true", machine="head").returncode == 0
        assert user.nodectl("cluster", "stop", machine="head").returncode == 0
        wait_until(lambda: not user.sleeps(), "what is alone has ended, too", 2 * PATIENCE)
    finally:
        user.bed.mend("n3")
