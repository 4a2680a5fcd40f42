"""Confinement under the service, with Debian 12's kernel: Landlock version 2, which does not know of truncation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rootful.confined import FILES, WAYS_OUT
from vm import service
from vm.service import Sleeper, status_of

pytestmark = pytest.mark.all

# What of the kernel's is denied: keyctl, and in strict a user namespace.
CALLS = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
def errno_of(*call):
    ctypes.set_errno(0)
    libc.syscall(*call)
    return ctypes.get_errno()
print(json.dumps([errno_of(250, 99, 0, 0, 0, 0), errno_of(272, 0x10000000)]))
"""
EPERM, EOPNOTSUPP = 1, 95


def test_doctor_says_what_this_kernel_has() -> None:
    lines = service.run("nodectl", "doctor").stdout.splitlines()
    found = {line.split()[1]: line.split()[0] for line in lines if line}
    assert [found[name] for name in ("secure", "seccomp", "Landlock")] == ["ok"] * 3


def test_levels_deny_what_they_say() -> None:
    found = {
        level: json.loads(service.nodectl("run", f"--secure={level}", "python3", "-c", CALLS, user="alice"))
        for level in ("none", "default", "strict")
    }
    assert found == {"none": [EOPNOTSUPP, 0], "default": [EPERM, 0], "strict": [EPERM, EPERM]}


def test_strict_writes_nothing_outside_by_any_way() -> None:
    inside, outside = Path("/home/alice/inside"), Path("/home/alice/outside")
    made = service.run("sh", "-c", "mkdir -p inside outside; printf 'as it was' > outside/file", user="alice")
    assert made.returncode == 0
    script = f"{FILES}O = {str(outside)!r}\n" + "".join(f"print({way!r}, {do})\n" for way, do in WAYS_OUT.items())
    said = service.nodectl("run", "--secure=strict", "-D", str(inside), "python3", "-c", script, user="alice")
    results = {line.rpartition(" ")[2] for line in said.splitlines()}
    assert len(said.splitlines()) == len(WAYS_OUT)
    assert results <= {"EACCES", "EXDEV", "EPERM"}, said
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("file", "as it was")]
    written = "import os; open('x', 'w').write('y'); os.mkdir('a'); os.rename('x', 'a/x'); print(open('a/x').read())"
    shown = service.nodectl("run", "--secure=strict", "-D", str(inside), "python3", "-c", written, user="alice")
    assert shown == "y\n"


def test_a_restarted_service_keeps_a_running_steps_level() -> None:
    step = Sleeper("alice", 0, "--secure=strict")
    service.systemctl("restart", service.UNIT)
    status = status_of(service.nodectl("enter", str(step.job), "cat", "/proc/self/status", user="alice"))
    assert (status["NoNewPrivs"], status["Seccomp"], int(status["CapBnd"], 16)) == ("1", "2", 0)
    assert step.let_go()[0] == 0
    assert service.record(step.job)["secure"] == "strict"
