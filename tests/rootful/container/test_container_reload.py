"""SIGHUP: jobs that begin afterwards have the containers of the file as it is then, running ones keep theirs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from nodectl.launch.container import LOCK
from rootful.contained import contained
from rootful.node import NOBODY, PATIENCE, Node, wait_until


def reload(node: Node, *, told: str = "") -> None:
    """Has the configuration read, and waits until it was: with what the log says then, or by a key's new value."""
    assert node.daemon is not None
    node.daemon.send_signal(signal.SIGHUP)
    if told:
        wait_until(lambda: told in node.logged(), f"the log says {told}")
    else:
        base = node.values["container_base_path"]
        wait_until(lambda: node.call("Config")["config"]["container_base_path"] == base, "it was read")  # type: ignore[index]


def test_jobs_to_come_have_the_new_keys_and_a_running_one_keeps_its_own() -> None:
    with contained() as found:
        node = found.node
        script = "echo x > /tmp/x; echo ready; read go; cat /tmp/x; uname -n"
        job = node.popen("sh", "-c", script, user=NOBODY, stdin=subprocess.PIPE)
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        name = str(node.last_job())
        elsewhere = node.dir / "elsewhere"
        node.configure(container_base_path=str(elsewhere), container_namespaces=["uts"], container_dirs=["/var/tmp"])
        reload(node)
        said = found.out("sh", "-c", "uname -n; ls -A /var/tmp | wc -l; stat -c %i /tmp").split()
        assert "-job" in said[0]
        assert said[1:] == ["0", str(os.stat("/tmp").st_ino)]
        assert elsewhere.is_dir()
        assert node.nodectl("enter", name, "cat", "/tmp/x", user=NOBODY).stdout == "x\n"
        out, err = job.communicate("\n", timeout=PATIENCE)
        assert out == f"x\n{socket.gethostname()}\n", err
        found.assert_gone()
        wait_until(lambda: os.listdir(elsewhere) == [LOCK], "the later job's container is removed")
        node.configure(container_base_path=str(found.base))


def test_a_file_that_cannot_be_used_is_told_of_and_changes_nothing() -> None:
    with contained() as found:
        node = found.node
        good = node.config_path.read_text(encoding="utf-8")
        for lines, words in (
            ('container_dirs = ["relative"]', "container_dirs: has 'relative', which is no plain absolute path"),
            (f'container_dirs = ["{node.dir}"]', "which each job has for itself"),
            ("container_dirs =", "no TOML"),
            ('container_moon = "x"', "container_moon: unknown key"),
        ):
            node.config_path.write_text(good + lines + "\n", encoding="utf-8")
            reload(node, told=words)
            node.config_path.write_text(good, encoding="utf-8")  # clients read it too
            assert found.out("sh", "-c", "ls -A /tmp | wc -l") == "0\n"
        node.config_path.chmod(0o666)
        reload(node, told="not trusted")
        node.config_path.chmod(0o644)
        assert node.logged().count("what was read before is kept") == 5


def test_a_file_named_by_a_relative_path_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with contained() as found:
        node = found.node
        node.stop()
        whole = node.config_path
        monkeypatch.chdir(whole.parent)
        node.config_path = Path(whole.name)
        node.start()
        node.config_path = whole
        node.configure(container_base_path=str(node.dir / "elsewhere"))
        reload(node)
        node.configure(container_base_path=str(found.base))


def test_keys_of_other_sections_wait_for_a_restart() -> None:
    with contained() as found:
        node = found.node
        node.configure(max_tasks_per_node=1, container_base_path=str(node.dir / "elsewhere"))
        reload(node)
        assert node.run("-n2", "true", user=NOBODY).returncode == 0
        node.restart()
        assert "max_tasks_per_node = 1" in node.run("-n2", "true", user=NOBODY).stderr
        node.configure(container_base_path=str(found.base))
