"""The tmpdir plugin: a step's own directory, and users who do not want it to go."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel.tree_removal import remove
from rootful.fuse import unopened_directory
from rootful.node import NOBODY, OTHER, PATIENCE, Node, running, wait_for_answer, wait_until

# Files that the clean-up meets: names, kinds and modes that trip over a careless walk.
ODD_TREE = r"""
import os, socket
os.chdir(os.environ["TMPDIR"])
for name in (b"-rf", b"a\nb", b"\xff\xfe", b" ", b"*", b"\x1b[2J", b"n" * 255):
    os.mkdir(name)
    open(name + b"/" + name, "w").close()
os.symlink(VICTIM, "dirlink")
os.symlink(VICTIM + "/kept", "filelink")
os.symlink("loop", "loop")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
os.makedirs("closed/in")
open("closed/in/file", "w").close()
os.chmod("closed/in/file", 0)
os.chmod("closed/in", 0)
os.chmod("closed", 0)
os.link("-rf/-rf", "hard")
"""
# Deeper than a process may have descriptors; more entries than the kernel tells at a time.
DEEP_TREE = """
import os
os.chdir(os.environ["TMPDIR"])
for _ in range(1500):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("bottom", "w").close()
"""
WIDE_TREE = """
import os
os.chdir(os.environ["TMPDIR"])
for n in range(4000):
    open(f"file{n}", "w").close()
for n in range(1000):
    os.mkdir(f"directory{n}")
"""
# Outlives the step: puts a link in the place of a directory and back, and makes new files, as fast as it can.
RACER = """
import os, sys, time
victim, end = sys.argv[1], time.monotonic() + 8
os.mkdir("swing"); os.mkdir("swing/in"); os.symlink(victim, "link")
print("racing", flush=True)
n = 0
while time.monotonic() < end:
    n += 1
    for act in (
        lambda: os.rename("swing", "away"), lambda: os.rename("link", "swing"),
        lambda: os.rename("swing", "link"), lambda: os.rename("away", "swing"),
        lambda: open(f"swing/in/{n}", "w").close(), lambda: os.mkdir(f"new{n}"),
    ):
        try:
            act()
        except OSError as error:
            if error.errno == 2 and not os.path.lexists("swing") and not os.path.lexists("away"):
                sys.exit()
"""


@pytest.fixture(scope="module")
def module_node() -> Iterator[Node]:
    with running() as started:
        yield started


@pytest.fixture
def node(module_node: Node) -> Iterator[Node]:
    """The module's node with the plugin in /tmp's likeness; at the end nothing may be left in it."""
    module_node.plugstack(f"required tmpdir base={module_node.scratch}\n")
    yield module_node
    assert left(module_node) == []


def left(node: Node) -> list[str]:
    return sorted(name for name in os.listdir(node.scratch) if name.startswith("nodectl-tmpdir."))


@pytest.fixture
def victim(node: Node) -> Iterator[Path]:
    """A directory of root's, full of what must not be touched."""
    path = node.dir / "victim"
    path.mkdir()
    path.chmod(0o777)
    (path / "kept").write_text("precious")
    (path / "kept.d").mkdir()
    yield path
    assert sorted(os.listdir(path)) == ["kept", "kept.d"]
    (path / "kept").unlink()
    (path / "kept.d").rmdir()
    path.rmdir()


def python(node: Node, code: str, *words: str) -> None:
    done = node.run(*words, "--", sys.executable, "-I", "-c", code, user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")


def sleeper(node: Node, *words: str) -> tuple[subprocess.Popen[str], Path]:
    """A step that sleeps in its own directory."""
    code = 'echo "$TMPDIR"; cd "$TMPDIR"; exec sleep 60'
    client = node.popen(*words, "--", "sh", "-c", code, user=NOBODY)
    assert client.stdout is not None
    path = Path(client.stdout.readline().strip())
    wait_for_answer(client)
    return client, path


def end(client: subprocess.Popen[str]) -> str:
    """Ends a sleeping step; what it said."""
    client.terminate()
    said = client.communicate(timeout=60)[1]
    return said


def test_tasks_share_a_directory_of_the_user_that_goes_with_the_step(node: Node) -> None:
    code = 'echo "$TMPDIR"; stat -c "%a %U %F" "$TMPDIR"; touch "$TMPDIR/$SLURM_PROCID"; mktemp >/dev/null'
    done = node.run("-n2", "--", "sh", "-c", code, user=NOBODY, env={"TMPDIR": "/tmp/mine"})
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.splitlines())) == 2
    assert "700 nobody directory" in done.stdout
    assert str(node.scratch) in done.stdout


