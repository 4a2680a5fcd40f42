"""What is wrong is refused in one clear line with the right exit status, and the next request is served."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodectl import wire
from rootful.node import NOBODY, Node, wait_until

REQUEST: dict[str, object] = {"argv": ["true"], "environment": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "ntasks": 1}


@pytest.fixture
def served(shared_node: Node) -> Iterator[Node]:
    """The module's node, which must still serve when the test is over, and be clean."""
    yield shared_node
    done = shared_node.run("echo", "served", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "served\n"), done.stderr
    shared_node.assert_clean()
    assert "Traceback" not in shared_node.logged()


@pytest.fixture
def programs(shared_node: Node) -> Path:
    directory = shared_node.scratch / "programs"
    if not directory.exists():
        directory.mkdir()
        for name, text, mode in (
            ("notexec", "#!/bin/sh\n", 0o644),
            ("noshebang", "echo hello\n", 0o755),
            ("badinterp", "#!/no/such/interpreter\n", 0o755),
            ("binary", "\x7fELF rubbish", 0o755),
        ):
            (directory / name).write_text(text, encoding="utf-8")
            (directory / name).chmod(mode)
    return directory


@pytest.mark.parametrize(
    ("program", "status", "words"),
    [
        ("/no/such/program", 2, "execute '/no/such/program': No such file or directory (as nobody)"),
        ("nosuchprogram", 2, "execute 'nosuchprogram': No such file or directory (as nobody)"),
        ("{}/notexec", 13, "Permission denied (as nobody)"),
        ("{}/noshebang", 8, "Exec format error (as nobody)"),
        ("{}/binary", 8, "Exec format error (as nobody)"),
        ("{}/badinterp", 2, "its interpreter is missing (as nobody)"),
        ("{}", 13, "it is a directory (as nobody)"),
        ("/etc/passwd/x", 20, "Not a directory (as nobody)"),
        ("\n\x1b[31m", 2, "execute '\\n\\x1b[31m': No such file or directory (as nobody)"),
        ("\udcff", 2, "No such file or directory (as nobody)"),
    ],
)
def test_a_program_that_cannot_run(served: Node, programs: Path, program: str, status: int, words: str) -> None:
    done = served.run("-n2", "--", program.format(programs), "argument", user=NOBODY)
    assert done.returncode == status, done.stderr
    lines = done.stderr.splitlines()
    assert len([line for line in lines if words in line]) == 2, done.stderr
    # One line for both tasks, or two where they did not end together.
    assert len([line for line in lines if f"Exited with exit code {status}" in line]) == len(lines) - 2 in (1, 2)


def test_a_missing_directory_is_a_line_and_tmp(served: Node) -> None:
    done = served.run("-D", "/no/such/dir", "pwd", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "/tmp\n")
    assert (
        "enter working directory '/no/such/dir': No such file or directory (as nobody): going to /tmp instead"
        in done.stderr
    )


def test_a_forbidden_directory_is_a_line_and_tmp(served: Node) -> None:
    closed = served.scratch / "closed"
    closed.mkdir(mode=0o700, exist_ok=True)
    done = served.run("-D", str(closed), "pwd", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "/tmp\n")
    assert "Permission denied (as nobody)" in done.stderr


