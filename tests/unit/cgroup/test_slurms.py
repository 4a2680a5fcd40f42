"""Whose job a process is in, read from its cgroup: what users may name is not believed."""

from __future__ import annotations

import fcntl
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.launch.cgroup import slurms, tree

SCOPE = "/system.slice/n1_slurmstepd.scope"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/job_7/step_0/user/task_0", (7, f"{SCOPE}/job_7/step_0/user")),
        ("/job_7/step_extern/user/task_special", (7, f"{SCOPE}/job_7/step_extern/user")),
        ("/job_7/step_0/user/task_0/mine/job_8/step_0/user/task_0", (7, f"{SCOPE}/job_7/step_0/user")),
        ("/job_7/step_0/user", None),
        ("/job_7/step_0/slurm", None),
        ("/job_7/step_0/user/nodectl/step_0/user/task_0", None),
        ("/job_7/step_0/other/task_0", None),
        ("/job_07/step_0/user/task_0", None),
        ("/job_0/step_0/user/task_0", None),
        ("/job_-7/step_0/user/task_0", None),
        ("/job_/step_0/user/task_0", None),
        ("/7/step_0/user/task_0", None),
        ("/job_\u0667/step_0/user/task_0", None),
        ("/job_4294967296/step_0/user/task_0", None),
        ("/x/job_7/step_0/user/task_0", None),
        ("", None),
    ],
)
def test_only_names_in_their_places_count(path: str, found: tuple[int, str] | None) -> None:
    assert slurms.place_of(f"{SCOPE}{path}", SCOPE) == found


@pytest.mark.parametrize("before", ["/user.slice", "/x", "/system.slice/n1_slurmstepd.scope.d"])
def test_another_directory_is_not_slurms(before: str) -> None:
    assert slurms.place_of(f"{before}/job_7/step_0/user/task_0", SCOPE) is None
    assert slurms.place_of(f"{before}{SCOPE}/job_7/step_0/user/task_0", SCOPE) is None


@given(st.text("job_step/usrak0179.\r ", max_size=40))
def test_whatever_it_is_called_the_place_is_below_slurms(path: str) -> None:
    found = slurms.place_of(f"{SCOPE}/{path}", SCOPE)
    assert found is None or f"{SCOPE}/{path}".startswith(f"{found[1]}/task_")


def test_what_slurm_left_is_removed_from_its_tasks_upward(tmp_path: os.PathLike[str]) -> None:
    place = f"{os.fspath(tmp_path)}/job_7/step_0/user"
    for name in ("nodectl/step_3/user", "nodectl/step_3/stepd", "task_0", "../slurm", "../nodectl_3"):
        os.makedirs(f"{place}/{name}")
    assert slurms.remove(tree.Group(f"{place}/nodectl/step_3"))
    assert os.listdir(place) == ["task_0"]
    assert sorted(os.listdir(f"{place}/..")) == ["slurm", "user"]
    os.rmdir(f"{place}/task_0")
    os.makedirs(f"{place}/nodectl/step_4/user")
    assert slurms.remove(tree.Group(f"{place}/nodectl/step_4"))
    assert os.listdir(tmp_path) == []


def test_what_is_ours_is_found(tmp_path: os.PathLike[str]) -> None:
    for name in (
        "job_7/step_0/user/nodectl/step_3/user/task_0", "job_7/step_0/nodectl_3", "job_7/step_1/nodectl_4",
        "job_7/step_1/slurm", "job_7/step_1/user/task_0", "job_8/step_batch/user/nodectl", "system",
    ):  # fmt: skip
        os.makedirs(f"{os.fspath(tmp_path)}/{name}")
    found = {path.removeprefix(os.fspath(tmp_path)) for path in slurms.steps_below(os.fspath(tmp_path))}
    assert found == {
        "/job_7/step_0/user/nodectl/step_3", "/job_7/step_1/user/nodectl/step_4", "/job_8/step_batch/user/nodectl/step_"
    }  # fmt: skip
    assert slurms.remove(tree.Group(f"{os.fspath(tmp_path)}/job_8/step_batch/user/nodectl/step_"))
    assert not os.path.exists(f"{os.fspath(tmp_path)}/job_8")
    assert not slurms.steps_below(f"{os.fspath(tmp_path)}/nowhere")


def test_where_nothing_is_ours_nothing_is_removed(tmp_path: os.PathLike[str]) -> None:
    """Slurm may be about to fill it."""
    place = f"{os.fspath(tmp_path)}/job_7/step_0/user"
    os.makedirs(place)
    assert slurms.remove(tree.Group(f"{place}/nodectl/step_3"))
    assert os.path.isdir(place)


@pytest.mark.parametrize("left", ["nodectl/step_3", "../nodectl_3"])
def test_what_a_killed_process_left_half_done_is_done(tmp_path: os.PathLike[str], left: str) -> None:
    place = f"{os.fspath(tmp_path)}/job_7/step_0/user"
    os.makedirs(place)
    os.makedirs(f"{place}/{left}")
    assert slurms.remove(tree.Group(f"{place}/nodectl/step_3"))
    assert os.listdir(tmp_path) == []


def test_nobody_waits_for_slurms_lock(tmp_path: os.PathLike[str]) -> None:
    place = f"{os.fspath(tmp_path)}/job_7/step_0/user"
    for name in ("nodectl/step_3", "../nodectl_3"):
        os.makedirs(f"{place}/{name}")
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert not slurms.remove(tree.Group(f"{place}/nodectl/step_3"))
    assert os.path.isdir(f"{place}/../nodectl_3")
    assert slurms.remove(tree.Group(f"{place}/nodectl/step_3"), patient=False)
    assert os.listdir(f"{place}/..") == ["user"]
    os.close(fd)


@pytest.mark.parametrize(
    ("step", "stepd"),
    [
        ("/job_7/step_0/user/nodectl/step_3", "/job_7/step_0/nodectl_3"),
        ("/base/job_7/step_3", "/base/job_7/step_3/stepd"),
        ("/user/job_7/step_3", "/user/job_7/step_3/stepd"),
    ],
)
def test_a_stepd_is_beside_what_slurm_stops(step: str, stepd: str) -> None:
    assert slurms.stepd_path(step) == stepd
