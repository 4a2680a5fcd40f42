"""GPUs in parts: jobs share a device by shards or by memory, up to all of it, and a whole device is one job's."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.launch.cgroup.constraints import cannot_decide_devices
from nodectl.model.device_part import device_of
from rootful.node import NOBODY, OTHER, Node, wait_until
from rootful.queued import emptied, queue_node, show, submit, wait_for, wait_for_file

LOOP = 7  # a major number that every kernel with loop devices has; opening one that is not used harms no one
PARTS = {"shard": "--gres=shard:1", "memory": "--gpu-mem=16G"}
HOLD = "echo $CUDA_VISIBLE_DEVICES >dev.$SLURM_JOB_ID; read line <{hold}"


@pytest.fixture(scope="module")
def module_node() -> Iterator[Node]:
    """Four devices of five shards and 80 GiB each."""
    node = queue_node(over_subscribe="force:32")
    try:
        for minor in range(4):
            path = node.dir / f"gpu{minor}"
            os.mknod(path, stat.S_IFBLK | 0o666, os.makedev(LOOP, minor))
            path.chmod(0o666)
        node.configure(gres=[f"Name=gpu File={node.dir}/gpu[0-3] Memory=80G", "Name=shard Count=20"])
        yield node.start()
    finally:
        node.close()


@pytest.fixture
def node(module_node: Node) -> Iterator[Node]:
    yield module_node
    module_node.configure(gpu_sharing="all")
    emptied(module_node)


def held(node: Node, job: int) -> list[str]:
    """The keys of the devices that a job holds."""
    return [key for key in str(show(node, job)["gres"]).split(",") if key]


def holder(node: Node, *options: str, **how: Any) -> int:
    """A job that runs until the fifo is opened."""
    hold = node.scratch / "hold"
    if not hold.exists():
        os.mkfifo(hold, 0o666)
        hold.chmod(0o666)
    return submit(node, HOLD.format(hold=hold), *options, **how)


def shown(node: Node) -> dict[str, Any]:
    answer: Any = node.call("Nodes")
    found: dict[str, Any] = answer["nodes"][0]
    return found


@pytest.mark.parametrize("way", PARTS)
def test_twenty_jobs_of_a_fifth_run_on_four_devices_and_the_next_one_waits_over_a_restart(node: Node, way: str) -> None:
    jobs = [holder(node, PARTS[way]) for _ in range(10)]
    node.restart()
    jobs += [holder(node, PARTS[way]) for _ in range(10)]
    for job in jobs:
        wait_for(node, job, "RUNNING")
        wait_for_file(node.scratch / f"dev.{job}")  # else a kill of the daemon may meet its launch
    keys = [held(node, job)[0] for job in jobs]
    assert Counter(map(device_of, keys)) == {f"gpu:{number}": 5 for number in range(4)}
    last, entire = holder(node, PARTS[way]), holder(node, "--gpus=1")
    node.restart(signal.SIGKILL)
    asked = "1 shard of a GPU" if way == "shard" else "16384 MiB of a GPU"
    why = json.loads(node.nodectl("explain", str(last), "--json").stdout)
    assert why["reason"] == "Resources"
    assert why["words"].endswith(f"{asked} asked for: no GPU that jobs may share has so much free")
    assert show(node, entire)["state"] == "PENDING"
    assert shown(node)["gres"] == [f"gpu:{number}/shard:5/mem:81920M" for number in range(4)]
    full = "/shard:5" if way == "shard" else ""
    assert shown(node)["gres_used"] == [f"gpu:{number}{full}/mem:81920M" for number in range(4)]
    node.call("Cancel", jobs=[str(jobs[0])])
    wait_for(node, last, "RUNNING")
    assert held(node, last) == [keys[0]]
    of_third = [job for job, key in zip(jobs, keys, strict=True) if device_of(key) == "gpu:3"]
    node.call("Cancel", jobs=list(map(str, of_third)))
    wait_for(node, entire, "RUNNING")
    assert held(node, entire) == ["gpu:3"]
    more = holder(node, PARTS[way])
    wait_until(lambda: show(node, more)["reason"] in ("Resources", "Priority"), "a whole device is not shared")


def test_the_queue_names_what_a_running_job_holds_of_a_device(node: Node) -> None:
    job = holder(node, "--gres=shard:2")
    wait_for(node, job, "RUNNING")
    where = node.nodectl("queue", "--noheader", "-o", "where", "-j", str(job)).stdout.strip()
    assert where.endswith("; gpu:0/shard:2/mem:32768M")


def test_a_job_sees_the_device_of_its_part_and_its_account_says_so(node: Node) -> None:
    script = "env | grep -E '^(CUDA_VISIBLE|SLURM_(JOB|STEP)_GPUS|SLURM_(SHARDS|GPUS)_ON|NODECTL_GPU|CUDA_MPS)' | sort"
    script += "; echo done"
    job = submit(node, script, "--gres=shard:2")
    wait_for(node, job, "COMPLETED")
    lines = wait_for_file(node.scratch / f"slurm-{job}.out").splitlines()
    assert lines[:-1] == [
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=32768M", "CUDA_VISIBLE_DEVICES=0", "NODECTL_GPU_MEM=32768",
        "SLURM_GPUS_ON_NODE=1", "SLURM_JOB_GPUS=0", "SLURM_SHARDS_ON_NODE=2", "SLURM_STEP_GPUS=0",
    ]  # fmt: skip
    row = node.nodectl("acct", "-j", str(job), "--format=alloctres", "-n", "-P", user=NOBODY).stdout.splitlines()[0]
    assert "gres/shard=2,gres/gpumem=32768M" in row


@pytest.mark.skipif(cannot_decide_devices() != "", reason="no program can decide about devices here")
def test_a_job_opens_the_device_that_it_shares_and_no_other(node: Node) -> None:
    script = f"for n in 0 1 2 3; do (: <{node.dir}/gpu$n) 2>/dev/null && echo $n; done; echo end"
    first = holder(node, "--gres=shard:4")
    wait_for(node, first, "RUNNING")
    opened = {}
    for option in ("--gres=shard:1", "--gpu-mem=40G", "--gpus=2", "-n1"):
        job = submit(node, script, option)
        wait_for(node, job, "COMPLETED")
        opened[option] = wait_for_file(node.scratch / f"slurm-{job}.out").split()[:-1]
    assert opened == {"--gres=shard:1": ["0"], "--gpu-mem=40G": ["1"], "--gpus=2": ["1", "2"], "-n1": []}


def test_steps_of_a_job_share_what_the_job_has_of_a_device(node: Node) -> None:
    step = shlex.join(node.command("run", "--exact"))
    steps = (
        f"{step} --gres=shard:1 sh -c 'echo $SLURM_SHARDS_ON_NODE $NODECTL_GPU_MEM'",
        f"{step} --gres=shard:3 true || echo refused",
        f"{step} --gpus=1 true || echo refused",
    )
    done = node.nodectl("alloc", "--gres=shard:2", "sh", "-c", "; ".join(steps), user=NOBODY)
    assert done.stdout.split("\n")[:3] == ["1 16384", "refused", "refused"], done.stderr
    assert "3 shards of a GPU asked for: a GPU has 2 shards" in done.stderr


def test_one_users_jobs_share_a_device_where_the_configuration_says_so(node: Node) -> None:
    node.configure(gpu_sharing="user")
    node.restart()
    mine, theirs, more = (holder(node, "--gres=shard:1", user=user) for user in (NOBODY, OTHER, NOBODY))
    for job in (mine, theirs, more):
        wait_for(node, job, "RUNNING")
    assert [device_of(held(node, job)[0]) for job in (mine, theirs, more)] == ["gpu:0", "gpu:1", "gpu:0"]
    node.call("Cancel", jobs=[str(mine), str(theirs), str(more)])
    wait_until(lambda: not shown(node)["gres_used"], "the devices are free")
    node.configure(gpu_sharing="all")
    node.restart()


def test_a_request_that_no_device_can_meet_is_refused_in_words(node: Node) -> None:
    def said(*options: str) -> str:
        done = node.nodectl("submit", *options, user=NOBODY, stdin="#!/bin/sh\ntrue\n")
        assert done.returncode != 0
        return done.stderr

    assert "6 shards of a GPU asked for: a GPU has 5 shards and 81920 MiB of memory at most" in said("--gres=shard:6")
    assert "102400 MiB of a GPU asked for: a GPU has 5 shards and 81920 MiB" in said("--gpu-mem=100G")
    assert "--gpus and its like give whole GPUs" in said("--gpus=1", "--gpu-mem=1G")


def test_a_suspended_job_keeps_its_part(node: Node) -> None:
    jobs = [holder(node, "--gres=shard:5") for _ in range(4)]
    for job in jobs:
        wait_for(node, job, "RUNNING")
    assert node.nodectl("suspend", str(jobs[0])).returncode == 0
    wait_for(node, jobs[0], "SUSPENDED")
    waits = holder(node, "--gres=shard:1")
    node.restart()
    wait_until(lambda: show(node, waits)["reason"] == "Resources", "the part is not free")
    assert node.nodectl("resume", str(jobs[0])).returncode == 0
    wait_for(node, jobs[0], "RUNNING")
    assert show(node, waits)["state"] == "PENDING"


def test_a_step_has_a_description_of_its_gpus_for_containers_that_goes_with_it(node: Node) -> None:
    job = holder(node, "--gres=shard:1", user=NOBODY)
    wait_for(node, job, "RUNNING")
    place = Path(node.values["runtime_dir"]) / f"cdi/{job}.batch"  # type: ignore[arg-type]
    (file,) = place.iterdir()
    read = ["python3", "-c", "import sys; print(open(sys.argv[1]).read())", str(file)]
    for user, may in ((NOBODY, True), (OTHER, False)):
        done = subprocess.run(
            read, user=user.pw_uid, group=user.pw_gid, extra_groups=[], capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) == may, done.stderr
    spec = json.loads(file.read_text())
    assert [one["name"] for one in spec["devices"]] == ["0", "all"]
    (edits,) = {json.dumps(one["containerEdits"]) for one in spec["devices"]}
    assert json.loads(edits) == {"deviceNodes": [{"path": f"{node.dir}/gpu0"}]}
    node.restart()
    assert file.exists()
    node.call("Cancel", jobs=[str(job)])
    wait_until(lambda: not place.exists(), "the description goes with the step")
    script = submit(node, "echo $NODECTL_CDI_DIR end", "-n1", "--export=ALL,NODECTL_CDI_DIR=/tmp")
    wait_for(node, script, "COMPLETED")
    assert wait_for_file(node.scratch / f"slurm-{script}.out").split() == ["end"]
