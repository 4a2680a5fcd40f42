"""Steps that stand still under systemd."""

from __future__ import annotations

import json

from vm import service
from vm.service import Sleeper
from vm.test_limits import read


def test_suspended_step_uses_no_cpu_and_is_freed_to_end_well() -> None:
    step = Sleeper("alice", 5, "--mem=100M")
    service.nodectl("suspend", str(step.job), user="alice")
    assert "frozen 1" in read(step.group / "user", "cgroup.events")
    (shown,) = json.loads(service.nodectl("ps", "--json", user="alice"))["steps"]
    assert shown["state"] == "SUSPENDED"
    before = read(step.group / "user", "cpu.stat").splitlines()[0]
    assert service.run("sleep", "1").returncode == 0
    assert read(step.group / "user", "cpu.stat").splitlines()[0] == before
    service.nodectl("resume", str(step.job), user="alice")
    assert step.let_go()[:2] == (5, "ran\n")
