"""What of ours a user reaches: nothing that a step's processes have open, by whatever path; not its progress."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping

import pytest

from nodectl.model.confinement_level import LEVELS
from nodectl.plugin_host.tracing import progress
from rootful.contained import contained
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until
from rootful.raw import REQUEST, call, exchange
from rootful.raw import launch as launch_data

MOST = 41
LINK = "/proc/self/fd/"
LOOK = """
import json, os
def slurm_spank_task_init(sp, ac, argv):
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = [os.readlink("/proc/self/fd/" + name), os.stat("/proc/self/fd/" + name).st_mode]
        except FileNotFoundError:
            pass
    os.write(1, json.dumps(found).encode() + b"\\n")
    return 0
"""


@contextlib.contextmanager
def stage(place: str, **config: object) -> Iterator[Node]:
    """A node whose jobs run here, or each in a container."""
    if place == "container":
        with contained(**config) as found:
            yield found.node
    else:
        with running(**config) as node:
            yield node


def launch(node: Node, **request: object) -> Mapping[str, object]:
    """A step of nobody's, without a client; its record."""
    child = subprocess.run(
        ["/usr/bin/python3", "-c", TALK, str(node.socket)],
        input=call("org.nodectl.Launch", parameters={"request": {**REQUEST, **request}}),
        user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[], capture_output=True, check=True,
        timeout=PATIENCE,
    )  # fmt: skip
    reply = json.loads(child.stdout)
    assert "error" not in reply, reply
    answer = node.call("Wait", job=reply["parameters"]["job"], step=0)
    record = answer["record"]
    assert isinstance(record, Mapping)
    return record


TALK = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(sys.stdin.buffer.read())
data = b""
while not data.endswith(b"\\0"):
    data += sock.recv(65536)
sys.stdout.buffer.write(data[:-1])
"""


@pytest.mark.parametrize("place", ["here", "container"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("option", ["-i", "-o", "-e"])
def test_a_stream_by_way_of_a_descriptor_of_ours_is_refused(place: str, level: str, option: str) -> None:
    """-o emptied the progress, of which step runner and daemon died; -i gave it to the program, open for writing."""
    with stage(place) as node:
        done = node.run(f"-n{MOST}", f"--secure={level}", option, f"{LINK}%t", "--", "cat", user=NOBODY)
        told = done.stderr.splitlines()
        assert done.returncode == 1, done
        words = (
            "Too many levels of symbolic links, or one of /proc",
            "No such file or directory",
        )  # it has not that many
        refused = [line for line in told if any(f"'{LINK}" in line and f": {why}" in line for why in words)]
        assert len(refused) == MOST, told
        assert done.stdout == ""
        assert node.record(node.last_job())["state"] == "FAILED"


@pytest.mark.parametrize("place", ["here", "container"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_directory_by_way_of_a_descriptor_of_ours_is_none(place: str, level: str) -> None:
    """It led to the host's directories, out of a container."""
    with stage(place) as node:
        for number in range(MOST):
            out = node.scratch / f"{number}"
            launch(node, argv=["pwd", "-P"], cwd=f"{LINK}{number}", secure=level, stdout=str(out))
            assert out.read_text(encoding="utf-8") == "/tmp\n", number


@pytest.mark.parametrize("place", ["here", "container"])
def test_a_shared_file_by_way_of_a_descriptor_of_ours_is_not_emptied(place: str) -> None:
    """The step runner empties what several tasks write to, before it forks them."""
    with stage(place) as node:
        for number in range(3, 20):
            record = launch(node, argv=["true"], ntasks=2, cwd="/tmp", stdout=f"{LINK}{number}")
            assert (record["state"], len(record["tasks"])) == ("FAILED", 2), (number, record)  # type: ignore[arg-type]


def test_a_file_for_a_container_does_not_leave_it_by_way_of_a_descriptor_of_ours() -> None:
    """Directories that the visitor had open were the host's, and from them it is only upwards to the host's /tmp."""
    with contained() as found, tempfile.TemporaryDirectory(dir="/tmp", prefix="nodectl-") as outside:
        node = found.node
        os.chmod(outside, 0o777)
        client = node.popen("-D", "/tmp", "sh", "-c", "echo on; exec sleep 600", user=NOBODY)
        assert client.stdout is not None
        assert client.stdout.readline() == "on\n"
        (node.scratch / "file").write_text("x", encoding="utf-8")
        for number in range(3, 20):
            target = f"{LINK}{number}/{'../' * 12}{outside}/{number}"
            done = node.nodectl("bcast", "--job", str(node.last_job()), str(node.scratch / "file"), target, user=NOBODY)
            assert (done.returncode, os.listdir(outside)) == (1, []), number
        inside = node.nodectl("enter", str(node.last_job()), "ls", "/proc/self/fd", user=NOBODY)
        assert inside.stdout.split() == ["0", "1", "2", "3"], inside.stderr
        client.kill()
        client.communicate()