@pytest.mark.parametrize(
    ("words", "user", "status", "reason"),
    [
        (("-n0", "true"), NOBODY, 1, 'Invalid numeric value "0" for --ntasks.'),
        (("-n100000", "true"), NOBODY, 1, "ntasks: 100000 is more than max_tasks_per_node = 512"),
        (("-n9999999999", "true"), NOBODY, 1, "ntasks: 9999999999 is not from 1 to"),
        (("-c9999", "true"), NOBODY, 1, "cpus_per_task: 9999 is more than the"),
        ((), NOBODY, 1, "No command given to execute."),
        (("",), NOBODY, 1, "argv: no program given"),
        (("--bad", "true"), NOBODY, 255, "unrecognized option '--bad'"),
        (("--uid=0", "true"), NOBODY, 1, "only root may run steps as another user"),
        (("--uid=daemon", "true"), NOBODY, 1, "only root may run steps as another user"),
        (("--gid=root", "true"), NOBODY, 1, "nobody is not in this group"),
        (("--uid=nosuchuser", "true"), NOBODY, 1, "no user 'nosuchuser'"),
        (("--uid=nosuchuser", "true"), None, 1, "no user 'nosuchuser'"),
        (("--uid=4294967295", "true"), None, 1, "no user '4294967295'"),
        (("--uid=99999999999999999999", "true"), None, 1, "no user '99999999999999999999'"),
        (("--uid=", "true"), None, 1, "no user ''"),
        (("--gid=nosuchgroup", "true"), None, 1, "no group 'nosuchgroup'"),
        (("--gid=4294967295", "true"), None, 1, "no group '4294967295'"),
        (("--gid=99999999999", "true"), None, 1, "no group '99999999999'"),
        (("--cpu-bind=map_cpu:x", "true"), NOBODY, 1, "map_cpu"),
        (("--cpu-bind=map_cpu:", "true"), NOBODY, 1, "map_cpu"),
        (("--cpu-bind=mask_cpu:zz", "true"), NOBODY, 1, "mask_cpu"),
        (("--cpu-bind=map_cpu:4000", "true"), NOBODY, 1, "4000"),
        (("--cpu-bind=mask_cpu:0x" + "f" * 400, "true"), NOBODY, 1, "mask_cpu"),
        (("--cpu-bind=sideways", "true"), NOBODY, 1, "sideways"),
        (("-t", "500-0", "true"), NOBODY, 1, "time_limit"),
        (("-D", "/" + "d" * 5000, "true"), NOBODY, 1, "cwd: longer than 4096 characters"),
    ],
)
def test_a_request_that_makes_no_sense(
    served: Node, words: tuple[str, ...], user: object, status: int, reason: str
) -> None:
    done = served.run(*words, user=user)
    assert done.returncode == status, done.stderr
    lines = done.stderr.splitlines()
    assert reason in lines[0]
    assert lines[0].startswith("nodectl: ")
    assert len(lines) == 1 or lines[1].startswith("Try 'nodectl run --help'")


# Over the socket itself.


def connect(node: Node) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(str(node.socket))
    return sock


def exchange(node: Node, data: bytes, fds: list[int] | None = None) -> tuple[Mapping[str, object] | None, bool]:
    """Sends bytes; the first reply (None: none came), and whether the daemon then ended the connection."""
    with connect(node) as sock:
        try:
            if fds is None:
                sock.sendall(data)
            else:
                socket.send_fds(sock, [data], fds)
            reply = wire.receive(sock, wire.Inbox(1 << 20))
        except (BrokenPipeError, ConnectionResetError):
            return None, True
        try:
            wire.send(sock, {"method": "org.nodectl.Hello"})
            return reply, wire.receive(sock, wire.Inbox(1 << 20)) is None
        except (BrokenPipeError, ConnectionResetError):
            return reply, True


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"garbage\0", "malformed|no JSON value"),
        (b"\0", "no JSON value"),
        (b"[]\0", "not a JSON object"),
        (b'"x"\0', "not a JSON object"),
        (b'{"method":"\xff"}\0', "not UTF-8 at byte 11"),
        (b'{"a":' * 50_000 + b"\0", "malformed|nested|no JSON"),
        (b"GET / HTTP/1.1\r\n\r\n\0", "malformed|no JSON"),
    ],
)
def test_what_is_no_message_gets_an_error_and_the_connection_ends(served: Node, data: bytes, reason: str) -> None:
    reply, ended = exchange(served, data)
    assert reply is not None
    assert reply["error"] == "org.varlink.service.InvalidParameter"
    parameters: Mapping[str, object] = reply["parameters"]  # type: ignore[assignment]
    assert any(word in str(parameters["reason"]) for word in reason.split("|"))
    assert ended


def test_an_oversized_message_ends_the_connection(served: Node) -> None:
    reply, ended = exchange(served, b'{"method":"org.nodectl.Hello","parameters":{"x":"' + b"x" * (9 << 20))
    assert ended
    assert reply is None or "longer than" in str(reply["parameters"])


def call(method: str, **members: object) -> bytes:
    return wire.encode({"method": method, **members})


