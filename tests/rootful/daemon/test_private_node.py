"""Without a service root's commands have a node of their own, and nothing of it stays behind, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.container import LOCK
from rootful.node import NOBODY, PATIENCE, Node, wait_for_answer, wait_until

ADDS = """
from nodectl.spank import SpankOption

spank_options = [SpankOption("added", "", "Of a plugin.", 0, 0, lambda val, optarg, remote: 0)]


def slurm_spank_init(sp, argc, argv):
    pass
"""
START = "systemctl start nodectld" if os.path.exists("/run/systemd/system") else "nodectl daemon"


@pytest.fixture
def alone() -> Iterator[Node]:
    """A configuration that no daemon serves."""
    node = Node()
    try:
        yield node
    finally:
        for pid, _ in processes(node):
            with contextlib.suppress(ProcessLookupError):  # a forkserver follows its daemon
                os.kill(pid, signal.SIGKILL)
        node.close()


def processes(node: Node) -> list[tuple[int, str]]:
    """Whoever was started for this node: its directory is in their command line, or its cgroup is theirs."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes().decode("utf-8", "replace")
            if int(name) != os.getpid() and (str(node.dir) in line or node.cgroup_name in cgroup_of(int(name))):
                found.append((int(name), line.replace("\0", " ")[-200:]))
        except OSError:
            continue
    return found


def leftovers(node: Node) -> list[str]:
    runtime = node.dir / "run"
    found = [str(path) for path in runtime.iterdir()] if runtime.exists() else []
    found += [f"process {pid}: {line}" for pid, line in processes(node)]
    directory, _, name = node.base.rpartition("/")
    return found + [str(path) for path in Path(directory).glob(f"{name}*")]


