"""Another job_container_type, or another place, at the next start of the service: every container has been made by one
plugin, which serves its job to the end and removes it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from rootful.contained import Contained, contained, firsts
from rootful.container.test_container_faults import KINDS, Sabotaged
from rootful.container.test_container_reload import reload
from rootful.node import NOBODY, PATIENCE, Node, wait_for_answer, wait_until

NONE = "job_container/none"
NAMESPACE = "job_container/namespace"
WORDS = "--container-ns=pid,ipc,net,user"
WITH_A_FILE, WITHOUT = "echo x > /tmp/x; echo ready; read go; cat /tmp/x", "echo ready; read go; echo x"


def begun(node: Node, *words: str, script: str = WITH_A_FILE) -> tuple[subprocess.Popen[str], str]:
    """A job that waits for a line, and its number."""
    job = node.popen(*words, "sh", "-c", script, user=NOBODY, stdin=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    wait_for_answer(job)
    return job, str(node.last_job())


def end(job: subprocess.Popen[str]) -> None:
    out, err = job.communicate("\n", timeout=PATIENCE)
    assert (job.returncode, out) == (0, "x\n"), err


def change(found: Contained, number: int = signal.SIGKILL, **keys: object) -> None:
    found.node.stop(number)
    found.node.configure(**keys)
    found.node.start()


def assert_nothing_left(found: Contained) -> None:
    found.assert_gone()
    found.node.assert_clean()
    assert not firsts(found.node)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_running_job_keeps_its_container_to_the_end(number: int) -> None:
    with contained() as found:
        node = found.node
        job, name = begun(node, WORDS)
        change(found, number, job_container_type=NONE)
        assert node.nodectl("enter", name, "cat", "/tmp/x", user=NOBODY).stdout == "x\n"
        assert found.out(f"--jobid={name}", "cat", "/tmp/x") == "x\n"
        assert found.out("stat", "-c", "%i", "/tmp").strip() == str(os.stat("/tmp").st_ino)
        end(job)
        assert_nothing_left(found)


def test_a_job_that_began_without_a_container_goes_on_without() -> None:
    with contained(job_container_type=NONE, container_dirs=["/dev/shm"]) as found:
        job, name = begun(found.node, script=WITHOUT)
        change(found, job_container_type=NAMESPACE)
        shown = found.node.nodectl("enter", name, "readlink", "/proc/self/ns/mnt", user=NOBODY)
        assert shown.stdout.strip() == os.readlink("/proc/self/ns/mnt"), shown.stderr
        further = found.out(f"--jobid={name}", "readlink", "/proc/self/ns/mnt").strip()
        assert further == os.readlink("/proc/self/ns/mnt")
        assert found.out("readlink", "/proc/self/ns/mnt").strip() != further
        end(job)


def test_a_job_that_ended_while_no_service_ran_is_deleted() -> None:
    with contained() as found:
        job, _ = begun(found.node, WORDS)
        assert found.node.daemon is not None
        found.node.stop(signal.SIGKILL)
        assert firsts(found.node)
        end(job)
        found.node.configure(job_container_type=NONE)
        found.node.start()
        assert_nothing_left(found)


def test_daemons_killed_around_a_jobs_end_whose_successor_has_another_type_leave_nothing() -> None:
    with contained() as found:
        for turn in range(8):
            change(found, signal.SIGTERM, job_container_type=NAMESPACE)
            job = found.node.popen(WORDS, "sleep", "0.1", user=NOBODY)
            wait_until(lambda job=job: firsts(found.node) or job.poll() is not None, "there is a container, or was one")
            time.sleep(0.06 + turn * 0.01)
            change(found, job_container_type=NONE)
            job.communicate(timeout=PATIENCE)
            assert_nothing_left(found)


@pytest.mark.parametrize("what", ["raise", "kill"])
def test_what_a_failing_deletion_leaves_a_daemon_with_another_type_and_place_removes(what: str) -> None:
    with contained() as found:
        sabotaged = Sabotaged(found)
        for number in range(1, sabotaged.calls("delete", KINDS[0]) + 1, 3):
            sabotaged.order("delete", f"{number} {what}")
            assert found.node.run(KINDS[0], "true", user=NOBODY).returncode == 0
            record = found.node.call("Wait", job=found.node.last_job(), step=0, epilog=True)["record"]
            assert record["state"] == "COMPLETED"  # type: ignore[index]
            sabotaged.order("")
            change(found, job_container_type=NONE, container_base_path=str(found.node.dir / "elsewhere"))
            sabotaged.assert_nothing_left()
            change(found, job_container_type="job_container/saboteur", container_base_path=str(found.base))


def test_a_place_that_is_left_by_a_reload_is_swept_until_nothing_is_in_it() -> None:
    with contained() as found:
        node = found.node
        job, _ = begun(node)
        node.configure(container_base_path=str(node.dir / "elsewhere"))
        reload(node)
        dead = found.base / "4711"  # which an earlier daemon was killed deleting
        (dead / "dirs/_tmp").mkdir(parents=True)
        end(job)
        wait_until(lambda: found.places() == [dead], "the job's container is removed")
        change(found, job_container_type=NONE)
        assert_nothing_left(found)
        found.assert_forgotten()
        (dead / "dirs/_tmp").mkdir(parents=True)
        change(found, signal.SIGTERM)
        assert node.run("true", user=NOBODY).returncode == 0
        assert dead.exists()  # whoever made that, it was none of ours
        (dead / "dirs/_tmp").rmdir()
        (dead / "dirs").rmdir()
        dead.rmdir()


def test_a_step_that_dies_in_its_jobs_plugin_names_that_one() -> None:
    with contained() as found:
        sabotaged = Sabotaged(found)
        job, name = begun(found.node, WORDS)
        change(found, job_container_type=NONE)
        sabotaged.order("add_cont", "1 kill")
        died = found.node.run(f"--jobid={name}", "true", user=NOBODY)
        assert "died in container_p_add_cont of plugin job_container/saboteur\n" in died.stderr
        sabotaged.order("")
        end(job)
        sabotaged.assert_nothing_left()


def test_a_plugin_that_is_there_no_more_is_told_of_and_its_container_removed_when_it_is_back() -> None:
    with contained() as found:
        sabotaged = Sabotaged(found)
        job, name = begun(found.node, WORDS)
        path = found.node.plugins / "job_container/saboteur.py"
        path.rename(found.node.dir / "kept.py")
        change(found, job_container_type=NONE)
        why = "job_container/saboteur: no file job_container/saboteur.py or job_container/saboteur.so in "
        for words in (("run", f"--jobid={name}", "true"), ("enter", name, "true")):
            done = found.node.nodectl(*words, user=NOBODY)
            assert done.returncode == 1
            assert why in done.stderr
        end(job)
        record = found.node.call("Wait", job=int(name), step=0, epilog=True)["record"]
        assert why in str(record["container"])  # type: ignore[index]
        assert found.left()
        (found.node.dir / "kept.py").rename(path)
        change(found, signal.SIGTERM)
        sabotaged.assert_nothing_left()
