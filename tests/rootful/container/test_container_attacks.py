"""Who can write near a container, or kills who makes it: links, names, races, kills at every moment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rootful.contained import Contained, contained
from rootful.node import NOBODY, OTHER, PATIENCE, running, wait_for_answer, wait_until


def refused(found: Contained, *words: str) -> str:
    """The one line with which a step is refused."""
    done = found.node.run(*words, "true", user=NOBODY)
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("evil", ["link", "others may write", "somebody else's", "link above"])
def test_base_path_that_others_could_have_made_is_refused(evil: str) -> None:
    with contained() as found:
        base, target = found.base, found.node.scratch / "target"
        target.mkdir()
        if evil == "link":
            found.node.configure(container_base_path=str(found.node.scratch / "link"))
            (found.node.scratch / "link").symlink_to("/etc")
            os.lchown(found.node.scratch / "link", NOBODY.pw_uid, -1)
        elif evil == "others may write":
            base.mkdir()
            base.chmod(0o777)
        elif evil == "somebody else's":
            base.mkdir()
            os.chown(base, NOBODY.pw_uid, -1)
        else:
            found.node.configure(container_base_path=str(found.node.scratch / "link/containers"))
            (found.node.scratch / "link").symlink_to(target)
        found.node.restart()
        line = refused(found)
        assert "container_p_create" in line
        assert "not trusted" in line
        assert not list(target.iterdir())
        if base.exists():
            base.rmdir()
        found.node.configure(container_base_path=str(base))


def test_private_directory_reached_by_a_users_link_is_refused() -> None:
    with contained() as found:
        mine = found.node.scratch / "mine"
        mine.mkdir()
        os.chown(mine, NOBODY.pw_uid, -1)
        (mine / "data").mkdir()
        found.node.configure(container_dirs=[str(mine / "data")])
        found.node.restart()
        assert found.node.run("true", user=NOBODY).returncode == 0
        (mine / "data").rmdir()
        (mine / "data").symlink_to("/etc")
        line = refused(found)
        assert "link on the way" in line
        assert str(mine / "data")[1:] in line
        (mine / "data").unlink()
        assert "No such file or directory" in refused(found)


def test_private_directory_whose_parent_is_swapped_all_the_time_never_covers_another() -> None:
    with contained() as found:
        scratch = found.node.scratch
        (scratch / "real" / "data").mkdir(parents=True)
        (scratch / "evil").symlink_to("/usr")  # /usr/data does not exist, /usr/bin does
        (scratch / "real" / "bin").mkdir()
        found.node.configure(container_dirs=[str(scratch / "dir/bin")])
        found.node.restart()
        swap = (
            f"cd {scratch}; while :; do ln -sfn real dir.new; mv -T dir.new dir 2>/dev/null; "
            "rm -rf dir; mkdir -p dir/bin; rm -rf dir; ln -sfn evil dir; rm -f dir; done"
        )
        os.chown(scratch, NOBODY.pw_uid, -1)
        attacker = subprocess.Popen(["sh", "-c", swap], user=NOBODY.pw_uid, stderr=subprocess.DEVNULL)
        try:
            for _ in range(25):
                done = found.node.run("sh", "-c", "[ -x /usr/bin/env ]", user=OTHER, cwd="/")
                if done.returncode:
                    (line,) = done.stderr.splitlines()
                    assert "container_p_create" in line
        finally:
            attacker.kill()
            attacker.wait()


def test_names_with_newlines_and_links_in_a_private_directory_are_removed_and_not_followed() -> None:
    with contained() as found:
        victim = found.node.scratch / "victim"
        victim.mkdir(mode=0o777)
        victim.chmod(0o777)
        (victim / "file").touch()
        script = (
            f"cd /tmp; ln -s {victim} link; ln -s / root; mkdir 'a\nb' -- -rf '$(reboot)'; touch 'x\ny' '..z' '*'; "
            "i=0; while [ $i -lt 300 ]; do mkdir d 2>/dev/null; cd d; i=$((i+1)); done; touch deep; "
            "mkfifo /tmp/fifo; chmod 0 /tmp/d"
        )
        assert found.node.run("sh", "-c", script, user=NOBODY).returncode == 0
        found.assert_gone()
        assert (victim / "file").exists()


def test_user_cannot_leave_or_unmount() -> None:
    with contained() as found:
        script = (
            "umount /tmp; umount -l /dev/shm; mount -t tmpfs none /mnt; nsenter -t 1 -m true; "
            "ls /proc/1/root/; cat /proc/$PPID/environ; for f in /proc/$PPID/fd/*; do readlink $f; done; true"
        )
        done = found.node.run("sh", "-c", script, user=NOBODY)
        assert done.returncode == 0
        refusals = ("denied", "not permitted", "must be superuser", "only root", "not mounted")
        said = [line for line in done.stderr.splitlines() if "dmesg" not in line]
        assert len(said) >= 6
        assert all(any(word in line.lower() for word in refusals) for line in said), "\n".join(said)
        assert "mnt:[" not in done.stdout


SCRIPT = "#!/bin/sh\n{{ echo $0; env; }} > {out}\n{then}\n"


def test_scripts_of_the_site_have_the_environment_of_the_reference() -> None:
    with contained() as found:
        scripts = {}
        for name in ("init_script", "clone_ns_script", "clone_ns_epilog"):
            path = found.node.dir / name
            then = "nsenter --mount=$SLURM_NS touch /tmp/was_here" if name == "clone_ns_script" else ""
            path.write_text(SCRIPT.format(out=found.node.dir / f"{name}.out", then=then), encoding="utf-8")
            path.chmod(0o755)
            scripts[f"container_{name}"] = str(path)
        found.node.configure(**scripts)
        found.node.restart()
        assert found.out("ls", "/tmp").split() == ["was_here"]
        job = found.node.last_job()
        found.assert_gone()
        for name in ("init_script", "clone_ns_script", "clone_ns_epilog"):
            text = (found.node.dir / f"{name}.out").read_text(encoding="utf-8")
            said = dict(line.partition("=")[::2] for line in text.splitlines()[1:])
            assert said["SLURM_JOB_ID"] == str(job)
            assert said["SLURM_JOB_MOUNTPOINT_SRC"] == f"{found.base}/{job}/dirs"
            assert (said["SLURM_JOB_UID"], said["SLURM_JOB_GID"]) == (str(NOBODY.pw_uid), str(NOBODY.pw_gid))
            assert (said["SLURM_JOB_USER"], said["SLURM_JOB_WORK_DIR"]) == ("nobody", str(found.node.scratch))
            assert said["SLURMD_NODENAME"]
            assert (said.get("SLURM_NS") == f"{found.base}/{job}/ns/mnt") == (name != "init_script")


@pytest.mark.parametrize("name", ["init_script", "clone_ns_script"])
@pytest.mark.parametrize("fault", ["fails", "hangs", "is writable by others", "is missing"])
def test_script_that_fails_undoes_the_container_and_is_one_line(name: str, fault: str) -> None:
    limit = {"container_script_timeout": 1} if fault == "hangs" else {}
    with contained(**limit) as found:
        path = found.node.dir / name
        body = "sleep 100" if fault == "hangs" else "mkdir -p $SLURM_JOB_MOUNTPOINT_SRC; echo went wrong >&2; exit 3"
        if fault != "is missing":
            path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
            path.chmod(0o777 if fault == "is writable by others" else 0o755)
        found.node.configure(**{f"container_{name}": str(path)})
        found.node.restart()
        line = refused(found)
        words = {
            "fails": "exit status 3: went wrong",
            "hangs": "took longer than 1 s",
            "is writable by others": "not trusted",
            "is missing": "No such file or directory",
        }[fault]
        assert "plugin job_container/namespace (job container by namespaces): container_p_create: " in line
        assert f": {name.replace('_', ' ')} {path}: {words}" in line
        assert found.left() == []  # undone by who made it, not by a later removal


def test_what_an_init_script_mounts_is_gone_at_the_end() -> None:
    with contained() as found:
        path = found.node.dir / "init"
        path.write_text("#!/bin/sh\nmount -t tmpfs -o size=1m none $SLURM_JOB_MOUNTPOINT_SRC\n", encoding="utf-8")
        path.chmod(0o755)
        found.node.configure(container_init_script=str(path))
        found.node.restart()
        assert "tmpfs" in found.out("stat", "-f", "-c", "%T", "/tmp")


@pytest.mark.parametrize("victim", ["daemon", "forkserver", "stepd"])
def test_kills_while_jobs_run_leave_nothing(victim: str) -> None:
    with contained() as found:
        script = "echo x > /tmp/x; echo ready; read line; cat /tmp/x"
        job = found.node.popen("sh", "-c", script, user=NOBODY, stdin=subprocess.PIPE)
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        wait_for_answer(job)
        if victim == "daemon":
            found.node.restart(signal.SIGKILL)
        else:
            name = {"forkserver": "nodectl-fork", "stepd": "stepd "}[victim]
            os.kill(pid_of(found, name), signal.SIGKILL)
        out, err = job.communicate("go\n", timeout=PATIENCE)
        assert victim == "stepd" or (job.returncode, out) == (0, "x\n"), err
        found.assert_gone()
        assert found.node.run("true", user=NOBODY).returncode == 0


def pid_of(found: Contained, name: str) -> int:
    """The process of the node with this name that was started last: a child of its daemon, or a step runner of one of
    its steps. Numbers of processes begin anew, so they do not say which is newer.
    """
    daemon = found.node.daemon
    assert daemon is not None
    ours = {pid for pid, _ in found.node.processes()}
    started = []
    for pid in (int(pid) for pid in os.listdir("/proc") if pid.isdecimal()):
        try:
            comm = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8")
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        except OSError:
            continue
        if comm.startswith(name) and (int(status[1]) == daemon.pid or pid in ours):
            started.append((int(status[19]), pid))  # proc(5): starttime
    if started:
        return max(started)[1]
    raise AssertionError(f"no {name}")


def test_step_runners_killed_at_random_moments_leave_nothing() -> None:
    with contained() as found:
        for turn in range(20):
            job = found.node.popen("sleep", "0.02", user=NOBODY)
            while job.poll() is None and not any(name.startswith("stepd") for _, name in found.node.processes()):
                pass
            time.sleep(turn * 0.0004)
            for pid, name in found.node.processes():
                if name.startswith("stepd"):
                    with contextlib.suppress(ProcessLookupError):  # its step is short
                        os.kill(pid, signal.SIGKILL)
            job.communicate(timeout=PATIENCE)


def test_a_new_daemon_removes_what_nobody_owns_and_leaves_what_somebody_does() -> None:
    with contained() as found:
        assert found.node.run("true", user=NOBODY).returncode == 0
        found.assert_gone()
        dead, others, gone = found.base / "4711", found.base / "4712", found.base / ".gone.1.ab"
        for path in (dead, others, gone):
            (path / "dirs/_tmp").mkdir(parents=True)
            (path / "dirs/_tmp/file").touch()
        (dead / "owner").write_text("/nonexistent/4711.0.json", encoding="utf-8")
        (others / "owner").write_text(str(found.node.config_path), encoding="utf-8")
        subprocess.run(["mount", "--bind", str(dead), str(dead)], check=True)
        found.node.restart()
        wait_until(lambda: found.left() == [str(others)], f"removed: {found.left()}")
        (others / "owner").unlink()
        found.node.restart()


def test_a_daemon_that_begins_with_many_containers_to_delete_serves_and_leaves_nothing() -> None:
    with contained() as found:
        for begun in (1, 5, 10):  # the others are being made
            script = ("sh", "-c", "echo x > /tmp/x; read go")
            jobs = [found.node.popen(*script, user=NOBODY, stdin=subprocess.PIPE) for _ in range(10)]
            wait_until(lambda begun=begun: len(found.left()) >= begun, "jobs have begun")
            found.node.stop(signal.SIGKILL)
            for job in jobs:
                job.communicate("\n", timeout=PATIENCE)
            assert len(found.left()) >= begun
            found.node.start()
            assert found.node.run("true", user=NOBODY).returncode == 0
            found.assert_gone()


def test_two_nodes_at_one_place_do_not_touch_each_others_jobs() -> None:
    with (
        contained() as found,
        running(job_container_type="job_container/namespace", container_base_path=str(found.base)) as other,
    ):  # its jobs have the same numbers
        script = "echo x > /tmp/x; echo ready; read go; cat /tmp/x"
        job = found.node.popen("--container-ns=pid", "sh", "-c", script, user=NOBODY, stdin=subprocess.PIPE)
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        done = other.run("--container-ns=pid", "true", user=NOBODY)
        assert done.returncode == 1
        assert "belongs to another node's job: give each node a container_base_path of its own" in done.stderr
        record = other.call("Wait", job=1, step=0, epilog=True)["record"]
        assert "container" not in record  # type: ignore[operator]
        out, err = job.communicate("\n", timeout=PATIENCE)
        assert (job.returncode, out) == (0, "x\n"), err
        assert other.run("true", user=NOBODY).returncode == 0


def test_what_a_dead_job_of_the_same_number_has_left_is_removed_before() -> None:
    with contained() as found, subprocess.Popen(["sleep", "60"]) as first:
        assert found.node.run("true", user=NOBODY).returncode == 0
        found.assert_gone()
        started = Path(f"/proc/{first.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        for job, since in ((2, "00000000-0000-0000-0000-000000000000"), (3, boot)):
            assert first.poll() is None  # of another boot it was another process
            (found.base / f"{job}/dirs/_tmp").mkdir(parents=True)
            (found.base / f"{job}/first").write_text(f"{first.pid} {started}@{since}", encoding="ascii")
            assert found.node.run("true", user=NOBODY).returncode == 0
            assert found.node.last_job() == job
            found.assert_gone()
        assert first.wait(PATIENCE) == -signal.SIGKILL
