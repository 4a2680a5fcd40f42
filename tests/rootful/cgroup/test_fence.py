"""The fence around logins without systemd, and programs outside of all jobs that have a device open."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.cli import fence as cli_fence
from nodectl.client import whole_file
from nodectl.client.configuration import configured
from nodectl.kernel import _kernel
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import corner, tree
from nodectl.launch.cgroup.constraints import cannot_decide_devices
from rootful.node import NOBODY, OTHER, Node, wait_until
from rootful.queued import show, state, submit, wait_for, wait_for_file

LOOP = 7  # a major number that every kernel with loop devices has; opening one that is not used harms no one
# A test's machine may be a container that must not have it.
pytestmark = pytest.mark.skipif(cannot_decide_devices() != "", reason="no program can decide about devices here")
ENTER = 'echo $$ >"$0/cgroup.procs"; exec setpriv --reuid "$1" --clear-groups sh -c "$2"'


@pytest.fixture
def node() -> Iterator[Node]:
    """Two devices of the key gres; the node is not started."""
    made = Node(select_type="select/cons_tres", over_subscribe="force:32")
    corner = f"{cgroup_of().rstrip('/')}/{made.dir.name}-logins"
    try:
        for minor, name in enumerate(("first", "second")):
            os.mknod(made.dir / name, stat.S_IFBLK | 0o666, os.makedev(LOOP, minor))
            (made.dir / name).chmod(0o666)
        made.configure(
            gres=[f"Name=gpu File={made.dir}/first", f"Name=gpu File={made.dir}/second"], login_cgroup=corner
        )
        yield made
        if made.daemon is not None:
            made.assert_clean()
    finally:
        made.close()
        wait_until(tree.Group(f"{made.mount}{corner}").remove, "the corner is empty")


def corner_of(node: Node) -> tree.Group:
    return tree.Group(f"{node.mount}{node.values['login_cgroup']}")


def fence(node: Node, action: str) -> str:
    done = node.nodectl("fence", action)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def status(node: Node, **how: Any) -> dict[str, Any]:
    done = node.nodectl("fence", "status", "--json", **how)
    assert (done.returncode, done.stderr) == (0, ""), done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def opened(node: Node, uid: int) -> str:
    """Which devices a process of this user can open that was born in the corner."""
    look = f"for name in first second; do (: <{node.dir}/$name) 2>/dev/null && printf '%s ' $name; done; : </dev/null"
    words = ["sh", "-c", ENTER, corner_of(node).full_path, str(uid), look]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def programs(node: Node) -> int:
    fd = corner_of(node).open()
    try:
        return _kernel.device_programs(fd)
    finally:
        os.close(fd)


def test_logins_open_no_device_and_root_every_one_until_the_fence_is_off(node: Node) -> None:
    node.start()
    assert status(node)["state"] == "off"
    fence(node, "on")
    assert [opened(node, uid) for uid in (0, NOBODY.pw_uid)] == ["first second", ""]
    assert programs(node) == 1
    found = status(node, user=NOBODY)
    assert (found["state"], found["denied"], found["outside"]) == ("on", ["gpu:0", "gpu:1"], [])
    fence(node, "on")  # once more changes nothing
    assert programs(node) == 1
    assert fence(node, "off") == ""
    assert status(node)["state"] == "off"
    assert not corner_of(node).exists()
    assert not Path(node.values["state_dir"], "fence").exists()  # type: ignore[arg-type]
    assert fence(node, "off") == "the fence is off\n"


def test_only_root_puts_the_fence_up(node: Node) -> None:
    node.start()
    refused = node.nodectl("fence", "on", user=NOBODY)
    assert refused.returncode == 1
    assert "only root may" in refused.stderr
    assert not corner_of(node).exists()


def test_users_who_are_named_stay_outside_and_a_set_user_id_program_does_not(node: Node) -> None:
    node.configure(login_outside=[OTHER.pw_name, "jupyter.service"])
    fence(node, "on")
    assert [opened(node, uid) for uid in (OTHER.pw_uid, NOBODY.pw_uid)] == ["first second", ""]
    look = f"(: <{node.dir}/first) 2>/dev/null && echo open || echo denied"
    words = ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec setpriv --ruid "$1" --clear-groups sh -pc "$2"']
    words += [corner_of(node).full_path, str(NOBODY.pw_uid), look]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "denied\n"
    fence(node, "off")


@pytest.mark.parametrize("uid", [1 << 31, (1 << 32) - 2])
def test_users_with_large_uids_stay_outside_or_inside_as_others_do(node: Node, uid: int) -> None:
    fence(node, "on")
    assert opened(node, uid) == ""
    fd = corner_of(node).open()
    try:
        rules = [[1, LOOP, minor, 0] for minor in (0, 1)]
        _kernel.fence_devices(fd, rules, [0, uid])
        assert [opened(node, one) for one in (uid, uid - 1)] == ["first second", ""]
        for wrong in (-1, 1 << 32, "alice"):
            with pytest.raises((OverflowError, TypeError)):
                _kernel.fence_devices(fd, rules, [wrong])  # type: ignore[list-item]
    finally:
        os.close(fd)
    fence(node, "off")


@pytest.mark.parametrize("action", ["on", "off"])
def test_broken_mark_hinders_neither_the_service_nor_the_command(node: Node, action: str) -> None:
    fence(node, "on")
    mark = Path(corner.mark_of(configured(str(node.config_path))))
    mark.write_text("")  # as a power cut leaves it
    node.start()
    assert status(node)["trouble"]
    fence(node, action)
    if action == "on":
        assert status(node)["state"] == "on"
        fence(node, "off")
    assert not corner_of(node).exists()
    assert not mark.exists()


def test_devices_that_come_later_are_denied_at_the_next_turn(node: Node) -> None:
    late = node.dir / "second"
    late.unlink()
    fence(node, "on")
    os.mknod(late, stat.S_IFBLK | 0o666, os.makedev(LOOP, 1))
    late.chmod(0o666)
    assert opened(node, NOBODY.pw_uid) == "second"
    fence(node, "on")
    assert opened(node, NOBODY.pw_uid) == ""
    assert programs(node) == 1
    fence(node, "off")


def test_service_makes_the_fence_anew_after_a_boot_and_none_that_is_off(node: Node) -> None:
    node.start()
    assert not corner_of(node).exists()
    fence(node, "on")
    node.stop()
    assert corner_of(node).remove()  # as a boot does
    node.start()
    wait_until(corner_of(node).exists, "the corner is there")
    wait_until(lambda: opened(node, NOBODY.pw_uid) == "", "the wall is there")
    assert status(node)["state"] == "on"
    assert corner_of(node).remove()
    assert status(node)["state"] == "partly"
    fence(node, "on")
    assert status(node)["state"] == "on"
    fence(node, "off")


def test_processes_in_the_corner_go_on_when_the_fence_goes(node: Node) -> None:
    node.start()
    fence(node, "on")
    words = ["sh", "-c", ENTER, corner_of(node).full_path, str(NOBODY.pw_uid), "echo in; read line; echo on"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == "in\n"
        found = status(node)
        assert (found["users"], found["processes"]) == (1, 1)
        fence(node, "off")
        assert not corner_of(node).exists()
        assert session.communicate("go\n")[0] == "on\n"


def test_program_outside_of_jobs_is_named_and_its_device_waits_for_it(node: Node) -> None:
    node.configure(foreign_gpu_use="wait")
    script = f"exec 9<{node.dir}/first; echo on; read line"
    words = ["setpriv", "--reuid", str(NOBODY.pw_uid), "--clear-groups", "sh", "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as outside:
        assert outside.stdout is not None
        assert outside.stdout.readline() == "on\n"
        node.start()
        wait_until(lambda: status(node)["foreign"], "the program was found")
        use = {"device": "gpu:0", "pid": outside.pid, "uid": NOBODY.pw_uid, "user": "nobody", "command": "sh"}
        assert status(node, user=OTHER)["foreign"] == [use]
        named = f"process {outside.pid} (sh) of nobody"
        assert named in node.nodectl("doctor").stdout
        both = submit(node, "true", "--gpus=2")
        one = submit(node, "sleep 100", "--gpus=1")
        wait_for(node, one, "RUNNING")
        assert show(node, one)["gres"] == "gpu:1"
        told = node.nodectl("explain", str(both)).stdout
        assert "gpu:0 is used outside of all jobs" in told
        assert named in told
        assert node.nodectl("cancel", str(one)).returncode == 0
        outside.communicate("go\n")
        wait_for(node, both, "COMPLETED")


def test_users_who_know_nothing_of_each_other_are_told_only_of_their_own_programs_outside_of_jobs(node: Node) -> None:
    node.configure(foreign_gpu_use="wait", private_data=["jobs"])
    script = f"exec 9<{node.dir}/first; echo on; read line"
    words = ["setpriv", "--reuid", str(NOBODY.pw_uid), "--clear-groups", "sh", "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as outside:
        assert outside.stdout is not None
        assert outside.stdout.readline() == "on\n"
        node.start()
        wait_until(lambda: status(node)["foreign"], "the program was found")
        assert [use["pid"] for use in status(node, user=NOBODY)["foreign"]] == [outside.pid]
        assert status(node, user=OTHER)["foreign"] == []
        job = submit(node, "true", "--gpus=2", user=OTHER)
        told = node.nodectl("explain", str(job), user=OTHER).stdout
        assert "gpu:0 is used outside of all jobs" in told
        assert str(outside.pid) not in told
        assert " of nobody" not in told
        outside.communicate("go\n")
        wait_for(node, job, "COMPLETED")


def test_device_that_is_used_outside_waits_also_when_the_service_starts_again(node: Node) -> None:
    node.configure(foreign_gpu_use="wait")
    script = f"exec 9<{node.dir}/first; echo on; read line"
    words = ["setpriv", "--reuid", str(NOBODY.pw_uid), "--clear-groups", "sh", "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as outside:
        assert outside.stdout is not None
        assert outside.stdout.readline() == "on\n"
        node.start()
        wait_until(lambda: status(node)["foreign"], "the program was found")
        both = submit(node, "true", "--gpus=2")
        for how in (signal.SIGTERM, signal.SIGKILL):
            node.restart(how)
            wait_until(lambda: status(node)["looked"], "the service has looked")
            assert state(node, both) == "PENDING"
        outside.communicate("go\n")
        wait_for(node, both, "COMPLETED")


def test_programs_of_jobs_and_of_root_and_of_those_who_are_named_are_no_foreign_use(node: Node) -> None:
    node.configure(login_outside=[OTHER.pw_name])
    node.start()
    os.mkfifo(node.scratch / "hold", 0o666)
    job = submit(node, f"exec 9<{node.dir}/second; echo on >held; read line <hold", "--gpus=2")
    script = f"exec 9<{node.dir}/first; echo on; read line"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as root:
        assert root.stdout is not None
        assert root.stdout.readline() == "on\n"
        wait_for_file(node.scratch / "held")
        node.restart()  # which looks at once
        wait_until(lambda: status(node)["looked"], "the service has looked")
        assert status(node)["foreign"] == []
        root.communicate("go\n")
    assert node.nodectl("cancel", str(job)).returncode == 0
    wait_for(node, job, "CANCELLED")


def test_limits_that_are_in_force_are_not_written_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes memory back before the write of a limit returns, and the service's loop would wait for it."""
    node.configure(login_memory=300)
    fence(node, "on")
    written: list[object] = []
    monkeypatch.setattr(tree.Group, "write", lambda _, files: written.append(files))
    assert corner.keep(configured(str(node.config_path)), ()) == ""
    assert written == []
    monkeypatch.undo()
    if corner_of(node).has("memory.max"):
        corner_of(node).write({"memory.max": "max"})
        assert corner.keep(configured(str(node.config_path)), ()) == ""
        assert corner_of(node).memory.get_property("memory.max") == str(300 << 20)
    fence(node, "off")