def test_nobody_else_can_enter(node: Node) -> None:
    client, path = sleeper(node)
    asked = subprocess.run(["ls", path], capture_output=True, text=True, check=False, user=OTHER.pw_uid)
    assert "Permission denied" in asked.stderr
    assert os.listdir(path) == []
    end(client)


def test_mode_is_the_directorys(node: Node) -> None:
    node.plugstack(f"required tmpdir base={node.scratch} mode=0751\n")
    done = node.run("sh", "-c", 'stat -c %a "$TMPDIR"', user=NOBODY)
    assert done.stdout == "751\n"


def test_only_who_asks_has_one_where_it_is_for_who_asks(node: Node) -> None:
    node.plugstack(f"required tmpdir base={node.scratch} when=asked\n")
    say = ("sh", "-c", 'echo "$TMPDIR"')
    assert node.run(*say, user=NOBODY).stdout == "/tmp\n"  # as without the plugin
    assert str(node.scratch) in node.run("--tmpdir", *say, user=NOBODY).stdout


def test_the_user_cannot_move_or_replace_it(node: Node) -> None:
    code = 'cd /; mv "$TMPDIR" "$TMPDIR.x"; rmdir "$TMPDIR"; mv "${TMPDIR%/tmp}" /tmp; rm -rf "${TMPDIR%/tmp}"; :'
    done = node.run("sh", "-c", code, user=NOBODY)
    assert (done.returncode, done.stderr.count("ermi")) == (0, 4), done.stderr


@pytest.mark.parametrize("tree", [DEEP_TREE, WIDE_TREE], ids=["deep", "wide"])
def test_large_trees_go(node: Node, tree: str) -> None:
    python(node, tree)


def test_odd_files_go_and_what_links_lead_to_stays(node: Node, victim: Path) -> None:
    python(node, f"VICTIM = {str(victim)!r}\n" + ODD_TREE)
    assert (victim / "kept").read_text() == "precious"


def test_it_goes_when_the_tasks_are_killed_and_when_the_launch_fails(node: Node) -> None:
    assert node.run("sh", "-c", 'touch "$TMPDIR/x"; kill -KILL $$', user=NOBODY).returncode != 0
    assert left(node) == []
    assert node.run("/nonexistent", user=NOBODY).returncode != 0
    node.plugin("refuses", "def slurm_spank_task_post_fork(sp, ac, argv):\n    return -1\n")
    node.plugstack(f"required tmpdir base={node.scratch}\nrequired refuses\n")
    assert node.run("true", user=NOBODY).returncode != 0


def test_a_user_who_races_with_the_removal_gains_nothing(node: Node, victim: Path) -> None:
    client, path = sleeper(node)
    racer = subprocess.Popen(
        [sys.executable, "-I", "-c", RACER, str(victim)],
        user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[], cwd=path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with racer:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "racing\n"
        end(client)
        racer.kill()
    assert (victim / "kept").read_text() == "precious"
    node.run("true", user=NOBODY)  # its end removes what the race may have left


def test_a_mount_is_not_entered_but_told(node: Node) -> None:
    client, path = sleeper(node)
    (path / "mounted").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path / "mounted"], check=True)
    outer = path.parent
    try:
        (path / "mounted" / "kept").write_text("precious")
        (path / "file").write_text("gone")
        said = end(client)
        assert "tmpdir: remove" in said
        (kept,) = outer.glob("*/mounted/kept")
        assert kept.read_text() == "precious"
        assert not list(outer.glob("*/file"))
    finally:
        for mounted in outer.glob("*/mounted"):
            subprocess.run(["umount", mounted], check=True)
    assert left(node) == [outer.name]
    node.run("true", user=NOBODY)


