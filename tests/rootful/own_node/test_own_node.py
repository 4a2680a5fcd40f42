"""A node without root: what an ordinary user gets from `nodectl --user`, and what stays root's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.launch.cgroup import tree
from nodectl.launch.stepd.orders import WAITING
from rootful.at_terminal import at_terminal
from rootful.hostile import as_user
from rootful.native import HEAD, HOOK, compiled
from rootful.node import NOBODY, OTHER, end_again_and_again, wait_for_answer, wait_until
from rootful.own import OwnNode, own_node

HOOKS = ("init", "user_init", "task_init_privileged", "task_init", "task_exit", "job_prolog")
SAY = 'FILE *said = fopen("{path}", "a"); fprintf(said, "{hook}:%d\\n", (int)geteuid()); fclose(said);'


@pytest.fixture(scope="module")
def shared() -> Iterator[OwnNode]:
    with own_node() as node:
        yield node


@pytest.fixture(scope="module")
def delegated() -> Iterator[OwnNode]:
    with own_node(delegated=True) as node:
        yield node


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_needs_no_service_no_root_and_no_configuration() -> None:
    with own_node(started=False) as node:
        done = node.nodectl("run", "-n2", "-l", "id", "-un")
        assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["0: nobody", "1: nobody"]), done.stderr
        assert done.stderr == ""
        assert not list(node.runtime.glob("nodectl/private.*")), "the private node has left nothing"


@pytest.fixture
def others() -> Iterator[Path]:
    """A directory of another user's, in which everybody may write."""
    with tempfile.TemporaryDirectory(prefix="nodectl-others-", dir="/run") as name:
        os.chown(name, OTHER.pw_uid, OTHER.pw_gid)
        os.chmod(name, 0o777)  # it is to invite
        yield Path(name)


def test_a_command_tells_nothing_to_somebody_elses_service(others: Path) -> None:
    """Who is quicker to make a directory in /tmp would be sent commands, environment and streams."""
    path = others / "sock"

    def listen() -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(path))
        path.chmod(0o666)
        sock.listen()
        sock.detach()

    with as_user(listen, OTHER.pw_uid, OTHER.pw_gid), own_node(started=False) as node:
        node.configure("nodectl.toml", f'socket = "{path}"\n')
        done = node.nodectl("run", "true")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"uid {OTHER.pw_uid} listens there" in done.stderr


@pytest.mark.parametrize("words", [("run", "true"), ("daemon",)])
def test_a_node_has_its_files_in_nobody_elses_directory(others: Path, words: tuple[str, ...]) -> None:
    """Whose directory it is could put other steps in the place of the user's."""
    with own_node(started=False) as node:
        node.configure("nodectl.toml", f'runtime_dir = "{others}"\n')
        done = node.nodectl(*words)
        assert done.returncode == 1
        assert f"{others} is not a directory of uid {NOBODY.pw_uid} alone" in done.stderr
        assert not list(others.iterdir())


def test_a_service_for_all_is_roots_and_who_is_not_is_told_of_their_own() -> None:
    with own_node(started=False) as node:
        done = subprocess.run(
            node.words("daemon"), check=False, capture_output=True, text=True, timeout=60, **node.how()
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert "must be root" in done.stderr
        assert "`nodectl --user daemon`" in done.stderr


def test_a_tab_behind_user_asks_the_users_own_node(shared: OwnNode) -> None:
    with shared.popen("run", "sleep", "600") as step:
        wait_until(lambda: "sleep" in shared.nodectl("ps").stdout, "the step runs")
        words = shared.words("__complete", "zsh", "--user", "show", "")
        told = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60, **shared.how()).stdout
        step.terminate()
    assert "sleep" in told


def test_a_tasks_cpus_are_those_that_it_is_bound_to(shared: OwnNode) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    done = shared.nodectl("run", "-n1", "--cpu-bind=map_cpu:0", "grep", "Cpus_allowed_list", "/proc/self/status")
    assert done.stdout.split() == ["Cpus_allowed_list:", str(cpus[0])], done.stderr


def test_options_that_want_root_or_a_container_are_refused_with_the_reason(shared: OwnNode) -> None:
    for words, why in (
        (("--uid=root",), "only root may run steps as another user"),
        (("--container-ns=pid",), "there are no job containers here"),
    ):
        done = shared.nodectl("run", *words, "true")
        assert done.returncode == 1
        assert why in done.stderr


def test_a_step_is_confined_as_in_the_service(shared: OwnNode) -> None:
    done = shared.nodectl("run", "--secure=strict", "sh", "-c", f"touch {shared.runtime}/x || touch here && ls here")
    assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr
    assert "Permission denied" in done.stderr


