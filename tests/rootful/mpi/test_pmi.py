"""--mpi=pmi2: the server beside the tasks, what tasks are handed, and what a hostile one can do to its step alone."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from pathlib import Path

import pytest

from rootful.contained import contained
from rootful.node import NOBODY, OTHER, Node, running, wait_until

CLIENT = """
import os, socket, sys, time
RANK, SIZE = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
server = socket.socket(fileno=int(os.environ["PMI_FD"]))
def ask(line):
    server.sendall(line.encode() + b"\\n")
    found = b""
    while not found.endswith(b"\\n"):
        data = server.recv(1)
        if not data:
            sys.exit("no answer")
        found += data
    return found.decode().strip()
def init():
    return ask("cmd=init pmi_version=1 pmi_subversion=1")
"""
SERVER = "nodectl-pmi"


def script(node: Node, text: str) -> list[str]:
    """The words that run a PMI client of this text."""
    path = node.scratch / f"client{len(list(node.scratch.iterdir()))}.py"
    path.write_text(CLIENT + text, encoding="utf-8")
    return ["python3", str(path)]


def begun(node: Node, *words: str, user: pwd.struct_passwd = NOBODY) -> tuple[subprocess.Popen[str], int]:
    """A step of two tasks that have said init and do not end, and the process of its server."""
    mark = node.scratch / f"begun{len(list(node.scratch.iterdir()))}"
    text = f"init()\nopen('{mark}-%d' % RANK, 'w').close()\nwhile not os.path.exists('{mark}'): time.sleep(0.01)\n"
    client = node.popen("-n2", "--mpi=pmi2", *words, *script(node, text), user=user)
    wait_until(lambda: all(os.path.exists(f"{mark}-{rank}") for rank in (0, 1)), "tasks have begun")
    (pid,) = of_step(node, SERVER)
    client.mark = mark  # type: ignore[attr-defined]
    return client, pid


def of_step(node: Node, name: str) -> list[int]:
    return [pid for pid, called in node.processes() if called == name]


def test_tasks_find_each_other_through_the_server(served: Node) -> None:
    text = """
init()
ask(f"cmd=put kvsname=k key=of-{RANK} value=here-{RANK}")
ask("cmd=barrier_in")
print(RANK, SIZE, ask(f"cmd=get kvsname=k key=of-{(RANK + 1) % SIZE}"))
ask("cmd=finalize")
"""
    done = served.run("-n4", "--mpi=pmi2", *script(served, text), user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"{rank} 4 cmd=get_result rc=0 msg=success value=here-{(rank + 1) % 4}" for rank in range(4)
    ]


@pytest.mark.parametrize("forks", [False, True])
def test_a_task_has_its_own_socket_and_no_other(forks: bool) -> None:
    with running(always_fork=forks) as node:
        told = 'import os; print(*sorted(os.listdir("/proc/self/fd"), key=int), os.environ["PMI_FD"])'
        done = node.run("-n3", "--mpi=pmi2", "python3", "-c", told, user=NOBODY)
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            *fds, own = line.split()
            fds.remove("3" if own != "3" else "4")  # the directory that is read
            assert fds == ["0", "1", "2", own]
        assert len(done.stdout.splitlines()) == 3


SOCKETS = """
import os
from nodectl.spank import *

plugin_type = "spank/sockets"
plugin_name = "sockets"
plugin_version = (22, 5, 8)

def slurm_spank_task_init(sp, ac, av):
    names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdecimal()
             and os.path.exists(f"/proc/self/fd/{fd}")]
    with open(f"SCRATCH/hook-{sp.task.local_id}", "w") as file:
        file.write("\\n".join(sorted(set(name for name in names if name.startswith("socket:")))))
