"""What a step uses, where the kernel tells it, and how much is looked at where it does not."""

from __future__ import annotations

import os
from pathlib import Path

from nodectl.launch.cgroup.usage import MOST_LOOKED_AT, UsageReader


def group(mount: Path, name: str, processes: int, **files: str) -> str:
    """The cgroup of a step with so many processes, all of them this one."""
    user = mount / name / "user"
    user.mkdir(parents=True)
    (user / "cgroup.procs").write_text(f"{os.getpid()}\n" * processes)
    for file, text in files.items():
        (user / file.replace("_", ".")).write_text(text)
    return f"/{name}"


def test_memory_is_what_the_kernel_charges_or_else_what_is_resident(tmp_path: Path) -> None:
    reader = UsageReader(str(tmp_path))
    assert reader.read(group(tmp_path, "charged", 3, memory_current="4096\n")).memory == 4096
    one, two = (reader.read(group(tmp_path, f"of{number}", number)).memory for number in (1, 2))
    assert one is not None
    assert two is not None
    assert two > 1.5 * one > 0
    assert reader.read(group(tmp_path, "empty", 0)).memory is None
    assert reader.read("/gone").memory is None


def test_too_many_processes_or_cgroups_are_not_looked_at(tmp_path: Path) -> None:
    reader = UsageReader(str(tmp_path))
    assert reader.read(group(tmp_path, "crowd", MOST_LOOKED_AT)).memory is None
    deep = group(tmp_path, "deep", 1)
    (tmp_path / "deep/user" / "/".join(["d"] * 400)).mkdir(parents=True)
    assert reader.read(deep).memory
    for number in range(200):
        (tmp_path / f"deep/user/wide{number}").mkdir()
    assert reader.read(deep).memory is None


def test_a_bound_for_all_steps_is_shared_by_them(tmp_path: Path) -> None:
    groups = [group(tmp_path, f"step{number}", 3) for number in range(4)]
    reader = UsageReader(str(tmp_path), in_all=10)
    assert [reader.read(one).memory is None for one in groups] == [False, False, True, True]
    assert all(UsageReader(str(tmp_path)).read(one).memory for one in groups)