def launch(**changes: object) -> bytes:
    request = {name: value for name, value in {**REQUEST, **changes}.items() if value is not ...}
    return call("org.nodectl.Launch", parameters={"request": request})


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (wire.encode({}), "InvalidParameter", "names its method"),
        (wire.encode({"method": 5}), "InvalidParameter", "names its method"),
        (call("Hello"), "InvalidParameter", "names its method"),
        (call("org.nodectl.Nothing"), "MethodNotFound", "no method Nothing"),
        (call("org.example.Hello"), "InterfaceNotFound", "no interface org.example"),
        (call("org.nodectl.Hello", colour="red"), "InvalidParameter", "no such member of a call: colour"),
        (call("org.nodectl.Hello", more="yes"), "InvalidParameter", "more: not true or false"),
        (call("org.nodectl.Hello", parameters=[]), "InvalidParameter", "parameters: not an object"),
        (call("org.nodectl.Hello", parameters={"x": 1}), "InvalidParameter", "x: no such parameter"),
        (call("org.nodectl.Wait", parameters={"job": 1}), "InvalidParameter", "step: missing"),
        (call("org.nodectl.Wait", parameters={"job": "1", "step": 0}), "InvalidParameter", "job: not a whole number"),
        (
            call("org.nodectl.Wait", parameters={"job": 2**40, "step": 0}),
            "InvalidParameter",
            "job: 1099511627776 is not",
        ),
        (call("org.nodectl.Wait", parameters={"job": 999_999, "step": 0}), "NoSuchStep", "no step 999999.0"),
        (call("org.nodectl.Show", parameters={"job": 999_999, "step": 0}), "NoSuchStep", "no step 999999.0"),
        (call("org.nodectl.Trace", parameters={"job": 999_999, "step": 0}), "NoSuchStep", "no step 999999.0"),
        (
            call("org.nodectl.Signal", parameters={"job": 1, "step": 0, "signal": 0}),
            "InvalidParameter",
            "signal: 0 is not",
        ),
        (
            call("org.nodectl.Signal", parameters={"job": 1, "step": 0, "signal": 65}),
            "InvalidParameter",
            "signal: 65 is not",
        ),
        (call("org.nodectl.Signal", parameters={"job": 999_999, "step": 0, "signal": 9}), "NoSuchStep", "no step"),
        (call("org.nodectl.List", parameters={"ended": -1}), "InvalidParameter", "ended: -1 is not"),
        (call("org.nodectl.Launch", parameters={"request": 5}), "InvalidParameter", "request: not an object"),
    ],
)
def test_a_wrong_call_is_refused_by_name_and_the_connection_stays(
    served: Node, data: bytes, error: str, words: str
) -> None:
    reply, ended = exchange(served, data)
    assert reply is not None
    assert str(reply["error"]).rpartition(".")[2] == error
    assert words in str(reply["parameters"])
    assert not ended


