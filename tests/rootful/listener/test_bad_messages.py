"""Bytes and descriptors that make no sense are answered by name, and cost nobody else anything."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import pytest

from nodectl.model.wire import framing
from rootful.node import Node, wait_until
from rootful.raw import call, connect, exchange, launch


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


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (framing.encode({}), "InvalidParameter", "names its method"),
        (framing.encode({"method": 5}), "InvalidParameter", "names its method"),
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
    ("cpu_bind", "map_cpu:" + "0," * 100_000 + "0"),
    ("cpu_bind", "mask_cpu:" + "f" * 4000 + "*8000"),
    ("layout", {"junk0": "x"}),
    ("layout", {"nodelist": "n" * 4097}),
    ("layout", {"exclude": "n[1-4000]," * 400}),
    ("layout", {"gres": "gpu," * 2000}),
    ("layout", {"gpu_bind": "x" * 4097}),
    ("layout", {"mem_bind": "x" * 200_000}),
    ("layout", {"distribution": f"plane={'9' * 4090}"}),
    ("layout", {"ntasks_per_node": "9" * 4096}),
    ("layout", {"hint": 5}),
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
    ("options", [["a"]]),
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


@pytest.mark.parametrize("count", [1, 2, 4, 5, 16])
def test_a_launch_with_too_few_or_too_many_descriptors(served: Node, count: int) -> None:
    reply, _ = exchange(served, launch(), [0] * count)
    assert reply is not None
    assert f"comes with {count} descriptors instead of none or three" in str(reply["parameters"])


@pytest.mark.parametrize("count", [17, 100])
def test_more_descriptors_than_a_message_may_carry_end_the_connection(served: Node, count: int) -> None:
    reply, ended = exchange(served, launch(), [0] * count)
    assert ended
    assert reply is None or "more than 16 descriptors" in str(reply["parameters"])


def test_the_daemon_keeps_no_descriptor_of_refused_calls(served: Node) -> None:
    assert served.daemon is not None
    directory = f"/proc/{served.daemon.pid}/fd"
    before = len(os.listdir(directory))
    for _ in range(20):
        exchange(served, call("org.nodectl.Hello"), [0] * 8)
        exchange(served, launch(ntasks=0), [0] * 3)
        with connect(served) as sock:
            socket.send_fds(sock, [b'{"half'], [0, 1, 2])
    wait_until(lambda: len(os.listdir(directory)) <= before, "the descriptors are closed")


def test_descriptors_belong_to_the_call_they_came_with(served: Node) -> None:
    reader, writer = os.pipe()
    with connect(served) as sock:
        # Two calls in one go: the kernel hands them over in one read.
        socket.send_fds(sock, [call("org.nodectl.Hello")], [])
        socket.send_fds(sock, [launch(argv=["echo", "mine"])], [0, writer, 2])
        inbox = framing.Inbox(1 << 20)
        assert "version" in str(framing.receive(sock, inbox))
        assert "job" in str(framing.receive(sock, inbox))
        events, commands = inbox.take_descriptors()
    os.close(writer)
    with os.fdopen(reader) as output:
        assert output.read() == "mine\n"
    os.close(events)
    os.close(commands)
