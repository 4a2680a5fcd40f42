"""The environment plugin, and its twin in C: what their arguments make of the tasks' variables."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rootful.native import TWINS, twin
from rootful.node import NOBODY, Node, running


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as started:
        yield started


def tasks(node: Node, *words: str, env: dict[str, str] | None = None) -> list[dict[str, str]]:
    """The environment of each task of a step of two."""
    done = node.run("-n2", "-o", "env_%t", *words, "env", "-0", user=NOBODY, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    found = []
    for path in sorted(node.scratch.glob("env_*")):
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        found.append(dict(pair.split("=", 1) for pair in text.split("\0") if pair))
        path.unlink()
    assert len(found) == 2
    return found


@pytest.mark.parametrize("kind", TWINS)
@pytest.mark.parametrize(
    ("arguments", "given", "value"),
    [
        ("set=X=new", {}, "new"),
        ("set=X=new", {"X": "old"}, "new"),
        ("set=X=", {"X": "old"}, ""),
        ("set=X=a=b", {}, "a=b"),
        ("default=X=new", {}, "new"),
        ("default=X=new", {"X": "old"}, "old"),
        ("default=X=new", {"X": ""}, ""),
        ("unset=X", {"X": "old"}, None),
        ("unset=X", {}, None),
        ("prepend=X=new", {"X": "old"}, "new:old"),
        ("prepend=X=new", {"X": "new:old"}, "new:old"),
        ("prepend=X=new", {"X": "newer"}, "new:newer"),
        ("prepend=X=new", {"X": ""}, "new"),
        ("prepend=X=new", {}, "new"),
        ("append=X=new", {"X": "old"}, "old:new"),
        ("append=X=new", {"X": "old:new"}, "old:new"),
        ("append=X=new", {}, "new"),
        ("prepend=X=a:b", {"X": "c"}, "a:b:c"),
        ("prepend=X=a prepend=X=b", {"X": "c"}, "b:a:c"),
        ("set=X=1 unset=X default=X=2", {}, "2"),
    ],
)
def test_arguments_change_the_variable_of_every_task(
    node: Node, kind: str, arguments: str, given: dict[str, str], value: str | None
) -> None:
    node.plugstack(f"required {twin(node, 'environment', kind)} {arguments}\n")
    assert [task.get("X") for task in tasks(node, env=given)] == [value, value]


@pytest.mark.parametrize(("kinds", "value"), [(("python", "c"), "c:python:old"), (("c", "python"), "python:c:old")])
def test_the_twins_see_what_the_other_has_changed(node: Node, kinds: tuple[str, str], value: str) -> None:
    lines = [f"required {twin(node, 'environment', kind)} prepend=X={kind} unset=Y{kind}\n" for kind in kinds]
    node.plugstack("".join(lines))
    for task in tasks(node, env={"X": "old", "Ypython": "1", "Yc": "1"}):
        assert task["X"] == value
        assert not task.keys() & {"Ypython", "Yc"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("put=X=1", "begins with none of set, default, prepend, append, unset"),
        ("=X=1", "begins with none of"),
        ("se=X=1", "begins with none of"),
        ("set", "names no variable"),
        ("set==x", "names no variable"),
        ("set=X", "has no value"),
        ("unset=X=1", "has a value"),
    ],
)
@pytest.mark.parametrize("kind", TWINS)
def test_a_wrong_argument_refuses_the_step(node: Node, kind: str, arguments: str, message: str) -> None:
    node.plugstack(f"required {twin(node, 'environment', kind)} set=Y=1 {arguments}\n")
    done = node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"environment: plugstack.conf: '{arguments}' {message}" in done.stderr


def test_a_file_holds_arguments_with_blanks_and_comments(node: Node) -> None:
    path = node.dir / "environment"
    path.write_bytes(b"# for all\n\n  set=GREETING=good day # and night  \nunset=SECRET\r\nset=BYTES=\xff\xc3\xa9\n")
    path.chmod(0o600)
    node.plugstack(f"required environment set=GREETING=hey file={path} append=GREETING=!\n")
    for task in tasks(node, env={"SECRET": "x"}):
        assert task["GREETING"] == "good day # and night:!"
        assert task["BYTES"] == "\udcff\xe9"
        assert "SECRET" not in task


def test_what_nodectl_sets_wins(node: Node) -> None:
    node.plugstack("required environment set=SLURM_JOB_ID=99 unset=SLURM_STEP_ID\n")
    assert {(task["SLURM_JOB_ID"], task["SLURM_STEP_ID"]) for task in tasks(node)} == {(str(node.last_job()), "0")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("file={dir}/missing", "No such file or directory"),
        ("file={dir}", "Is a directory"),
        ("file={dir}/wrong", "/wrong: 'X=1' begins with none of"),
        ("file={dir}/users", "belongs to uid"),
        ("file={dir}/open", "is writable by others"),
        ("file={dir}/link", "belongs to uid"),
        ("file={scratch}/file", "where others may write"),
    ],
)
def test_a_file_that_cannot_be_believed_refuses_the_step(node: Node, arguments: str, message: str) -> None:
    for name, text in (("wrong", "X=1\n"), ("users", "set=X=1\n"), ("open", "set=X=1\n")):
        (node.dir / name).write_text(text)
    (node.scratch / "file").write_text("set=X=1\n")
    (node.dir / "open").chmod(0o666)
    os.chown(node.dir / "users", NOBODY.pw_uid, 0)
    if not (node.dir / "link").is_symlink():
        (node.dir / "link").symlink_to("users")
    node.plugstack(f"required environment {arguments.format(dir=node.dir, scratch=node.scratch)}\n")
    done = node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