BAD_VALUES: list[tuple[str, object]] = [
    ("argv", ...),
    ("argv", []),
    ("argv", [""]),
    ("argv", "true"),
    ("argv", [1]),
    ("argv", ["a\0b"]),
    ("argv", ["x" * 200_000]),
    ("argv", ["x"] * 70_000),
    ("argv", ["\ud800"]),
    ("argv", {"0": "true"}),
    ("environment", ...),
    ("environment", []),
    ("environment", {"": "x"}),
    ("environment", {"A=B": "x"}),
    ("environment", {"A": 1}),
    ("environment", {"A": "x\0"}),
    ("environment", {"A": "\udfff"}),
    ("environment", {"\ud800": "x"}),
    ("cwd", ...),
    ("cwd", "relative"),
    ("cwd", ""),
    ("cwd", 5),
    ("cwd", "/a\0"),
    ("cwd", "/" + "x" * 5000),
    ("cwd", "/\ud800"),
    ("ntasks", ...),
    ("ntasks", 0),
    ("ntasks", -1),
    ("ntasks", 513),
    ("ntasks", 2**40),
    ("ntasks", 1.5),
    ("ntasks", True),
    ("ntasks", "1"),
    ("cpus_per_task", 0),
    ("cpus_per_task", 10_000),
    ("name", 5),
    ("name", "x" * 2000),
    ("name", "\ud800"),
    ("time_limit", 0),
    ("time_limit", 10**9),
    ("time_limit", "1"),
    ("cpu_bind", 5),
    ("cpu_bind", "map_cpu:9999"),
    ("cpu_bind", "mask_cpu:-1"),
    ("stdin", 5),
    ("stdout", "x" * 5000),
    ("stderr", ["x"]),
    ("label", 1),
    ("label", "yes"),
    ("unbuffered", 0),
    ("kill_on_bad_exit", "1"),
    ("verbose", -1),
    ("verbose", 11),
    ("umask", 0o1000),
    ("umask", -1),
    ("umask", "022"),
    ("rlimits", {"NOSUCH": 1}),
    ("rlimits", {"NOFILE": -2}),
    ("rlimits", {"NOFILE": 2**64}),
    ("rlimits", {"NOFILE": "1"}),
    ("rlimits", []),
    ("options", [["a", "b"]]),
    ("options", [["a", "b", "c", "d"]]),
    ("options", [[1, 2, 3]]),
    ("options", "x"),
    ("task_prolog", "relative"),
    ("task_prolog", 5),
    ("task_epilog", "relative"),
    ("uid", "nosuchuser"),
    ("uid", 0),
    ("uid", "x" * 300),
    ("uid", "\ud800"),
    ("gid", "nosuchgroup"),
    ("gid", 5),
    ("job", 0),
    ("job", 4_000_000_000),
    ("job", 2**32),
    ("job", "1"),
    ("colour", "red"),
]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_every_bad_value_of_a_launch_is_refused_with_the_parameters_name(
    shared_node: Node, name: str, value: object
) -> None:
    reply, ended = exchange(shared_node, launch(**{name: value}))
    assert reply is not None
    assert not ended
    assert reply["error"] in ("org.nodectl.InvalidRequest", "org.nodectl.LaunchRefused")
    parameters: Mapping[str, object] = reply["parameters"]  # type: ignore[assignment]
    assert "\n" not in str(parameters["reason"])
    if reply["error"] == "org.nodectl.InvalidRequest":
        assert parameters["parameter"] in (name, "uid")  # a group is part of who runs the step
    else:
        assert (name, parameters["exit_status"]) == ("cpu_bind", 1)


def test_after_all_bad_values_the_node_serves_and_is_clean(served: Node) -> None:
    assert "Traceback" not in served.logged()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16])
def test_a_launch_with_too_few_or_too_many_descriptors(served: Node, count: int) -> None:
    reply, _ = exchange(served, launch(), [0] * count)
    assert reply is not None
    assert f"comes with {count} descriptors instead of none or four" in str(reply["parameters"])


@pytest.mark.parametrize("count", [17, 100])
def test_more_descriptors_than_a_message_may_carry_end_the_connection(served: Node, count: int) -> None:
    reply, ended = exchange(served, launch(), [0] * count)
    assert ended
    assert reply is None or "more than 16 descriptors" in str(reply["parameters"])


def fourth_descriptors() -> Iterator[tuple[str, int]]:
    yield "a file", os.open("/dev/null", os.O_RDWR)
    yield "a pipe", os.pipe()[0]
    yield "a datagram socket", socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach()
    yield "a network socket", socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach()
    yield "a packet socket", socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0].detach()


def test_the_fourth_descriptor_must_be_a_local_stream_socket(served: Node) -> None:
    for what, fd in fourth_descriptors():
        reply, _ = exchange(served, launch(), [0, 1, 2, fd])
        os.close(fd)
        assert reply is not None, what
        assert "the fourth descriptor" in str(reply["parameters"]), what


def test_the_daemon_keeps_no_descriptor_of_refused_calls(served: Node) -> None:
    assert served.daemon is not None
    directory = f"/proc/{served.daemon.pid}/fd"
    before = len(os.listdir(directory))
    for _ in range(20):
        exchange(served, call("org.nodectl.Hello"), [0] * 8)
        exchange(served, launch(ntasks=0), [0] * 4)
        with connect(served) as sock:
            socket.send_fds(sock, [b'{"half'], [0, 1, 2])
    wait_until(lambda: len(os.listdir(directory)) <= before, "the descriptors are closed")


