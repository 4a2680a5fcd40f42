"""Any Varlink client can talk to the service: here the `varlink` command from PyPI, as it is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rootful.node import NOBODY, Node, _as


def varlink(
    node: Node, command: str, target: str, *words: str, user: object = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "varlink.cli", command, f"unix:{node.socket}{target}", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd="/",
        **_as(user),  # type: ignore[arg-type]
    )


def call(node: Node, method: str, parameters: object, user: object = None) -> dict[str, object]:
    done = varlink(node, "call", f"/{method}", json.dumps(parameters), user=user)
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_info_tells_the_interfaces(shared_node: Node) -> None:
    done = varlink(shared_node, "info", "")
    assert done.returncode == 0, done.stderr
    assert "nodectl" in done.stdout
    assert "org.varlink.service" in done.stdout
    assert any(line.strip() == "org.nodectl" for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("interface", "words"), [("org.nodectl", "method Launch("), ("org.varlink.service", "method GetInfo()")]
)
def test_help_prints_the_description(shared_node: Node, interface: str, words: str) -> None:
    done = varlink(shared_node, "help", f"/{interface}")
    assert done.returncode == 0, done.stderr
    assert words in done.stdout


def test_a_step_is_launched_awaited_listed_and_shown(shared_node: Node) -> None:
    out = shared_node.scratch / "varlink.out"
    request = {
        "argv": ["sh", "-c", "echo hello; exit 3"],
        "environment": {"PATH": "/usr/bin:/bin"},
        "cwd": str(shared_node.scratch),
        "ntasks": 2,
        "stdout": out.name + "_%t",
    }
    which = call(shared_node, "org.nodectl.Launch", {"request": request}, NOBODY)
    assert set(which) == {"job", "step"}
    record = call(shared_node, "org.nodectl.Wait", which, NOBODY)["record"]
    assert isinstance(record, dict)
    assert (record["state"], record["exit_status"], record["user"]) == ("FAILED", 3, "nobody")
    assert (shared_node.scratch / "varlink.out_1").read_text(encoding="ascii") == "hello\n"
    assert call(shared_node, "org.nodectl.Show", which, NOBODY)["record"] == record
    steps = call(shared_node, "org.nodectl.List", {"ended": 5}, NOBODY)["steps"]
    assert isinstance(steps, list)
    assert which["job"] in [step["job"] for step in steps]
    trace = call(shared_node, "org.nodectl.Trace", which, NOBODY)["trace"]
    assert isinstance(trace, list)
    assert "exec" in [line["call"] for line in trace]


@pytest.mark.parametrize("method", ["Hello", "Config", "List"])
def test_methods_without_parameters_answer(shared_node: Node, method: str) -> None:
    assert call(shared_node, f"org.nodectl.{method}", {})


@pytest.mark.parametrize(
    ("method", "parameters", "words"),
    [
        ("org.nodectl.Show", {"job": 999_999, "step": 0}, "NoSuchStep"),
        ("org.nodectl.Show", {"job": "x", "step": 0}, "InvalidParameter"),
        ("org.nodectl.Launch", {"request": {"argv": [], "environment": {}, "cwd": "/", "ntasks": 1}}, "InvalidRequest"),
    ],
)
def test_a_refusal_is_an_error_of_the_interface(shared_node: Node, method: str, parameters: object, words: str) -> None:
    done = varlink(shared_node, "call", f"/{method}", json.dumps(parameters))
    assert words in done.stderr
    assert done.stdout == ""