def assert_nothing_left(node: Node, patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while left := leftovers(node):
        assert time.monotonic() < end, left
        time.sleep(0.02)


def wait_for_the_end(node: Node) -> None:
    """Of all that a killed daemon has left. As long as a step's runner lives, the next command leaves it alone."""
    wait_until(lambda: not processes(node), "the step has ended with its client")


def begun(
    node: Node, script: str = "echo ready; trap '' TERM; sleep 300; sleep 300", *options: str
) -> tuple[subprocess.Popen[str], int]:
    """A client whose task runs and that has its node's answer, and the pid of its daemon."""
    client = node.popen(*options, "sh", "-c", script)
    return client, daemon_of(client)


def daemon_of(client: subprocess.Popen[str]) -> int:
    """Of a client whose task says that it is ready."""
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    wait_for_answer(client)
    (daemon,) = Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text(encoding="ascii").split()
    return int(daemon)


def test_a_step_runs_and_nothing_is_left_when_the_command_has_ended(alone: Node) -> None:
    done = alone.run("-n2", "-l", "sh", "-c", "echo $SLURM_PROCID; cat; exit 3", stdin="in\n")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (3, ["0: 0", "0: in", "1: 1", "1: in"]), done.stderr
    assert leftovers(alone) == []  # not "after a while"


def test_node_keeps_no_descriptor_of_its_command(alone: Node) -> None:
    reader, writer = os.pipe()
    client = alone.popen("sh", "-c", "echo ready; exec sleep 300", pass_fds=[writer])
    ours = os.stat(writer).st_ino
    held = {os.stat(one).st_ino for one in Path(f"/proc/{daemon_of(client)}/fd").iterdir()}
    client.kill()
    client.communicate()
    os.close(reader)
    os.close(writer)
    assert ours not in held
    assert_nothing_left(alone)


@pytest.mark.parametrize("flags", [["-I"], ["-S"], ["-IS", "-X", "utf8=0"]], ids=["site", "not isolated", "ascii"])
def test_command_in_an_interpreter_unlike_a_daemons_executes_one(alone: Node, flags: list[str]) -> None:
    """It may have threads, modules or another coding of names. A command's own interpreter is forked."""
    lines = []
    for interpreter in (["-IS"], flags):
        python, _, *words = alone.command("run", "sh", "-c", "echo ready; exec sleep 300")
        client = subprocess.Popen(
            [python, *interpreter, *words], env=alone.environment({"LC_ALL": "C"}), cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        lines.append(Path(f"/proc/{daemon_of(client)}/cmdline").read_bytes())
        client.kill()
        client.communicate()
        assert_nothing_left(alone)
    assert [b"daemon.private(" in line for line in lines] == [False, True]


def test_command_waits_for_its_nodes_forkserver(alone: Node) -> None:
    fini = """
import time
def fini():
    if open("/proc/self/comm").read() == "nodectl-fork\\n":
        time.sleep(1)
    return 0
"""
    alone.plugin("slow", fini, kind="task")
    alone.configure(task_plugin=["task/cgroup", "task/slow"])
    # Not with pipes, whose ends would be waited for.
    assert alone.popen("true", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait(PATIENCE) == 0
    assert leftovers(alone) == []


@pytest.mark.parametrize(
    "words", [("--uid=nobody", "true"), ("nosuch",), ("-n0", "true"), ("-n100000", "true"), ("--help",)]
)
def test_however_a_command_ends_nothing_is_left(alone: Node, words: tuple[str, ...]) -> None:
    alone.run(*words)
    assert leftovers(alone) == []


def test_command_says_nothing_of_constraints_that_nobody_asked_for(alone: Node) -> None:
    assert alone.run("true").stderr == ""


def test_the_history_is_shared_by_the_nodes_of_one_machine(alone: Node) -> None:
    jobs = []
    for _ in range(2):
        assert alone.run("true").returncode == 0
        jobs.append(alone.last_job())
    assert jobs == [1, 2]
    assert alone.record(1)["state"] == "COMPLETED"
    assert alone.nodectl("trace", "2.0").returncode == 0
    alone.start()
    assert alone.run("true").returncode == 0
    assert alone.last_job() == 3


def test_two_private_nodes_do_not_disturb_each_other(alone: Node) -> None:
    client, _ = begun(alone)
    assert alone.run("echo", "second").stdout == "second\n"
    assert client.poll() is None
    client.send_signal(signal.SIGKILL)
    client.communicate()
    assert_nothing_left(alone)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_step_and_the_node_cleans_up(alone: Node, number: int) -> None:
    client, _ = begun(alone, "echo ready; exec sleep 300", "-X")
    client.send_signal(number)
    client.communicate(timeout=PATIENCE)
    assert client.returncode == 128 + number
    assert leftovers(alone) == []


def test_interrupt_before_the_step_has_begun_ends_command_step_and_node(alone: Node) -> None:
    there, release = alone.scratch / "there", alone.scratch / "release"
    prolog = alone.dir / "prolog"
    prolog.write_text(f"#!/bin/sh\n: >{there}\nuntil [ -e {release} ]; do sleep 0.02; done\n", encoding="utf-8")
    prolog.chmod(0o755)
    alone.configure(prolog=str(prolog))
    client = alone.popen("sleep", "300")
    wait_until(there.exists, "the prolog runs")
    client.send_signal(signal.SIGINT)
    release.touch()
    client.communicate(timeout=PATIENCE)
    assert client.returncode == 128 + signal.SIGINT
    assert leftovers(alone) == []


def test_a_killed_client_leaves_nothing(alone: Node) -> None:
    client, _ = begun(alone)
    client.kill()
    client.communicate()
    assert_nothing_left(alone)


def test_a_killed_daemon_leaves_nothing_after_the_next_command(alone: Node) -> None:
    client, daemon = begun(alone)
    os.kill(daemon, signal.SIGKILL)
    client.send_signal(signal.SIGINT)
    client.send_signal(signal.SIGKILL)
    client.communicate(timeout=PATIENCE)
    wait_for_the_end(alone)
    assert alone.run("echo", "next").stdout == "next\n"
    assert_nothing_left(alone)


def test_a_step_goes_on_to_its_end_without_its_daemon(alone: Node) -> None:
    go = alone.scratch / "go"
    client, daemon = begun(alone, f"echo ready; until [ -e {go} ]; do sleep 0.02; done; exit 5")
    os.kill(daemon, signal.SIGKILL)
    go.touch()
    _, errors = client.communicate(timeout=PATIENCE)
    assert client.returncode == 5, errors
    wait_for_the_end(alone)
    assert alone.run("true").returncode == 0
    assert_nothing_left(alone)


def test_client_and_daemon_killed_together_leave_nothing_after_the_next_command(alone: Node) -> None:
    client, daemon = begun(alone)
    os.kill(daemon, signal.SIGKILL)
    client.kill()
    client.communicate()
    assert alone.run("true").returncode == 0
    wait_for_the_end(alone)
    assert alone.run("true").returncode == 0
    assert_nothing_left(alone)


@pytest.mark.parametrize("command", ["run", "ps"])
def test_an_ordinary_user_gets_a_clear_line(alone: Node, command: str) -> None:
    done = alone.nodectl(command, *(["true"] if command == "run" else []), user=NOBODY)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line == (
        f"nodectl: error: no service at {alone.socket}: root starts it with `{START}`; "
        "`nodectl --user` gives this command a node of your own"
    )
    assert leftovers(alone) == []


def test_an_ordinary_user_is_led_to_a_node_of_their_own(alone: Node) -> None:
    runtime = alone.scratch / "runtime"
    (runtime / "nodectl").mkdir(mode=0o700, parents=True)
    os.chown(runtime / "nodectl", NOBODY.pw_uid, NOBODY.pw_gid)
    begin = f"nodectl: error: no service at {alone.socket}: root starts it with `{START}`; "
    for end in ("`nodectl --user daemon` is your own\n", "your own node answers `nodectl --user`\n"):
        done = alone.nodectl("queue", user=NOBODY, env={"XDG_RUNTIME_DIR": str(runtime)})
        assert (done.returncode, done.stderr) == (1, begin + end)
        (runtime / "nodectl" / "nodectl.sock").touch()


def test_a_private_node_is_roots(alone: Node) -> None:
    """Else root's command waited for the steps of whoever found its socket."""
    client, _ = begun(alone, "echo ready; exec sleep 300")
    (place,) = (alone.dir / "run").glob("private.*")
    assert stat.S_IMODE((place / "nodectl.sock").stat().st_mode) == 0o600
    command = alone.command("--socket", str(place / "nodectl.sock"), "run", "true")
    refused = subprocess.run(
        command, user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[], capture_output=True, text=True, check=False,
        env=alone.environment(), cwd="/",
    )  # fmt: skip
    assert refused.returncode == 1
    assert "connect: Permission denied" in refused.stderr
    client.kill()
    client.communicate()
    assert_nothing_left(alone)


@pytest.mark.parametrize(
    "words", [("run", "-n", "2", "--help"), ("run", "--cpu-bind=help"), ("run", "--mpi=list"), ("bulk", "--help")]
)
def test_a_text_takes_no_private_node_but_where_plugins_may_add_options(alone: Node, words: tuple[str, ...]) -> None:
    done = alone.nodectl(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (alone.dir / "run").exists(), "no node has begun"
    if words[-1] == "--help":
        assert "--added" not in done.stdout
        alone.plugstack(f"required {alone.plugin('adds', ADDS)}\n")
        assert "--added" in alone.nodectl(*words).stdout


def test_the_help_of_a_program_is_the_programs(alone: Node) -> None:
    assert alone.run("sh", "-c", "echo $1", "sh", "--help").stdout == "--help\n"


def test_a_visit_has_no_use_for_a_private_node(alone: Node) -> None:
    done = alone.nodectl("enter", "1", "true")
    line = f"nodectl: error: no service at {alone.socket}: start it with `{START}`\n"
    assert (done.returncode, done.stderr) == (1, line)
    assert leftovers(alone) == []


def test_a_socket_that_was_named_is_not_replaced_by_a_private_node(alone: Node) -> None:
    command = alone.command("--socket", "/no/such.sock", "run", "true")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone.environment())
    assert (done.returncode, done.stderr) == (
        1,
        "nodectl: error: no service at /no/such.sock: connect: No such file or directory; "
        "--socket or NODECTL_SOCKET has led here\n",
    )


def test_a_private_node_that_cannot_start_says_why(alone: Node) -> None:
    alone.configure(task_plugin=["task/nosuch"])
    done = alone.run("true")
    assert done.returncode == 1
    assert "task/nosuch" in done.stderr
    assert "start a private node: it did not come up" in done.stderr
    assert leftovers(alone) == []


@pytest.mark.parametrize(
    "tracking", [{}, {"proctrack_type": "proctrack/linuxproc", "task_plugin": ["task/none"]}], ids=["cgroup", "none"]
)
def test_the_container_of_a_dead_node_goes_with_the_next_command(alone: Node, tracking: dict[str, object]) -> None:
    alone.configure(job_container_type="job_container/namespace", **tracking)
    client, daemon = begun(alone, "echo ready; exec sleep 300", "--container-ns=pid,net")
    (place,) = (path for path in (alone.dir / "state/containers").iterdir() if path.name != LOCK)
    first = int((place / "first").read_text(encoding="ascii").split()[0])
    os.kill(daemon, signal.SIGKILL)  # first: it would end what its client leaves
    client.kill()
    client.communicate(timeout=PATIENCE)
    assert os.path.exists(f"/proc/{first}")  # whoever could have ended it is dead

    def gone() -> bool:
        assert alone.run("true").returncode == 0
        return not place.exists() and not os.path.exists(f"/proc/{first}")

    wait_until(gone, "it is removed")
    assert_nothing_left(alone)
    assert alone.dir.name not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")