def test_descriptors_belong_to_the_call_they_came_with(served: Node) -> None:
    reader, writer = os.pipe()
    ours, theirs = socket.socketpair()
    with connect(served) as sock, ours, theirs:
        # Two calls in one go: the kernel hands them over in one read.
        socket.send_fds(sock, [call("org.nodectl.Hello")], [])
        socket.send_fds(sock, [launch(argv=["echo", "mine"])], [0, writer, 2, theirs.fileno()])
        inbox = wire.Inbox(1 << 20)
        assert "version" in str(wire.receive(sock, inbox))
        assert "job" in str(wire.receive(sock, inbox))
    os.close(writer)
    theirs.close()
    with os.fdopen(reader) as output:
        assert output.read() in ("mine\n", "")  # the end of the launcher may be faster than the task


def test_a_client_that_vanishes_at_any_moment_leaves_nothing(served: Node) -> None:
    for data in (
        b"",
        b'{"met',
        call("org.nodectl.Hello"),
        call("org.nodectl.Hello")[:-1],
        launch(argv=["sleep", "0.2"]),
    ):
        for linger in (False, True):
            with connect(served) as sock:
                if linger:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                sock.sendall(data)


def test_a_client_killed_during_the_step_takes_the_step_along(served: Node) -> None:
    client = served.popen("sleep", "300", user=NOBODY)
    wait_until(lambda: any("sleep" in name for _, name in served.processes()), "the task runs")
    client.kill()
    client.communicate()
    served.assert_clean()
    steps = served.call("List", ended=1)["steps"]
    assert steps[0]["state"] == "CANCELLED"  # type: ignore[index]
    assert "the client that ran it went away" in steps[0]["reason"]  # type: ignore[index]


def test_a_stopped_client_hinders_nobody(served: Node) -> None:
    client = served.popen("-n4", "-l", "sh", "-c", "seq 20000; exit 3", user=NOBODY)
    client.send_signal(signal.SIGSTOP)
    assert served.run("true", user=NOBODY).returncode == 0
    client.send_signal(signal.SIGCONT)
    output, _ = client.communicate(timeout=30)
    assert client.returncode == 3
    assert output.count("\n") == 80_000


def test_thousands_of_half_open_connections_keep_nobody_out(served: Node) -> None:
    pid = os.fork()
    if pid == 0:  # as an ordinary user
        try:
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            held = []
            for _ in range(3000):
                sock = socket.socket(socket.AF_UNIX)
                try:
                    sock.connect(str(served.socket))
                    sock.send(b'{"half')
                except OSError:
                    sock.close()
                    continue
                held.append(sock)
                if len(held) > 500:
                    held.pop(0).close()
            time.sleep(1)
        finally:
            os._exit(0)
    try:
        started = time.monotonic()
        assert served.run("true").returncode == 0
        assert time.monotonic() - started < 20
    finally:
        os.waitpid(pid, 0)


def test_a_daemon_without_descriptors_left_waits_for_some(node: Node) -> None:
    assert node.daemon is not None
    resource.prlimit(node.daemon.pid, resource.RLIMIT_NOFILE, (40, 40))
    held = [connect(node) for _ in range(60)]
    before = cpu_ticks(node.daemon.pid)
    time.sleep(1)
    assert cpu_ticks(node.daemon.pid) - before < 30
    assert 0 < node.logged().count("accept: Too many open files") < 20
    for sock in held:
        sock.close()
    assert node.run("echo", "served").stdout == "served\n"


def cpu_ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]))


def test_replies_that_nobody_reads_end_the_connection_not_the_daemon(served: Node) -> None:
    with connect(served) as sock:
        sock.setblocking(False)
        data = call("org.varlink.service.GetInterfaceDescription", parameters={"interface": "org.nodectl"}) * 8
        end = time.monotonic() + 5
        sent = 0
        while time.monotonic() < end and sent < 64 << 20:
            try:
                sent += sock.send(data)
            except BlockingIOError:
                time.sleep(0.01)
                if sent > 1 << 20:
                    break
            except (BrokenPipeError, ConnectionResetError):
                break


def test_names_with_odd_bytes_arrive_unchanged(served: Node) -> None:
    done = served.run("-J", "n\udcffm", "printf", "%s", "a\udcff\n\ud7ff", user=NOBODY, env={"ODD": "\udcfe"})
    assert (done.returncode, done.stdout) == (0, "a\udcff\n\ud7ff"), done.stderr
