"""What `nodectl --user doctor` says of a cgroup that is not its user's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.cli.checks import own_node_rights
from nodectl.cli.checks.check import WARN, Check

TASK = "/system.slice/n1_slurmstepd.scope/job_7/step_0/user/task_0"
SHELL = "/user.slice/user-1000.slice/session-1.scope"


def cgroup_check(place: str, mount: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setattr(own_node_rights, "find_mount", lambda: str(mount))
    monkeypatch.setattr(own_node_rights, "has_cgroup", lambda: False)
    monkeypatch.setattr(own_node_rights, "left_out", lambda _config: [])
    monkeypatch.setattr(own_node_rights, "cgroup_of", lambda: place)
    config: Any = SimpleNamespace(job_container_type="job_container/none", container_dirs=())
    (found,) = (one for one in own_node_rights.all_checks(config) if one.what == "cgroup")
    return found


def test_who_is_logged_in_is_advised_to_take_a_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Delegate=yes" in cgroup_check(SHELL, tmp_path, monkeypatch).advice


def test_in_slurms_cgroup_its_limit_is_told_and_no_scope_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "not delegated: steps' processes are found by their parents; all share Slurm's "
    assert cgroup_check(TASK, tmp_path, monkeypatch) == Check(WARN, "cgroup", f"{told}{TASK}")
    step = tmp_path / TASK[1:].rpartition("/")[0]
    step.mkdir(parents=True)
    (step / "memory.max").write_text(f"{250 << 20}\n")
    assert cgroup_check(TASK, tmp_path, monkeypatch).detail == f"{told}{TASK} and its 250 MiB of memory"