def test_a_users_file_system_with_the_name_of_a_dead_steps_directory_holds_up_no_step(node: Node) -> None:
    path = node.scratch / "nodectl-tmpdir.1.0.fake"
    path.mkdir()
    client = None
    try:
        with unopened_directory(path):
            client = node.popen("true", user=NOBODY)
            assert client.wait(PATIENCE) == 0
            node.restart()
    finally:
        if client is not None:
            client.wait(PATIENCE)
        path.rmdir()


def test_what_a_user_puts_in_the_place_of_a_directory_that_is_moved_goes_too(tmp_path: Path) -> None:
    """The directory was looked at, and is a file when it is renamed: that stayed for ever."""
    outer = tmp_path / "outer"
    (outer / "tmp" / "in").mkdir(parents=True)
    (outer / "moved").symlink_to(tmp_path)
    (outer / "moved too").touch()
    parent, below = (os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (tmp_path, outer))
    assert remove(parent, below, "outer", time.monotonic() + PATIENCE) == ""
    assert list(tmp_path.iterdir()) == []
    os.close(parent)
    os.close(below)


def test_the_next_step_removes_what_a_dead_stepd_left_and_nothing_of_the_living(node: Node) -> None:
    living, kept = sleeper(node)
    dead, gone = sleeper(node)
    (gone / "file").write_text("")
    (stepd,) = [pid for pid, name in node.processes() if name == f"stepd {node.last_job()}.0"]
    os.kill(stepd, signal.SIGKILL)
    dead.communicate(timeout=60)
    wait_until(lambda: len([1 for _, name in node.processes() if name == "sleep"]) == 1, "the dead step's task ends")
    assert gone.exists()
    assert node.run("true", user=NOBODY).returncode == 0
    assert left(node) == [kept.parent.name]
    end(living)


def test_a_start_of_the_daemon_removes_what_a_dead_stepd_left(node: Node) -> None:
    client, path = sleeper(node)
    node.stop(signal.SIGKILL)
    for pid, name in node.processes():
        if name.startswith("stepd"):
            os.kill(pid, signal.SIGKILL)
    for pid, _ in node.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    client.communicate(timeout=60)
    assert path.exists()
    node.start()
    assert left(node) == []


def test_others_directories_of_that_name_are_left_alone(node: Node) -> None:
    fake = node.scratch / "nodectl-tmpdir.1.0.fake"
    fake.mkdir()
    os.chown(fake, NOBODY.pw_uid, NOBODY.pw_gid)
    link = node.scratch / "nodectl-tmpdir.1.0.link"
    link.symlink_to(node.plugins)
    node.run("true", user=NOBODY)
    assert fake.exists()
    assert link.is_symlink()
    assert node.plugins.exists()
    fake.rmdir()
    link.unlink()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("base={users}", "on the way belongs to uid"),
        ("base={open}", "is writable by others, and not sticky"),
        ("base={link}", "Not a directory"),
        ("base={missing}", "No such file or directory"),
        ("base=tmp", "'base=tmp' in plugstack.conf is no absolute path"),
        ("mode=0600", "'mode=0600' in plugstack.conf is not a mode from 0700 to 1777"),
        ("mode=4755", "is not a mode"),
        ("mode=x", "is not a mode"),
        ("when=never", "'when=never' in plugstack.conf is unknown"),
        ("path=/tmp", "is unknown"),
    ],
)
def test_what_cannot_be_trusted_or_meant_refuses_the_step(node: Node, arguments: str, message: str) -> None:
    places = {name: node.dir / name for name in ("users", "open", "link", "missing")}
    for name in ("users", "open"):
        places[name].mkdir(exist_ok=True)
    os.chown(places["users"], NOBODY.pw_uid, NOBODY.pw_gid)
    places["open"].chmod(0o777)
    if not places["link"].is_symlink():
        places["link"].symlink_to(node.scratch)
    node.plugstack(f"required tmpdir {arguments.format(**places)}\n")
    done = node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
