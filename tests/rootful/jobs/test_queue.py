"""Batch jobs through the real daemon: they start when there is room, run as their user, and are what they were told."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rootful.fuse import unanswered_file
from rootful.node import NOBODY, OTHER, Node, wait_until
from rootful.queued import (
    ENDED,
    all_cpus,
    emptied,
    queue,
    queue_running,
    refused,
    show,
    state,
    submit,
    wait_for,
    wait_for_file,
)


@pytest.fixture(scope="module")
def module_node() -> Iterator[Node]:
    with queue_running(max_script_size=100_000, max_submit_jobs_per_user=50) as node:
        yield node


@pytest.fixture
def node(module_node: Node) -> Iterator[Node]:
    yield module_node
    emptied(module_node)


def test_batch_job_runs_as_its_user_with_its_own_copy_of_the_script(node: Node) -> None:
    job = submit(node, "id -un; echo $0; echo $SLURM_JOB_ID")
    wait_for(node, job, "COMPLETED")
    user, path, number = wait_for_file(node.scratch / f"slurm-{job}.out").splitlines()
    assert user == NOBODY.pw_name
    assert path == f"{node.values['state_dir']}/spool/job{job}/slurm_script"
    assert number == str(job)
    wait_until(lambda: not os.path.exists(path), "the copy goes with its job")


def test_script_cannot_grow_in_the_directory_of_the_history(node: Node) -> None:
    """Its user executes it, root alone changes it, and no other user sees it."""
    tries = ('echo x >>"$0"', 'chmod 777 "$0"', 'truncate -s 1G "$0"', 'mv "$0" "$0.old"', 'touch "${0%/*}/more"')
    shown = [f"({one}) 2>/dev/null; echo $?" for one in tries]
    os.mkfifo(node.scratch / "go")
    (node.scratch / "go").chmod(0o666)
    job = submit(node, "\n".join([*shown, "echo $0", "read line <go", ": done"]))
    wait_for(node, job, "RUNNING")
    copy = Path(f"{node.values['state_dir']}/spool/job{job}/slurm_script")
    out = node.scratch / f"slurm-{job}.out"
    wait_until(lambda: out.exists() and str(copy) in out.read_text(), "it has tried all")
    for words in (["cat", str(copy)], [str(copy)]):
        other = subprocess.run(
            ["setpriv", f"--reuid={OTHER.pw_uid}", "--clear-groups", *words], capture_output=True, check=False
        )
        assert (other.returncode != 0, other.stdout) == (True, b""), other
    assert copy.read_text().endswith(": done\n")
    (node.scratch / "go").write_text("go\n")
    wait_for(node, job, "COMPLETED")
    *said, path = wait_for_file(out).splitlines()
    assert (path, len(said)) == (str(copy), len(tries))
    assert "0" not in said


def test_exit_status_of_the_script_is_the_jobs(node: Node) -> None:
    job = submit(node, "exit 7")
    record = wait_for(node, job, *ENDED)
    assert (record["state"], record["exit_code"]) == ("FAILED", 7)


def test_jobs_that_have_no_room_wait_and_start_in_turn(node: Node) -> None:
    cpus = all_cpus(node)
    first = submit(node, "read line < $HOLD", f"-n{cpus}", "--export=ALL,HOLD=" + fifo(node, "hold"))
    wait_for(node, first, "RUNNING")
    second = submit(node, "true", f"-n{cpus}")
    record = wait_for(node, second, "PENDING")
    wait_until(lambda: show(node, second)["reason"] in ("Resources", "Priority"), "it says why it waits")
    assert [row["job"] for row in queue(node)] == [first, second]
    (node.scratch / "hold").write_text("go\n")
    wait_for(node, second, "COMPLETED")
    assert state(node, first) == "COMPLETED"
    assert record["restarts"] == 0


def fifo(node: Node, name: str) -> str:
    """A pipe in the scratch directory that anybody may open."""
    path = node.scratch / name
    os.mkfifo(path)
    path.chmod(0o666)
    return str(path)


def test_jobs_beside_each_other_have_cpus_of_their_own(node: Node) -> None:
    cpus = all_cpus(node)
    if cpus < 2:
        pytest.skip("one CPU")
    script = f"grep Cpus_allowed_list /proc/self/status; read line < {fifo(node, 'hold')}"
    jobs = [submit(node, script) for _ in range(2)]
    for job in jobs:
        wait_for(node, job, "RUNNING")
    lists = [show(node, job)["cpu_list"] for job in jobs]
    assert len(set(lists)) == 2
    for job, cpu_list in zip(jobs, lists, strict=True):
        assert wait_for_file(node.scratch / f"slurm-{job}.out").split()[1] == cpu_list
    for job in jobs:
        node.call("Cancel", jobs=[str(job)])


def test_run_waits_for_its_turn_as_srun_does(node: Node) -> None:
    cpus = all_cpus(node)
    first = submit(node, f"read line < {fifo(node, 'hold')}", f"-n{cpus}")
    wait_for(node, first, "RUNNING")
    with node.popen(f"-n{cpus}", "echo", "ran", user=NOBODY) as client:
        assert client.stderr is not None
        assert "queued and waiting for resources" in client.stderr.readline()
        waiting = next(row for row in queue(node) if row["job"] != first)
        assert (waiting["state"], waiting["held_by"], waiting["user"]) == ("PENDING", "run", NOBODY.pw_name)
        (node.scratch / "hold").write_text("go\n")
        out, err = client.communicate(timeout=60)
    assert out == "ran\n" * cpus
    assert "has been allocated resources" in err
    assert client.returncode == 0
    wait_for(node, waiting["job"], "COMPLETED")


def test_run_whose_client_has_gone_waits_no_more(node: Node) -> None:
    cpus = all_cpus(node)
    first = submit(node, f"read line < {fifo(node, 'hold')}", f"-n{cpus}")
    wait_for(node, first, "RUNNING")
    with node.popen(f"-n{cpus}", "echo", "ran", user=NOBODY) as client:
        assert client.stderr is not None
        client.stderr.readline()
        client.terminate()
        client.wait()
    wait_until(lambda: [row["job"] for row in queue(node)] == [first], "its job has left the queue")


def test_cancelled_job_ends_whether_it_runs_or_waits(node: Node) -> None:
    cpus = all_cpus(node)
    running = submit(node, "exec sleep 600", f"-n{cpus}")
    wait_for(node, running, "RUNNING")
    waiting = submit(node, "true", f"-n{cpus}")
    answer: Any = node.call("Cancel", jobs=[str(waiting), str(running)])
    assert sorted(answer["cancelled"]) == sorted([str(running), str(waiting)])
    assert wait_for(node, running, *ENDED)["state"] == "CANCELLED"
    assert wait_for(node, waiting, *ENDED)["state"] == "CANCELLED"


def test_users_cancel_and_hold_their_own_jobs_alone(node: Node) -> None:
    job = submit(node, "exec sleep 600")
    done = node.nodectl("cancel", str(job), user=OTHER)
    assert done.returncode != 0
    assert "not yours" in done.stderr
    assert state(node, job) in ("PENDING", "RUNNING")
    assert node.nodectl("cancel", str(job), user=NOBODY).returncode == 0
    wait_for(node, job, "CANCELLED")


def test_what_others_run_is_their_own_affair(node: Node) -> None:
    job = submit(node, "exec sleep 600", "--job-name=secret", "--comment=hidden")
    wait_for(node, job, "RUNNING")
    listed = node.nodectl("queue", "--json", user=OTHER)
    assert listed.returncode == 0, listed.stderr
    assert "secret" not in listed.stdout
    (row,) = [row for row in json.loads(listed.stdout)["jobs"] if row["job"] == job]
    assert (row["user"], row["state"], row["cpus"]) == (NOBODY.pw_name, "RUNNING", 1)
    assert "secret" in node.nodectl("queue", "--json", user=NOBODY).stdout


def test_held_job_starts_when_it_is_released(node: Node) -> None:
    job = submit(node, "true", "--hold")
    record = wait_for(node, job, "PENDING")
    wait_until(lambda: show(node, job)["reason"] == "JobHeldUser", "it says that it is held")
    assert record["held"] == "user"
    assert node.nodectl("release", str(job), user=NOBODY).returncode == 0
    wait_for(node, job, "COMPLETED")


def test_what_an_admin_holds_its_user_does_not_release(node: Node) -> None:
    job = submit(node, "true", "--hold")
    assert node.nodectl("hold", str(job)).returncode == 0
    assert node.nodectl("release", str(job), user=NOBODY).returncode != 0
    assert state(node, job) == "PENDING"
    assert node.nodectl("release", str(job)).returncode == 0
    wait_for(node, job, "COMPLETED")


def test_requeued_job_runs_again_and_both_runs_are_on_record(node: Node) -> None:
    script = f"echo $SLURM_RESTART_COUNT >> runs; [ $(wc -l < runs) = 2 ] || read line < {fifo(node, 'hold')}"
    job = submit(node, script)
    wait_for_file(node.scratch / "runs")
    assert node.nodectl("requeue", str(job), user=NOBODY).returncode == 0
    record = wait_for(node, job, "COMPLETED")
    assert record["restarts"] == 1
    assert len((node.scratch / "runs").read_text().splitlines()) == 2


def test_requeued_job_waits_until_nothing_of_its_earlier_run_can_be_killed(node: Node, tmp_path: Path) -> None:
    job = submit(node, f"echo >> runs; read line < {fifo(node, 'hold')}")
    wait_for_file(node.scratch / "runs")
    place = Path(f"{node.base}/job_{job}/step_batch")
    with unanswered_file(tmp_path / "file", attributes=False):
        # The kernel lets it die only when the file system has answered: the cgroup of the first run stays.
        undying = subprocess.Popen(["stat", tmp_path / "file"], stdout=subprocess.DEVNULL)
        wchan = Path(f"/proc/{undying.pid}/wchan")
        wait_until(lambda: "request_wait" in wchan.read_text(), "it waits for the file system")
        (place / "stepd/cgroup.procs").write_text(str(undying.pid))
        assert node.nodectl("requeue", str(job), user=NOBODY).returncode == 0
        wait_until(lambda: show(node, job)["restarts"] == 1 and state(node, job) == "RUNNING", "its second run")
        assert (node.scratch / "runs").read_text() == "\n"
    undying.wait()
    (node.scratch / "hold").write_text("go\n")
    record = wait_for(node, job, "COMPLETED")
    assert record["restarts"] == 1
    assert (node.scratch / "runs").read_text() == "\n\n"


def test_array_tasks_are_jobs_of_their_own(node: Node) -> None:
    job = submit(node, "echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_JOB_ID > task$SLURM_ARRAY_TASK_ID", "--array=1-4%2")
    for task in range(1, 5):
        assert wait_for_file(node.scratch / f"task{task}") == f"{task} of {job}\n"
        wait_for(node, f"{job}_{task}", "COMPLETED")


def test_job_with_a_dependency_waits_for_the_other(node: Node) -> None:
    first = submit(node, f"read line < {fifo(node, 'hold')}; echo first >> order")
    second = submit(node, "echo second >> order", f"--dependency=afterok:{first}")
    wait_for(node, first, "RUNNING")
    wait_until(lambda: show(node, second)["reason"] == "Dependency", "it says what it waits for")
    (node.scratch / "hold").write_text("go\n")
    wait_for(node, second, "COMPLETED")
    assert (node.scratch / "order").read_text() == "first\nsecond\n"


def test_time_limit_ends_the_job(node: Node) -> None:
    job = submit(node, "exec sleep 600", "--time=0:01")
    assert wait_for(node, job, *ENDED)["state"] == "TIMEOUT"


def test_script_that_is_none_is_refused_with_one_line(node: Node) -> None:
    assert "#!" in refused(node, "echo hello\n")
    assert "max_script_size" in refused(node, "#!/bin/sh\n" + "#" * 200_000)
    request = {"argv": ["x"], "environment": {}, "cwd": "/", "ntasks": 1}
    reply: Any = node.call("Submit", request=request, job={}, script="#!/bin/sh\necho \0")
    assert "NUL" in reply["parameters"]["reason"]
    assert not queue(node)


def test_job_that_can_never_start_is_refused(node: Node) -> None:
    assert "--mem: 943718400 MiB are more than the " in refused(node, "#!/bin/sh\n", "--mem=900T")
    assert not queue(node)


def test_one_user_has_no_more_jobs_than_the_limit(node: Node) -> None:
    request = {"argv": ["x"], "environment": {}, "cwd": "/", "ntasks": 1, "uid": NOBODY.pw_name}
    answers: list[Any] = [
        node.call("Submit", request=request, job={"hold": True}, script="#!/bin/sh\n") for _ in range(55)
    ]
    assert [("job" in answer) for answer in answers] == [True] * 50 + [False] * 5
    assert "50" in answers[-1]["parameters"]["reason"]


def test_test_only_keeps_nothing(node: Node) -> None:
    request = {"argv": ["x"], "environment": {}, "cwd": "/", "ntasks": 1}
    answer: Any = node.call("TestOnly", request=request, job={})
    assert answer["cpus"] >= 1
    assert answer["nodes"]
    assert not queue(node)


def test_drained_node_starts_nothing_and_says_why(node: Node) -> None:
    assert node.nodectl("node", "drain", "new", "disks").returncode == 0
    try:
        job = submit(node, "true")
        answer: Any = node.call("Nodes")
        assert answer["nodes"][0]["reason"] == "new disks"
        assert state(node, job) == "PENDING"
        assert node.nodectl("node", "resume", user=NOBODY).returncode != 0
    finally:
        assert node.nodectl("node", "resume").returncode == 0
    wait_for(node, job, "COMPLETED")


def test_suspended_job_gives_its_cpus_to_others(node: Node) -> None:
    cpus = all_cpus(node)
    first = submit(node, f"read line < {fifo(node, 'hold')}", f"-n{cpus}")
    wait_for(node, first, "RUNNING")
    second = submit(node, "true", f"-n{cpus}")
    node.call("SuspendJob", job=str(first))
    wait_for(node, second, "COMPLETED")
    assert state(node, first) == "SUSPENDED"
    reply = node.call("ResumeJob", job=str(first))
    assert reply == {}
    (node.scratch / "hold").write_text("go\n")
    wait_for(node, first, "COMPLETED")


def test_new_time_limit_of_a_running_job_counts(node: Node) -> None:
    job = submit(node, "exec sleep 600", "--time=60")
    wait_for(node, job, "RUNNING")
    assert node.call("UpdateJob", job=str(job), time_limit=1) == {}
    assert wait_for(node, job, *ENDED)["state"] == "TIMEOUT"
