"""Where a strict step writes: in its working directory and the temporary ones, and nowhere else by any way there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel import _kernel
from nodectl.launch.confine.confinement import LEAST_LANDLOCK
from rootful.confined import WAYS_OUT, files
from rootful.contained import contained
from rootful.node import NOBODY, Node, running

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or _kernel.landlock_abi() < LEAST_LANDLOCK, reason="this kernel has no Landlock"
)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as started:
        yield started


@pytest.fixture
def outside(node: Node) -> Path:
    """A directory of the user's with a file in it, beside the working directory."""
    path = node.dir / "outside"
    path.mkdir(exist_ok=True)
    (path / "file").write_text("as it was", encoding="utf-8")
    for mine in (path, path / "file"):
        os.chown(mine, NOBODY.pw_uid, NOBODY.pw_gid)
    return path


@pytest.fixture
def inside(node: Node) -> Path:
    """A working directory of the user's."""
    path = node.scratch / "inside"
    path.mkdir(exist_ok=True)
    path.chmod(0o777)
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    return path


@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.parametrize("user", [pytest.param(NOBODY, id="nobody"), pytest.param(None, id="root")])
def test_nothing_is_written_outside(node: Node, inside: Path, outside: Path, way: str, user: object) -> None:
    before = (outside / "file").stat().st_ino
    script = f"O = {str(outside)!r}\nprint({WAYS_OUT[way]})"
    (said,) = files(node, "strict", script, "-D", str(inside), user=user)  # type: ignore[arg-type]
    assert said in ("EACCES", "EXDEV", "EPERM"), said
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert ((outside / "file").read_text(encoding="utf-8"), (outside / "file").stat().st_ino) == ("as it was", before)
    assert list(inside.iterdir()) == []


def test_the_same_is_done_in_a_step_that_is_not_strict(node: Node, inside: Path, outside: Path) -> None:
    ways = ("write", "append", "empty", "by dots", "by a link", "by /proc", "by its directory")
    script = f"O = {str(outside)!r}\n" + "\n".join(f"print({WAYS_OUT[way]})" for way in ways)
    assert files(node, "default", script, "-D", str(inside)) == ["done"] * len(ways)


def test_the_working_directory_and_temporary_ones_are_written_to(node: Node, inside: Path) -> None:
    own = node.dir / "own"
    own.mkdir()
    os.chown(own, NOBODY.pw_uid, -1)
    script = (
        "os.mkdir('a'); os.mkdir('b'); open('a/x', 'w').write('x'); os.rename('a/x', 'b/x'); os.link('b/x', 'a/x')\n"
        "os.truncate('a/x', 0); os.unlink('a/x'); os.unlink('b/x'); os.rmdir('a'); os.rmdir('b')\n"
        "import tempfile\n"
        "for place in ('/tmp', '/var/tmp', '/dev/shm', os.environ['TMPDIR']):\n"
        "    with tempfile.NamedTemporaryFile(dir=place) as file: print(attempt(lambda: file.write(b'x')))\n"
        "for device in ('/dev/null', '/dev/zero', '/dev/full'):\n"
        "    print(attempt(lambda: flags(device, os.O_RDWR)))\n"
        "print(attempt(lambda: flags('/etc/passwd', os.O_RDONLY)), attempt(lambda: os.listdir('/etc')))\n"
    )
    options = ("-D", str(inside), f"--export=ALL,TMPDIR={own}")
    assert files(node, "strict", script, *options) == ["done"] * 9


def test_devices_are_neither_made_nor_removed_by_root(node: Node, inside: Path) -> None:
    script = "print(attempt(lambda: os.unlink('/dev/null')), attempt(lambda: flags('/dev/x', os.O_CREAT)))"
    assert files(node, "strict", script, "-D", str(inside), user=None) == ["EACCES", "EACCES"]
    assert Path("/dev/null").exists()


def test_a_jobs_output_lies_where_it_was_asked_for(node: Node, inside: Path, outside: Path) -> None:
    out = outside / "out"
    done = node.run(
        "--secure=strict", "-D", str(inside), f"-o{out}", "sh", "-c", "echo one; echo two > /dev/stdout", user=NOBODY
    )
    assert done.returncode == 0, done.stderr
    assert "two" in out.read_text(encoding="utf-8")
    out.unlink()


def test_strict_in_the_root_directory_is_refused_as_it_would_allow_everything(node: Node) -> None:
    for words in (("-D", "/"), ("-D", "/usr/..")):
        done = node.run("--secure=strict", *words, "true", user=NOBODY)
        assert done.returncode == 1
        assert "secure=strict: the working directory is /" in done.stderr.splitlines()[0]


def test_a_private_tmp_is_written_to_and_the_machines_is_not() -> None:
    with contained(secure_floor="strict") as found:
        mine = f"/tmp/{found.node.dir.name}"
        script = (
            f"open({mine!r}, 'w').write('x'); print(*os.listdir('/tmp'), attempt(lambda: flags('/mnt/x', os.O_CREAT)))"
        )
        assert files(found.node, "strict", script) == [found.node.dir.name, "EACCES"]
        assert not Path(mine).exists()