def test_batch_jobs_wait_in_a_queue_and_their_scripts_reach_their_node(shared: OwnNode) -> None:
    output = shared.home / "out"
    body = "echo $SLURM_JOB_UID $NODECTL_SOCKET"
    done = shared.nodectl("submit", "-o", str(output), f"--wrap={body}")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: output.exists() and output.read_text().endswith("\n"), "the script has run")
    assert output.read_text().split() == [str(NOBODY.pw_uid), str(shared.socket)]


def test_commands_in_bulk_run_in_one_step(shared: OwnNode) -> None:
    done = shared.nodectl("bulk", "-k", "-n2", "echo", ":::", "a", "b", "c")
    assert (done.returncode, done.stdout.split()) == (0, ["a", "b", "c"]), done.stderr


def test_a_program_gets_a_terminal_of_its_own(shared: OwnNode) -> None:
    argv = shared.words("--user", "run", "--pty", "sh", "-c", "stty size; stat -c %U $(tty)")
    how = shared.how()
    with at_terminal(argv, rows=33, columns=99, user=NOBODY, env=how["env"], cwd=how["cwd"]) as terminal:
        terminal.wait_for("33 99")
        terminal.wait_for("nobody")
        assert terminal.wait_for_end() == 0


def test_what_a_task_leaves_behind_ends_with_its_step(shared: OwnNode) -> None:
    pid = shared.home / "pid"
    done = shared.nodectl("run", "sh", "-c", f"(setsid sleep 1000 & echo $! >{pid}) >/dev/null 2>&1")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not is_running(int(pid.read_text())), "it has ended")