"""


def test_no_hook_that_runs_as_the_user_has_a_socket_of_another_task() -> None:
    with running() as node:
        node.plugin("sockets", SOCKETS.replace("SCRATCH", str(node.scratch)))
        node.plugstack("required sockets\n")
        found = []
        for words in ((), ("--mpi=pmi2",)):
            done = node.run("-n3", *words, "true", user=NOBODY)
            assert done.returncode == 0, done.stderr
            found.append([set((node.scratch / f"hook-{rank}").read_text().split()) for rank in range(3)])
        without, with_server = found
        assert [len(more) - len(less) for less, more in zip(without, with_server, strict=True)] == [1, 1, 1]
        assert not with_server[0] & with_server[1] & with_server[2] - without[0]


def test_the_server_is_the_users_and_has_nothing_of_roots(served: Node) -> None:
    client, pid = begun(served)
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines())
    assert set(status["Uid"].split()) == {str(NOBODY.pw_uid)}
    assert set(status["Gid"].split()) == {str(NOBODY.pw_gid)}
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    open_there = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    assert len([name for name in open_there if name.startswith("socket:")]) == 2
    assert len([name for name in open_there if name.startswith("pipe:")]) == 2
    assert {name for name in open_there if not name.startswith(("socket:", "pipe:"))} == {"/dev/null"}
    client.mark.touch()  # type: ignore[attr-defined]
    assert client.wait(60) == 0


def test_a_step_without_mpi_has_no_server_and_no_variables(served: Node) -> None:
    done = served.run("-n2", "sh", "-c", "env | grep -E 'PMI_|MPI_TYPE'; ls /proc/self/fd | wc -l", user=NOBODY)
    assert (done.stdout, done.returncode) == ("4\n4\n", 0)
    assert not of_step(served, SERVER)


def test_the_variable_and_the_configuration_choose_too(served: Node) -> None:
    told = ("sh", "-c", "echo $SLURM_MPI_TYPE ${PMI_SIZE:-none}")
    done = served.run("-n2", *told, user=NOBODY, env={"SLURM_MPI_TYPE": "pmi2"})
    assert done.stdout == "pmi2 2\n" * 2
    done = served.run("-n2", "--mpi=none", *told, user=NOBODY, env={"SLURM_MPI_TYPE": "pmi2"})
    assert "none" in done.stdout
    assert "2" not in done.stdout.split()
    with running(mpi_default="pmi2") as node:
        assert node.run("-n2", *told, user=NOBODY).stdout == "pmi2 2\n" * 2


def test_the_types_are_listed_and_an_unknown_one_is_refused(served: Node) -> None:
    done = served.run("--mpi=list", user=NOBODY)
    assert done.returncode == 0
    assert done.stdout.split()[-3:] == ["none", "pmi2", "pmix"]
    done = served.run("--mpi=lam", "true", user=NOBODY)
    assert done.returncode == 1
    assert "--mpi=lam: there is no such MPI plugin; there are none, pmi2, pmix" in done.stderr


def test_an_abort_ends_the_step_and_names_task_and_code(served: Node) -> None:
    text = "init()\nif RANK == 1:\n    server.sendall(b'cmd=abort exitcode=7\\n')\ntime.sleep(600)\n"
    done = served.run("-n3", "--mpi=pmi2", *script(served, text), user=NOBODY)
    assert done.returncode == 128 + signal.SIGTERM
    assert "task 1 called MPI_Abort with code 7: the step ends" in done.stderr
    record = served.record(served.last_job())
    assert (record["state"], record["reason"]) == ("FAILED", "task 1 called MPI_Abort with code 7")


def test_a_task_that_is_killed_takes_the_others_along(served: Node) -> None:
    text = "init()\nif RANK == 2:\n    os.kill(os.getpid(), 9)\nask('cmd=barrier_in')\n"
    done = served.run("-n3", "--mpi=pmi2", *script(served, text), user=NOBODY)
    assert done.returncode == 128 + signal.SIGTERM
    lines = [line for line in done.stderr.splitlines() if "the step ends" in line]
    assert len(lines) == 1
    assert "task 2 " in lines[0]


def test_a_task_that_fails_within_mpi_ends_the_step_though_nobody_waits_for_it(served: Node) -> None:
    text = "init()\nif RANK == 0:\n    sys.exit(3)\ntime.sleep(600)\n"
    done = served.run("-n2", "--mpi=pmi2", *script(served, text), user=NOBODY)
    assert done.returncode == 128 + signal.SIGTERM
    assert "task 0 ended with exit code 3 before MPI_Finalize: the step ends" in done.stderr


def test_a_task_that_fails_behind_mpi_leaves_the_others_alone(served: Node) -> None:
    text = "init()\nask('cmd=finalize')\n"
    text += "if RANK == 0:\n    open(sys.argv[1], 'w').write(str(os.getpid()))\n    sys.exit(3)\n"
    text += "while not os.path.exists(sys.argv[1]) or not (pid := open(sys.argv[1]).read()): time.sleep(0.01)\n"
    text += "while os.path.exists(f'/proc/{pid}'): time.sleep(0.01)\nprint('went on')\n"
    mark = served.scratch / "failed-behind"
    done = served.run("-n2", "--mpi=pmi2", *script(served, text), str(mark), user=NOBODY)
    assert (done.returncode, done.stdout) == (3, "went on\n")


def test_others_do_not_wait_in_vain_for_a_task_that_left_well(served: Node) -> None:
    text = "init()\nif RANK == 0:\n    sys.exit(0)\nask('cmd=barrier_in')\n"
    done = served.run("-n2", "--mpi=pmi2", *script(served, text), user=NOBODY)
    assert done.returncode == 128 + signal.SIGTERM
    assert "task 0 has left MPI and others wait for it: the step ends" in done.stderr


def test_tasks_that_leave_without_a_word_and_well_are_no_failure(served: Node) -> None:
    done = served.run("-n2", "--mpi=pmi2", *script(served, "init()\n"), user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_malformed_message_ends_its_step_and_no_other(served: Node) -> None:
    beside, _ = begun(served)
    done = served.run("-n2", "--mpi=pmi2", *script(served, "server.sendall(b'x' * 99999)\ntime.sleep(600)\n"))
    assert "sent its MPI server what is no message: the step ends" in done.stderr
    assert done.returncode == 128 + signal.SIGTERM
    beside.mark.touch()  # type: ignore[attr-defined]
    assert beside.wait(60) == 0


def test_spawn_is_refused_with_a_word(served: Node) -> None:
    text = "init()\nprint(ask('mcmd=spawn\\nnprocs=1\\nexecname=a\\ntotspawns=1\\nspawnssofar=1\\nendcmd'))\n"
    done = served.run("-n1", "--mpi=pmi2", *script(served, text), user=NOBODY)
    assert done.stdout == "cmd=spawn_result rc=-1 msg=a_step_starts_no_further_programs\n"
    assert "task 0 wanted MPI to start further programs, which a step does not" in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_its_user_kills_ends_the_step(served: Node, number: int) -> None:
    client, server = begun(served)
    os.kill(server, number)
    _, said = client.communicate(timeout=60)
    assert f"its MPI server: it was ended by signal {number:d}: the step ends" in said
    assert client.returncode == 128 + signal.SIGTERM


def test_a_server_that_its_user_has_stopped_keeps_no_step_from_ending(served: Node) -> None:
    client, server = begun(served)
    os.kill(server, signal.SIGSTOP)
    client.mark.touch()  # type: ignore[attr-defined]
    client.communicate(timeout=60)
    assert client.returncode == 0
    assert not of_step(served, SERVER)


def test_a_server_ends_with_its_step_runner(served: Node) -> None:
    client, _ = begun(served)
    for pid, name in served.processes():
        if name.startswith("stepd"):
            os.kill(pid, signal.SIGKILL)
    client.communicate(timeout=60)
    wait_until(lambda: not served.processes(), "nothing is left")


@pytest.mark.parametrize("level", ["none", "default", "strict"])
def test_tasks_find_each_other_at_every_level_of_confinement(served: Node, level: str) -> None:
    text = "init()\nask('cmd=barrier_in')\nprint(ask('cmd=get_universe_size'))\n"
    done = served.run("-n2", "--mpi=pmi2", f"--secure={level}", *script(served, text), user=NOBODY)
    assert done.stdout == "cmd=universe_size size=2 rc=0\n" * 2, done.stderr


def test_tasks_find_each_other_in_a_container() -> None:
    with contained(container_namespaces=["pid", "ipc"], container_dirs=["/var/tmp", "/dev/shm"]) as found:
        text = "init()\nask('cmd=barrier_in')\nprint(ask('cmd=get_universe_size'))\n"
        assert found.out("-n2", "--mpi=pmi2", *script(found.node, text)) == "cmd=universe_size size=2 rc=0\n" * 2


def test_without_cgroups_nothing_is_left_of_a_server() -> None:
    with running(proctrack_type="proctrack/pgid", task_plugin=["task/none"]) as node:
        text = "init()\nask('cmd=barrier_in')\nprint(ask('cmd=get_universe_size'))\n"
        done = node.run("-n2", "--mpi=pmi2", *script(node, text), user=NOBODY)
        assert done.stdout == "cmd=universe_size size=2 rc=0\n" * 2, done.stderr


def test_nobody_else_can_end_a_users_server(served: Node) -> None:
    client, server = begun(served, user=OTHER)
    done = served.run("python3", "-c", f"import os; os.kill({server}, 9)", user=NOBODY)
    assert "PermissionError" in done.stderr
    client.mark.touch()  # type: ignore[attr-defined]
    assert client.wait(60) == 0
