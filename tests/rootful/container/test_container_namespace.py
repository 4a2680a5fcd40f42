"""job_container/namespace on this machine: what a job has to itself, who joins it, and that nothing is left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from rootful.contained import DIRS, Contained, contained
from rootful.node import NOBODY, PATIENCE, wait_until


@pytest.fixture(scope="module")
def shared() -> Iterator[Contained]:
    with contained() as found:
        yield found


def test_a_job_sees_empty_directories_of_its_own_and_leaves_nothing_outside(shared: Contained) -> None:
    name = shared.node.dir.name
    script = "; ".join(f"ls -A {path} | wc -l; touch {path}/{name}; ls {path}" for path in DIRS)
    assert shared.out("sh", "-c", script).split() == ["0", name] * 3
    assert not any(os.path.exists(f"{path}/{name}") for path in DIRS)


def test_tasks_of_one_job_share_them_and_other_jobs_do_not(shared: Contained) -> None:
    script = "echo x > /tmp/$SLURM_PROCID; until [ $(ls /tmp | wc -l) = 3 ]; do sleep 0.05; done; ls /tmp"
    waiting = shared.node.popen("-n3", "sh", "-c", script, user=NOBODY)
    assert "0" not in shared.out("ls", "/tmp").split()
    said, _ = waiting.communicate(timeout=PATIENCE)
    assert said.split() == ["0", "1", "2"] * 3


def test_the_directories_are_the_users_and_a_root_process_joins_by_the_held_file(shared: Contained) -> None:
    script = "umask 077; echo secret > /tmp/part; mv /tmp/part /tmp/mine; exec sleep 300"
    running_job = shared.node.popen("sh", "-c", script, user=NOBODY)
    try:
        wait_until(lambda: any(shared.base.glob("*/dirs/_tmp/mine")), "the job has written")
        (place,) = [path for path in shared.base.iterdir() if (path / "dirs/_tmp/mine").exists()]
        assert place.stat().st_mode & 0o777 == 0o700
        assert place.stat().st_uid == 0
        inside = (place / "dirs/_tmp").stat()
        assert (inside.st_uid, inside.st_gid, inside.st_mode & 0o777) == (NOBODY.pw_uid, NOBODY.pw_gid, 0o700)
        words = ["nsenter", f"--mount={place}/ns/mnt", "cat", "/tmp/mine"]
        assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "secret\n"
    finally:
        running_job.terminate()
        running_job.communicate(timeout=PATIENCE)


def test_no_descriptor_but_the_three_reaches_the_program(shared: Contained) -> None:
    assert shared.out("ls", "/proc/self/fd").split() == ["0", "1", "2", "3"]  # ls has the directory open


def test_task_prolog_and_epilog_run_inside(shared: Contained) -> None:
    node = shared.node
    proof = node.scratch / "proof"
    for name, words in (("before", "echo p > /tmp/p"), ("after", f"cat /tmp/p /tmp/t > {proof}")):
        (node.dir / name).write_text(f"#!/bin/sh\n{words}\n", encoding="utf-8")
        (node.dir / name).chmod(0o755)
    shared.out(f"--task-prolog={node.dir}/before", f"--task-epilog={node.dir}/after", "sh", "-c", "echo t > /tmp/t")
    assert proof.read_text(encoding="utf-8") == "p\nt\n"
    proof.unlink()


def test_files_of_streams_are_opened_inside_whoever_opens_them(shared: Contained) -> None:
    outside = f"/tmp/{shared.node.dir.name}"
    with open(outside, "w", encoding="utf-8") as file:
        file.write("host")
    os.chown(outside, NOBODY.pw_uid, -1)
    try:
        for words in (["-n1"], ["-n2"], ["-n2", "-l"]):
            shared.out(*words, "-o", outside, "sh", "-c", "echo inside")
            with open(outside, encoding="utf-8") as file:
                assert file.read() == "host"
    finally:
        os.unlink(outside)


def test_options_of_the_directories_hold() -> None:
    dirs = ["/tmp:noexec,nosuid,nodev", "/var/tmp:ro", "/dev/shm:size=64k", "/mnt:tmpfs,size=1m,noexec"]
    script = (
        "cp /bin/true /tmp/true; /tmp/true; echo $?; touch /var/tmp/x 2>&1; "
        "head -c 100000 /dev/zero 2>&1 > /dev/shm/x; stat -c %s /dev/shm/x; "
        "python3 -c 'import os, sys; [print(path, os.statvfs(path).f_flag) for path in sys.argv[1:]]' $DIRS"
    )
    with contained(container_dirs=dirs) as found:
        done = found.node.run("sh", "-c", script, user=NOBODY, env={"DIRS": "/tmp /var/tmp /dev/shm /mnt"})
        out = done.stdout
    assert out.startswith("126\n"), (out, done.stderr)
    assert "Read-only file system" in out
    assert "\n65536\n" in out
    flags = {path: int(value) for path, value in (line.split() for line in out.splitlines() if line.startswith("/"))}
    for path, wanted in (
        ("/tmp", os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC),
        ("/var/tmp", os.ST_RDONLY),
        ("/dev/shm", os.ST_NOSUID | os.ST_NODEV),
        ("/mnt", os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC),
    ):
        assert flags[path] & wanted == wanted, path


@pytest.mark.parametrize("shared_option", [False, True])
def test_mounts_of_the_machine_appear_inside_only_when_shared_and_never_outside(shared_option: bool) -> None:
    with contained(container_shared=shared_option) as found:
        place = found.node.dir / "later"
        place.mkdir()
        # A mount of the test's own whose mounts travel, as those of a systemd machine do.
        subprocess.run(["mount", "--bind", str(place), str(place)], check=True)
        subprocess.run(["mount", "--make-shared", str(place)], check=True)
        inner = place / "inner"
        try:
            inner.mkdir()
            script = f"echo ready; read x; ls {inner}"
            job = found.node.popen("sh", "-c", script, user=NOBODY, stdin=subprocess.PIPE)
            assert job.stdout is not None
            assert job.stdout.readline() == "ready\n"
            subprocess.run(["mount", "-t", "tmpfs", "none", str(inner)], check=True)
            (inner / "late").touch()
            out, err = job.communicate("go\n", timeout=PATIENCE)
            assert (out.strip() == "late") == shared_option, err
        finally:
            subprocess.run(["umount", "-R", str(place)], check=True)
        found.assert_gone()


def test_thirty_jobs_at_five_a_time_leave_nothing() -> None:
    with contained() as found:
        jobs: list[subprocess.Popen[str]] = []
        for _ in range(30):
            if len(jobs) == 5:
                assert jobs.pop(0).wait(PATIENCE) == 0
            script = "mkdir -p /tmp/a/b; echo x > /tmp/a/b/c; [ $(ls /tmp | wc -l) = 1 ]"
            jobs.append(found.node.popen("-n2", "sh", "-c", script, user=NOBODY))
        assert all(job.wait(PATIENCE) == 0 for job in jobs)


def test_steps_of_a_node_without_containers_share_tmp() -> None:
    with contained(job_container_type="job_container/none") as found:
        outside = f"/tmp/{found.node.dir.name}"
        found.out("touch", outside)
        assert os.path.exists(outside)
        os.unlink(outside)
        assert found.left() == []
