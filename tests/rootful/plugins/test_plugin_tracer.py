"""The tracer plugin: every hook of a real step, and a file that no user can get at."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.spank import ESPANK_ERROR, ESPANK_NOT_AVAIL, ESPANK_NOT_EXECD, ESPANK_NOT_TASK, S_JOB_ARRAY_TASK_ID
from rootful.node import NOBODY, Node, running, wait_until

REMOTE = ["init", "init_post_opt", "user_init", "task_init_privileged", "task_post_fork", "task_init", "task_exit"]


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as started:
        yield started


@pytest.fixture
def out(node: Node) -> Iterator[Path]:
    path = node.dir / "spank.jsonl"
    node.plugstack(f"required tracer out={path}\n")
    yield path
    path.unlink(missing_ok=True)


def lines(path: Path) -> list[dict[str, Any]]:
    """What was written by now; of the job_epilog's line, which comes when the command has ended, perhaps a part."""
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines(keepends=True) if line[-1] == "\n"]


def of(path: Path, hook: str) -> dict[str, Any]:
    (found,) = (line for line in lines(path) if line["hook"] == f"slurm_spank_{hook}")
    return found


def test_every_hook_of_a_step_is_there_with_its_process_and_identity(node: Node, out: Path) -> None:
    assert node.run("-n2", "true", user=NOBODY).returncode == 0
    found = [line for line in lines(out) if line["context"] == "remote"]
    hooks = [line["hook"].removeprefix("slurm_spank_") for line in found]
    assert [hooks.count(hook) for hook in REMOTE] == [1, 1, 1, 2, 2, 2, 2]
    assert hooks[-1] == "exit"
    uid = NOBODY.pw_uid
    for line in found:
        hook = line["hook"].removeprefix("slurm_spank_")
        assert line["uids"] == {"user_init": [0, uid, 0], "task_init": [uid] * 3}.get(hook, [0, 0, 0])
        assert (int(line["caps"], 16) == 0) == (hook in ("user_init", "task_init"))
        assert line["cgroup"].split("/")[-1].startswith("task_" if hook.startswith("task_init") else "stepd")
        assert line["umask"] == "0022"
    assert len({line["pid"] for line in found}) == 3


def test_hooks_of_the_job_and_the_daemon_are_there() -> None:
    with running() as node:
        path = node.dir / "other.jsonl"
        node.plugstack(f"required tracer out={path}\n")
        node.restart()
        assert node.run("true", user=NOBODY).returncode == 0
        wait_until(lambda: "job_epilog" in path.read_text(), "the job ends")
        node.stop()
        found = [(line["context"], line["hook"].removeprefix("slurm_spank_")) for line in lines(path)]
    assert found[0] == ("slurmd", "init")
    assert found[-1] == ("slurmd", "slurmd_exit")
    assert found.index(("job_script", "job_prolog")) < found.index(("remote", "init"))
    assert found.index(("job_script", "job_epilog")) > found.index(("remote", "exit"))


def test_items_are_told_as_values_or_codes(node: Node, out: Path) -> None:
    assert node.run("echo", "word", user=NOBODY).returncode == 0
    for line in lines(out):
        assert len(line["items"]) == 1 + S_JOB_ARRAY_TASK_ID
    init, post_fork = of(out, "init")["items"], of(out, "task_post_fork")["items"]
    assert init["S_JOB_UID"] == [0, NOBODY.pw_uid]
    assert init["S_JOB_ARGV"] == [0, ["echo", "word"]]
    assert init["S_SLURM_VERSION"] == [0, "22.05.8"]
    assert init["S_TASK_PID"] == [ESPANK_NOT_TASK]
    assert init["S_JOB_PID_TO_LOCAL_ID"] == [ESPANK_NOT_EXECD]
    assert post_fork["S_TASK_PID"] == [0, of(out, "task_init")["pid"]]
    assert post_fork["S_JOB_PID_TO_LOCAL_ID"] == [0, 0]
    assert of(out, "task_exit")["items"]["S_TASK_EXIT_STATUS"] == [0, 0]


def test_the_option_is_noted_where_it_may_be_asked_for(node: Node, out: Path) -> None:
    assert node.run("--tracer=run 7", "true", user=NOBODY).returncode == 0
    (option,) = (line for line in lines(out) if line["hook"] == "option")
    assert option["argv"] == [7, "run 7", 1]
    assert of(out, "init_post_opt")["getopt"] == [ESPANK_NOT_AVAIL]
    assert of(out, "task_init")["getopt"] == [0, "run 7"]
    out.unlink()
    assert node.run("true", user=NOBODY).returncode == 0
    assert of(out, "task_init")["getopt"] == [ESPANK_ERROR]


def test_two_of_them_show_what_a_plugin_between_changes(node: Node, out: Path) -> None:
    node.plugstack(
        f"required tracer out={out} name=before\n"
        "required environment set=NEW=x unset=OLD\n"
        f"required tracer out={out} name=behind\n"
    )
    assert node.run("true", user=NOBODY, env={"OLD": "1"}).returncode == 0
    changed = {
        line["argv"][1]: line["environment"] for line in lines(out) if line["hook"] == "slurm_spank_init_post_opt"
    }
    assert changed == {
        "name=before": {"set": {}, "unset": []},
        "name=behind": {"set": {"NEW": "x"}, "unset": ["OLD"]},
    }
    assert sum(line["hook"] == "slurm_spank_task_init" for line in lines(out)) == 2


def test_roots_command_writes_too_and_anybody_elses_tells_its_user(node: Node, out: Path) -> None:
    done = node.run("-vv", "true", user=NOBODY)
    assert (done.returncode, out.stat().st_mode & 0o777) == (0, 0o600)
    told = [
        json.loads(line.partition("tracer: ")[2]) for line in done.stderr.splitlines() if "debug: tracer: {" in line
    ]
    local = ["init", "init_post_opt", "local_user_init", "exit"]
    assert [(one["context"], one["hook"].removeprefix("slurm_spank_")) for one in told] == [
        ("local", hook) for hook in local
    ]
    out.unlink()
    assert node.run("true").returncode == 0
    assert [line["hook"][12:] for line in lines(out) if line["context"] == "local"] == local


def test_the_tasks_program_does_not_inherit_the_file(node: Node, out: Path) -> None:
    done = node.run("sh", "-c", "ls -l /proc/self/fd", user=NOBODY)
    assert done.returncode == 0
    assert str(out) not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("out=spank.jsonl", "'out=spank.jsonl' in plugstack.conf is neither out=/PATH nor name=WORD"),
        ("file=/x", "is neither"),
        ("out={dir}/missing/file", "No such file or directory"),
        ("out={scratch}/file", "is writable by others"),
        ("out={dir}/link", "Too many levels of symbolic links"),
        ("out={dir}/users", "is no file that only root may write"),
        ("out={dir}/pipe", "No such device or address"),
        ("out={dir}/plugins", "Is a directory"),
    ],
)
def test_a_place_that_cannot_be_trusted_fails_the_step(node: Node, arguments: str, message: str) -> None:
    (node.dir / "users").touch()
    os.chown(node.dir / "users", NOBODY.pw_uid, 0)
    if not (node.dir / "pipe").exists():
        os.mkfifo(node.dir / "pipe")
        (node.dir / "link").symlink_to("target")
    node.plugstack(f"required tracer {arguments.format(dir=node.dir, scratch=node.scratch)}\n")
    done = node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr + node.logged()  # job_prolog's words are the log's
    assert not (node.dir / "target").exists()
    assert not (node.scratch / "file").exists()