def test_a_visitor_does_not_begin_in_a_directory_of_ours() -> None:
    with contained() as found:
        node = found.node
        for number in range(3, 20):
            reply, _ = exchange(node, launch_data(argv=["sleep", "600"], uid=NOBODY.pw_name, cwd=f"{LINK}{number}"))
            assert reply is not None
            job = reply["parameters"]["job"]  # type: ignore[index]
            entered = node.nodectl("enter", str(job), "pwd", "-P", user=NOBODY)
            assert entered.stdout == "/tmp\n", (number, entered.stderr)
            node.nodectl("signal", "-s", "KILL", str(job))


def test_streams_that_are_the_users_may_be_named(node: Node) -> None:
    done = node.run("-o", "out", "-e", "/dev/stdout", "--", "sh", "-c", "echo told >&2", user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert (node.scratch / "out").read_text(encoding="utf-8") == "told\n"


@pytest.mark.parametrize("place", ["here", "container"])
def test_nothing_of_ours_is_open_where_the_users_part_begins(place: str) -> None:
    """But pipes that only root may open by name, and the trace."""
    with stage(place) as node:
        node.plugin("look", LOOK)
        node.plugstack("required look\n")
        done = node.run("-l", "-n2", "--cpu-bind=none", "true", user=NOBODY)
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            found = json.loads(line.partition(": ")[2])
            theirs = ("pipe:", "socket:", "/dev/null")
            named = [at for name, (at, _) in found.items() if int(name) > 2 and not at.startswith(theirs)]
            assert named == [f"{node.steps}/{node.last_job()}.0.trace"], found


def test_a_plugins_own_descriptors_stay_open_until_the_program(node: Node) -> None:
    """Containers by SPANK plugins open namespaces as root and enter them as the user, in task_init."""
    node.plugin(
        "keeper",
        "import os\nfds = []\n"
        "def slurm_spank_init(sp, ac, argv):\n    fds.append(os.open('/etc', os.O_RDONLY))\n    return 0\n"
        "slurm_spank_task_init_privileged = slurm_spank_init\n"
        "def slurm_spank_task_init(sp, ac, argv):\n    [os.fstat(fd) for fd in fds]\n    return 0\n",
    )
    node.plugstack("required keeper\n")
    done = node.run("ls", "/proc/self/fd", user=NOBODY)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "1", "2", "3"]), done.stderr
    for option in ("-i", "-o"):
        assert node.run("-n12", option, f"{LINK}%t", "--", "cat", user=NOBODY).returncode == 1


def test_a_board_is_roots_and_keeps_its_size() -> None:
    fd = progress.make(3)
    try:
        status = os.fstat(fd)
        assert stat.S_IMODE(status.st_mode) == 0o600
        for size in (0, 4096):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
    finally:
        os.close(fd)


def test_a_board_with_anything_on_it_can_be_read() -> None:
    """Its writers are the users' processes, before they become their programs."""
    fd = progress.make(0)
    try:
        for index in range(256):
            os.pwrite(fd, bytes((index, 255)), 0)
            assert progress.stepd_place(fd) == progress.Progress(fd, 0).place(0)
    finally:
        os.close(fd)


def test_an_end_that_fails_does_not_spin_and_is_tried_again(node: Node) -> None:
    """It came back at once, for ever: the log filled the disk, and nobody was served."""
    client = node.popen("sh", "-c", "echo on; exec sleep 600", user=NOBODY)
    assert client.stdout is not None
    assert client.stdout.readline() == "on\n"
    job = node.last_job()
    record = node.steps / f"{job}.0.record"
    record.mkdir()  # the daemon cannot read it as a file, nor the step runner replace it
    client.terminate()
    wait_until(lambda: node.logged().count("Is a directory") >= 2, "the end is tried once more")
    assert node.run("true", user=NOBODY).returncode == 0
    record.rmdir()
    client.communicate(timeout=PATIENCE)
    ended = node.call("Wait", job=job, step=0)["record"]
    assert isinstance(ended, Mapping)
    assert ended["exit_status"] == 128 + 15
    assert node.logged().count("Traceback") < 2 * PATIENCE
