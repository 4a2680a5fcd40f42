"""Who may see, signal, trace and await which step, and who may read what the node keeps of it."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodectl.model.wire import framing, lean_json
from rootful.node import NOBODY, OTHER, PATIENCE, Node, running, wait_until

GAMES = pwd.getpwnam("games")  # whom the node's configuration makes an administrator
# Calls a method as somebody else: socket, method and parameters from the command line, the reply on stdout.
ASK = """
import sys; sys.path[:0] = {path!r}
from nodectl.model.wire import lean_json, framing as wire
sock = wire.connect(sys.argv[1])
try:
    method, parameters = sys.argv[2], lean_json.loads(sys.argv[3])
    wire.send(sock, {{"method": method, "parameters": parameters, "more": method.endswith("Attach")}})
except BrokenPipeError:
    pass  # shown out before a word was said; the reason can still be read
print(lean_json.dumps(wire.receive(sock, wire.Inbox(1 << 24)) or {{"error": "closed"}}))
"""
WHO = {"owner": NOBODY, "other": OTHER, "administrator": GAMES, "root": pwd.getpwnam("root")}


@pytest.fixture(scope="module")
def busy() -> Iterator[tuple[Node, dict[str, int]]]:
    """A node with one running and one ended step of nobody's."""
    with running(admin_group="games") as node:
        assert node.run("true", user=NOBODY, env={"SECRET": "ended-secret"}).returncode == 0
        ended = node.last_job()
        client = node.popen("sh", "-c", "echo ready; exec sleep 300", user=NOBODY)
        assert client.stdout is not None
        client.stdout.readline()
        try:
            yield node, {"ended": ended, "running": ended + 1}
        finally:
            client.kill()
            client.communicate()


def ask(path: Path, who: pwd.struct_passwd, method: str, parameters: str) -> Mapping[str, object]:
    done = subprocess.run(
        [sys.executable, "-IS", "-c", ASK.format(path=sys.path), str(path), method, parameters],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
        user=who.pw_uid,
        group=who.pw_gid,
        extra_groups=[],
    )
    return lean_json.load_object(done.stdout.strip().encode("ascii"))


@pytest.mark.parametrize(
    ("which", "method", "name"),
    [
        (which, method, name)
        for which in ("running", "ended")
        for method in ("Show", "Trace", "Signal", "Wait")
        for name in WHO
        if (which, method) != ("running", "Wait") or name == "other"  # who may would wait for the step's end
    ],
)
def test_a_step_is_its_owners_and_the_administrators_business(
    busy: tuple[Node, dict[str, int]], which: str, method: str, name: str
) -> None:
    node, jobs = busy
    signal = ', "signal": 18' if method == "Signal" else ""
    reply = ask(node.socket, WHO[name], f"org.nodectl.{method}", f'{{"job": {jobs[which]}, "step": 0{signal}}}')
    if name == "other":
        assert reply["error"] == "org.nodectl.NoSuchStep"
        never = ask(node.socket, WHO[name], f"org.nodectl.{method}", f'{{"job": 4000000, "step": 0{signal}}}')
        assert str(reply).replace(str(jobs[which]), "4000000") == str(never), "it is told from one that never was"
    elif (method, which) == ("Signal", "ended"):
        assert reply["error"] == "org.nodectl.NoSuchStep"
    else:
        assert "error" not in reply


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("owner", "cpu.weight = 101: only an admin may exceed cpu.weight = 100"),
        ("other", "is running or in the history"),
        ("administrator", ""),
        ("root", ""),
    ],
)
def test_only_administrators_give_a_running_step_more(
    busy: tuple[Node, dict[str, int]], name: str, reason: str
) -> None:
    node, jobs = busy
    reply = ask(
        node.socket, WHO[name], "org.nodectl.Update", f'{{"job": {jobs["running"]}, "step": 0, "cpu_weight": 101}}'
    )
    assert (reply.get("error") in ("org.nodectl.NotPermitted", "org.nodectl.NoSuchStep")) is bool(reason)
    assert reason in str(reply["parameters"])


@pytest.mark.parametrize(("name", "sees"), [("owner", True), ("other", False), ("administrator", True), ("root", True)])
def test_a_list_shows_what_its_reader_may_see(busy: tuple[Node, dict[str, int]], name: str, sees: bool) -> None:
    node, jobs = busy
    reply = ask(node.socket, WHO[name], "org.nodectl.List", '{"ended": 100}')
    found = {step["job"] for step in reply["parameters"]["steps"]}  # type: ignore[index]
    assert (jobs["running"] in found, jobs["ended"] in found) == (sees, sees)


@pytest.mark.parametrize("command", ["show", "trace", "signal"])
def test_the_commands_do_not_say_that_there_is_anothers_step(busy: tuple[Node, dict[str, int]], command: str) -> None:
    node, jobs = busy
    done = node.nodectl(command, f"{jobs['running']}.0", user=OTHER)
    assert done.returncode == 1
    told = done.stderr.partition(" -> ")[0].strip()
    assert told.endswith(f"no step {jobs['running']}.0 is running or in the history")