def test_nobody_else_is_served_and_root_is_told_why(shared: OwnNode) -> None:
    status = os.stat(shared.socket)
    assert (status.st_uid, status.st_mode & 0o077) == (NOBODY.pw_uid, 0)
    roots = shared.words("--socket", str(shared.socket), "run", "true")
    done = shared.nodectl("run", "true", user=0, group=0)
    assert "--user is for everybody else" in done.stderr
    done = subprocess.run(roots, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"the own node of uid {NOBODY.pw_uid}, which starts no others' steps" in done.stderr


def test_a_directory_that_a_stranger_has_made_is_not_used() -> None:
    with own_node(started=False) as node:
        place = node.runtime / "nodectl"
        place.mkdir()
        os.chown(place, OTHER.pw_uid, OTHER.pw_gid)
        for words in (("run", "true"), ("daemon",)):
            done = node.nodectl(*words)
            assert done.returncode == 1
            assert f"{place} is not a directory of uid {NOBODY.pw_uid} alone" in done.stderr
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_that_is_told_to_end_again_and_again_ends_well(number: int) -> None:
    with own_node() as node:
        assert node.daemon is not None
        assert end_again_and_again(node.daemon, number) == 0
        assert not node.socket.exists()
        node.daemon = None


def test_a_step_outlives_its_daemon_and_the_next_one_records_it() -> None:
    with own_node() as node:
        go = node.home / "go"
        step = node.popen("run", "sh", "-c", f"echo begun; until test -e {go}; do sleep 0.05; done; echo done")
        assert step.stdout is not None
        assert step.stdout.readline() == "begun\n"
        wait_for_answer(step)
        node.stop(signal.SIGKILL)
        node.start()
        go.touch()
        assert (step.wait(60), step.stdout.read()) == (0, "done\n")
        wait_until(lambda: "COMPLETED" in node.nodectl("acct", "-j", "1.0").stdout, "its record is there")


def test_daemon_without_a_cgroup_says_in_one_line_what_it_does_not_limit(shared: OwnNode) -> None:
    lines = [line for line in shared.logged().splitlines() if "limited" in line or "enforced" in line]
    why = "memory, CPU time and processes of steps are not limited here; `nodectl --user doctor` says why"
    assert lines == [f"nodectl daemon: {why}"]


def test_a_second_daemon_is_told_where_the_first_ones_pid_is(shared: OwnNode) -> None:
    done = shared.nodectl("daemon")
    assert (done.returncode, "another daemon serves" in done.stderr) == (1, True)
    assert "`nodectl --user doctor` has its pid" in done.stderr


def test_who_asks_for_a_limit_that_is_not_kept_is_told_so(shared: OwnNode) -> None:
    done = shared.nodectl("run", "--mem=64M", "true")
    warning = "nodectl: warning: this machine does not limit memory of jobs; `nodectl --user doctor` says why\n"
    assert (done.returncode, done.stderr) == (0, warning)
    assert shared.nodectl("run", "-Q", "--mem=64M", "true").stderr == ""
    assert "exit code 3" in shared.nodectl("run", "-Q", "--mem=64M", "sh", "-c", "exit 3").stderr
    assert shared.nodectl("run", "true").stderr == ""


def test_spank_plugins_are_called_as_the_user_and_roots_hooks_are_named_once() -> None:
    with own_node(started=False) as node:
        said = node.home / "said"
        bodies = [HOOK.format(hook=hook, body=SAY.format(path=said, hook=hook)) for hook in HOOKS]
        source = node.home / "teller.c"
        source.write_text(HEAD.format(name="teller") + "".join(bodies), encoding="utf-8")
        library = compiled(source, node.home / "teller.so")
        node.configure("plugstack.conf", f"required {library}\n")
        node.start()
        done = node.nodectl("run", "true")
        assert done.returncode == 0, done.stderr
        called = {"init", "user_init", "task_init", "task_exit"}
        assert set(said.read_text().split()) == {f"{hook}:{NOBODY.pw_uid}" for hook in called}
        left_out = [line for line in node.logged().splitlines() if "not called" in line]
        wanted = "slurm_spank_task_init_privileged, slurm_spank_job_prolog"
        assert left_out == [f"nodectl daemon: as uid {NOBODY.pw_uid}, not called: {wanted}: root's"]


def test_where_a_cgroup_is_delegated_steps_live_in_it(delegated: OwnNode) -> None:
    assert delegated.cgroup is not None
    pid = delegated.home / "pid"
    daemonized = f"(setsid sleep 1000 & echo $! >{pid}) >/dev/null 2>&1; cat /proc/self/cgroup"
    done = delegated.nodectl("run", "sh", "-c", daemonized)
    below = delegated.cgroup.full_path.removeprefix(tree.find_mount())
    assert f"0::{below}/nodectl/job_1/step_0/user/task_0" in done.stdout.splitlines(), done.stderr
    wait_until(lambda: not is_running(int(pid.read_text())), "it has ended")
    base = Path(f"{delegated.cgroup.full_path}/nodectl")
    wait_until(lambda: not list(base.glob("job_*")), "the daemon has removed the job's cgroup")


def test_a_runner_is_kept_where_a_cgroup_is_delegated(delegated: OwnNode) -> None:
    for _ in range(3):
        done = delegated.nodectl("run", "echo", "here")
        assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr


def test_a_runner_is_kept_where_processes_are_tracked_by_their_parents(shared: OwnNode) -> None:
    """Also where a task has left something behind: that has ended before the runner waits."""
    pid = shared.home / "left"
    runners = set()
    for behind in (":", f"(setsid sleep 1000 & echo $! >{pid}) >/dev/null 2>&1", ":"):
        done = shared.nodectl("run", "sh", "-c", f"{behind}; echo $PPID")
        runners.add(done.stdout.strip())
        comm = Path(f"/proc/{done.stdout.strip()}/comm")
        wait_until(lambda comm=comm: comm.read_text() == f"{WAITING}\n", "the runner waits for the next step")
        assert not pid.exists() or not is_running(int(pid.read_text()))
    assert len(runners) == 1


def test_doctor_says_what_is_there_and_what_is_not(shared: OwnNode) -> None:
    done = shared.nodectl("doctor")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout
    assert f"ok    identity       steps run as uid {NOBODY.pw_uid}, as the service does" in lines
    assert any(line.startswith("warn  cgroup         not delegated") for line in lines), done.stdout
    assert lines[-1].endswith("0 fail")


@pytest.mark.parametrize("which", ["shared", "delegated"])
def test_a_step_is_suspended_and_goes_on(request: pytest.FixtureRequest, which: str) -> None:
    node: OwnNode = request.getfixturevalue(which)
    go = node.home / f"go-{which}"
    step = node.popen(
        "run", "-J", "still", "sh", "-c", f"echo begun; until test -e {go}; do sleep 0.05; done; echo done"
    )
    assert step.stdout is not None
    assert step.stdout.readline() == "begun\n"
    (name,) = (line.split()[0] for line in node.nodectl("ps").stdout.splitlines() if "still" in line)
    for command, state in (("suspend", "SUSPENDED"), ("resume", "RUNNING")):
        done = node.nodectl(command, name)
        assert (done.returncode, done.stderr) == (0, "")
        assert state in node.nodectl("show", name).stdout
    go.touch()
    assert (step.wait(60), step.stdout.read()) == (0, "done\n")
