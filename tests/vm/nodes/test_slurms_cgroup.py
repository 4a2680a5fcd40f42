"""Steps of an ordinary user's cluster in the cgroups of Slurm: where they are, and whose limits hold."""

from __future__ import annotations

import json
from functools import partial

from vm import service
from vm.nodes import remote
from vm.nodes.allocation import CPUS, MEMORY, NODES, USER, Allocation, assert_clean, in_order

_TASKS = tuple(node for node in NODES for _ in range(CPUS))  # of -N3 -n6
_EATER = "kept = []\nfor _ in range(64): kept.append(b'x' * (8 << 20))\n"  # more than the job has, little by little
_LIMITED = f"in a cgroup that is limited to {MEMORY} MiB"


def _read(node: str, path: str) -> str:
    return remote.run(node, "cat", f"/sys/fs/cgroup{path}").stdout.strip()


def test_every_process_of_a_step_is_in_the_step_that_slurm_has_for_the_agents(cluster: Allocation) -> None:
    """So Slurm ends and counts them. What the step is made of on its node is there, too."""
    done = cluster.nodectl("run", "-l", "-N3", "-n6", "--mem=100M", "cat", "/proc/self/cgroup")
    assert in_order(done.stdout) == [f"0::{cluster.place(node)}" for node in _TASKS], done
    assert done.stderr.count("this machine does not limit memory of jobs") == 1, (
        done
    )  # it is told with a job's first step
    for node in NODES[1:]:  # on the first one salloc runs, too
        service.wait_until(partial(_are_all_inside, cluster, node), "all that is theirs is inside")


def _are_all_inside(cluster: Allocation, node: str) -> bool:
    """Whether the user has processes there, all of them in the cgroup."""
    theirs = remote.run(node, "ps", "-u", USER, "-o", "pid=").stdout.split()
    return bool(theirs) and {*theirs} == {*_read(node, f"{cluster.place(node)}/cgroup.procs").split()}


def test_slurm_delegates_a_directory_and_no_process(cluster: Allocation) -> None:
    """Slurm 22.05 gives the user the directory of the task's cgroup and none of the files in it: cgroups can be made
    there, and stay empty. So nodectl makes none.
    """
    script = (
        'here=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); stat -c %U "$here" "$here/cgroup.procs"; '
        'mkdir "$here/own"; (echo 0 >"$here/own/cgroup.procs") 2>/dev/null || echo refused; rmdir "$here/own"'
    )
    done = cluster.nodectl("run", "-N1", "-n1", "sh", "-c", script)
    assert done.stdout.split() == [USER, "root", "refused"], done
    for node in NODES:
        place = f"/sys/fs/cgroup{cluster.place(node)}"
        assert not remote.run(node, "find", place, "-mindepth", "1", "-type", "d").stdout


def test_doctor_names_slurms_cgroup_and_its_limit(cluster: Allocation) -> None:
    told = cluster.nodectl("run", "-N1", "-n1", "nodectl", "--user", "doctor").stdout
    (line,) = (line for line in told.splitlines() if line.startswith("warn  cgroup"))
    assert line.endswith(f"; all share Slurm's {cluster.place('n1')} and its {MEMORY} MiB of memory"), told


def test_tasks_are_bound_within_the_cpus_that_slurm_gave(cluster: Allocation) -> None:
    """Each to one of them; the third CPU of each machine is nobody's."""
    said = cluster.run("-N3", "-n6", "--cpu-bind=cores", "grep", "Cpus_allowed_list", "/proc/self/status")
    bound = [line.split()[-1] for line in said]
    for number, node in enumerate(NODES):
        given = _read(node, f"{cluster.place(node)}/cpuset.cpus.effective")
        assert given in ("0-1", "1-2", "0,2")
        ends = given.replace("-", ",").split(",")
        assert sorted(bound[number * CPUS : (number + 1) * CPUS]) == ends


def test_more_memory_than_the_job_has_is_refused(cluster: Allocation) -> None:
    """nodectl gives out what the job has; that is all that it does about memory here."""
    done = cluster.nodectl("run", "-N3", "-n3", f"--mem={MEMORY + 1}M", "true")
    assert done.returncode != 0
    assert "Requested node configuration is not available" in done.stderr
    assert cluster.run("-N3", "-n3", f"--mem={MEMORY}M", "echo", "here") == ["here"] * 3


def test_a_step_that_exceeds_the_jobs_memory_is_killed_and_told_why(cluster: Allocation) -> None:
    """By Slurm's limit. Agents and other nodes go on."""
    assert _read("n1", f"{cluster.place('n1').rpartition('/')[0]}/memory.max") == str(MEMORY << 20)
    done = cluster.nodectl("run", "-N1", "-n1", "python3", "-S", "-c", _EATER)
    assert done.returncode != 0
    assert "out of memory: task 0: killed process " in done.stderr, done
    assert _LIMITED in done.stderr
    shell = cluster.nodectl("run", "-N1", "-n1", "sh", "-c", f'python3 -S -c "{_EATER}"; exit $?')
    assert f"out of memory: task 0: killed one of its processes {_LIMITED}" in shell.stderr, shell
    told = json.loads(cluster.nodectl("acct", "--json").stdout)
    assert "OUT_OF_MEMORY" in json.dumps(told), told
    assert cluster.run("-N3", "-n3", "echo", "here") == ["here"] * 3


def test_a_steps_time_limit_is_nodectls(cluster: Allocation) -> None:
    done = cluster.nodectl("run", "-N3", "-n6", "--time=0:02", "sleep", "600")
    assert done.returncode != 0
    assert "DUE TO TIME LIMIT" in done.stderr


def test_scancel_leaves_nothing_on_any_node(cluster: Allocation) -> None:
    """No process, no cgroup, no file of the user's in what each machine has for itself. What tasks have begun has left
    their sessions, and their parents. The last one: it ends the allocation.
    """
    step = cluster.popen("run", "-N3", "-n6", "sh", "-c", "(setsid sleep 600 &); sleep 600")
    service.wait_until(lambda: all(_sleeps(node) == 2 * CPUS for node in NODES), "all tasks sleep")
    remote.run("n1", "scancel", cluster.job)
    step.communicate()
    assert step.returncode != 0
    cluster.end()
    assert_clean()


def _sleeps(node: str) -> int:
    return len(remote.run(node, "pgrep", "-u", USER, "-x", "sleep").stdout.split())
