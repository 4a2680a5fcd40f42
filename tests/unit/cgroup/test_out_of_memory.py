"""Whom the kernel's log names as killed for want of memory; lines recorded on Linux 6.1."""

from __future__ import annotations

import pytest

from nodectl.launch.cgroup.out_of_memory import victim_of

JOB = "/system.slice/bed_slurmstepd.scope/job_21"
FACTS = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=task_0,mems_allowed=0-1"


def test_victim_is_named_with_its_cgroup_and_whose_limit_it_was() -> None:
    place = f"{JOB}/step_0/user/task_0"
    one = victim_of(f"{FACTS},oom_memcg={JOB}/step_0/user,task_memcg={place},task=hog,pid=2199,uid=0")
    assert one is not None
    assert (one.pid, one.name, one.cgroup, one.limit_of) == (2199, "hog", place, f"{JOB}/step_0/user")


def test_machine_that_has_no_more_memory_has_no_limit() -> None:
    facts = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom"
    one = victim_of(f"{facts},task_memcg=/a,task=b,pid=7,uid=0")
    assert one is not None
    assert (one.pid, one.name, one.cgroup, one.limit_of) == (7, "b", "/a", "")


@pytest.mark.parametrize("name", ["a,pid=1,uid=0", "a,task_memcg=/x", ",task=b", "a) total-vm:1kB", "\\x0a"])
def test_name_that_looks_like_facts_misleads_nobody(name: str) -> None:
    one = victim_of(f"{FACTS},oom_memcg={JOB},task_memcg={JOB}/step_0/user/task_3,task={name},pid=42,uid=1000")
    assert one is not None
    assert (one.pid, one.name, one.cgroup) == (42, name, f"{JOB}/step_0/user/task_3")


def test_line_that_is_never_left_out_names_at_least_the_process() -> None:
    tail = "total-vm:53868kB, anon-rss:50492kB, file-rss:908kB, shmem-rss:0kB, UID:0 pgtables:144kB oom_score_adj:0"
    one = victim_of(f"Memory cgroup out of memory: Killed process 1853 (hog) {tail}")
    assert one is not None
    assert (one.pid, one.name, one.cgroup) == (1853, "hog", "")


@pytest.mark.parametrize(
    "line", ["", "oom-kill:", "oom_reaper: reaped process 7 (a), now anon-rss:0kB", "x: Killed process 7 (a)"]
)
def test_other_lines_name_nobody(line: str) -> None:
    assert victim_of(line) is None