def test_mark_is_on_the_disk_and_gone_from_it_when_the_command_ends(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(str(node.config_path))
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    cli_fence._on(config)
    assert synced[:2] == [os.stat(corner.mark_of(config)).st_ino, os.stat(config.state_dir).st_ino]
    synced.clear()
    cli_fence._off(config)
    assert os.stat(config.state_dir).st_ino in synced


class Killed(BaseException):
    """As if the command had been killed."""


def test_a_command_that_is_killed_after_any_of_its_effects_is_mended_by_the_same_command(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(str(node.config_path))
    left = 0

    def dies_after(place: object, name: str) -> None:
        done = getattr(place, name)

        def effect(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            result = done(*arguments, **named)
            left -= 1
            if left == 0:
                raise Killed
            return result

        monkeypatch.setattr(place, name, effect)

    for place, name in ((whole_file, "write"), (tree.Group, "make"), (tree.Group, "remove"), (corner, "set_wall"),
                        (tree.Group, "enable"), (os, "unlink")):  # fmt: skip
        dies_after(place, name)
    moments = 0
    for number in range(1, 20):
        left = number
        with contextlib.suppress(Killed):
            cli_fence._on(config)
            cli_fence._off(config)
            break
        moments += 1
        left = 0
        cli_fence._on(config)
        assert opened(node, NOBODY.pw_uid) == ""
        assert programs(node) == 1
        cli_fence._off(config)
        assert not corner_of(node).exists()
    assert moments >= 4
    assert not os.path.exists(corner.mark_of(config))