@pytest.mark.parametrize("name", ["owner", "other", "administrator"])
def test_a_steps_own_socket_is_roots(busy: tuple[Node, dict[str, int]], name: str) -> None:
    """Whoever may connect may leave descriptors there that take an hour to close."""
    node, jobs = busy
    who = WHO[name]
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(who.pw_gid)
            os.setuid(who.pw_uid)
            framing.connect(str(node.steps / f"{jobs['running']}.0.sock"))
        except PermissionError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize(("method", "parameters"), [("Status", "{}"), ("Signal", '{"signal": 18}')])
def test_a_steps_own_socket_answers_root(busy: tuple[Node, dict[str, int]], method: str, parameters: str) -> None:
    node, jobs = busy
    reply = ask(node.steps / f"{jobs['running']}.0.sock", WHO["root"], f"org.nodectl.step.{method}", parameters)
    assert "error" not in reply


def test_identity_is_the_kernels_word_and_no_field(busy: tuple[Node, dict[str, int]]) -> None:
    node, jobs = busy
    reply = ask(node.socket, OTHER, "org.nodectl.Show", f'{{"job": {jobs["running"]}, "step": 0, "uid": 0}}')
    assert "no such parameter" in str(reply["parameters"])
    request = '{"request": {"argv": ["id"], "environment": {}, "cwd": "/", "ntasks": 1, "uid": "0"}}'
    assert ask(node.socket, OTHER, "org.nodectl.Launch", request)["error"] == "org.nodectl.NotPermitted"
    assert node.run("id", "-u", user=OTHER).stdout.strip() == str(OTHER.pw_uid)


def test_a_reserved_job_is_for_who_reserved_it(busy: tuple[Node, dict[str, int]]) -> None:
    node, _ = busy
    job = node.call("Reserve")["job"]
    request = f'{{"request": {{"argv": ["true"], "environment": {{}}, "cwd": "/", "ntasks": 1, "job": {job}}}}}'
    assert "was not reserved by you" in str(ask(node.socket, OTHER, "org.nodectl.Launch", request)["parameters"])
    assert "error" not in ask(node.socket, WHO["root"], "org.nodectl.Launch", request)
    again = str(ask(node.socket, WHO["root"], "org.nodectl.Launch", request)["parameters"])
    assert "was not reserved by you" in again or "does not wait for its first step" in again


def mode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_uid, stat.S_IMODE(status.st_mode)


def test_runtime_files_are_roots_and_only_the_services_socket_is_everybodys(busy: tuple[Node, dict[str, int]]) -> None:
    node, jobs = busy
    stem = node.steps / f"{jobs['running']}.0"
    assert mode(node.steps) == (0, 0o700)
    assert mode(node.steps.parent) == (0, 0o755)
    assert mode(node.socket) == (0, 0o666)
    assert mode(stem.with_name(stem.name + ".sock")) == (0, 0o600)
    assert mode(stem.with_name(stem.name + ".json")) == (0, 0o600)
    assert mode(stem.with_name(stem.name + ".trace")) == (0, 0o600)
    for path in Path(str(node.values["state_dir"])).rglob("*"):
        assert mode(path)[0] == 0
        assert mode(path)[1] & 0o077 == 0, path
    assert mode(Path(str(node.values["state_dir"]))) == (0, 0o700)


def test_others_can_read_neither_the_specification_nor_the_environment(busy: tuple[Node, dict[str, int]]) -> None:
    node, jobs = busy
    spec = node.steps / f"{jobs['running']}.0.json"
    names = {"sleep", f"stepd {jobs['running']}.0"}  # other steps' runners may be ending still
    wait_until(lambda: names <= {name for _, name in node.processes()}, "the task is its program")
    pids = [pid for pid, name in node.processes() if name in names]
    assert len(pids) == 2
    for path in (str(spec), *(f"/proc/{pid}/environ" for pid in pids)):
        done = subprocess.run(
            ["cat", path], capture_output=True, text=True, check=False, user=OTHER.pw_uid, group=OTHER.pw_gid
        )
        assert "Permission denied" in done.stderr, path
    record = ask(node.socket, NOBODY, "org.nodectl.Show", f'{{"job": {jobs["ended"]}, "step": 0}}')
    assert "ended-secret" not in str(record)


def test_which_steps_there_are_is_not_to_be_seen_in_the_files(busy: tuple[Node, dict[str, int]]) -> None:
    node, jobs = busy
    for words in (["ls", str(node.steps)], ["stat", f"{node.steps}/{jobs['running']}.0.sock"]):
        done = subprocess.run(
            words, user=OTHER.pw_uid, group=OTHER.pw_gid, extra_groups=[], capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert "Permission denied" in done.stderr
