"""A job_container plugin in C, written from the document: its functions take numbers and need nothing of slurmd's."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.hook_faults import HOOK_SECONDS, LATE
from rootful.native import compiled
from rootful.node import NOBODY, Node, wait_until

SOURCE = """
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

const char plugin_name[] = "a container in C";
const char plugin_type[] = "job_container/{name}";
const uint32_t plugin_version = {version};

static int say(const char *name, unsigned job, unsigned long long more, unsigned uid)
{{
    char path[256];
    FILE *file = fopen("{scratch}/said", "a");
    fprintf(file, "%s %u %llu %u %d\\n", name, job, more, uid, (int)geteuid());
    fclose(file);
    snprintf(path, sizeof path, "{scratch}/die.%s", name);
    if (access(path, F_OK) == 0)
        abort();
    snprintf(path, sizeof path, "{scratch}/hang.%s", name);
    while (access(path, F_OK) == 0)
        pause();
    snprintf(path, sizeof path, "{scratch}/fail.%s", name);
    if (access(path, F_OK) != 0)
        return SLURM_SUCCESS;
    errno = ENOSPC;
    return SLURM_ERROR;
}}

int init(void) {{ return say("init", 0, 0, 0); }}
void fini(void) {{ say("fini", 0, 0, 0); }}
int container_p_create(uint32_t job_id) {{ return say("create", job_id, 0, 0); }}
int container_p_add_cont(uint32_t job_id, uint64_t cont_id) {{ return say("add_cont", job_id, cont_id != 0, 0); }}
int container_p_add_pid(uint32_t job_id, pid_t pid, uid_t uid)
{{
    return say("add_pid", job_id, pid == getpid(), uid);
}}
int container_p_delete(uint32_t job_id) {{ return say("delete", job_id, 0, 0); }}
void container_p_reconfig(void) {{ say("reconfig", 0, 0, 0); }}
"""


class Compiled:
    """A node whose containers are made by the plugin above."""

    def __init__(self) -> None:
        self.node = Node(job_container_type="job_container/inc", spank_hook_timeout=HOOK_SECONDS)
        self.plugin()

    def plugin(self, name: str = "inc", version: str = "101") -> Path:
        source = self.node.dir / "inc.c"
        source.write_text(SOURCE.format(scratch=self.node.scratch, name=name, version=version), encoding="ascii")
        directory = self.node.plugins / "job_container"
        directory.mkdir(exist_ok=True)
        made = compiled(source, self.node.dir / "inc.so.new")
        return made.replace(directory / "inc.so")

    def said(self) -> list[str]:
        try:
            return (self.node.scratch / "said").read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return []

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.node.run(*words, user=NOBODY)


@pytest.fixture
def in_c() -> Iterator[Compiled]:
    made = Compiled()
    try:
        made.node.scratch.chmod(0o777)
        yield made
    finally:
        made.node.close()


def test_every_function_of_the_document_is_called_as_it_says(in_c: Compiled) -> None:
    in_c.node.start()
    assert in_c.said() == ["init 0 0 0 0"]  # in the forkserver alone: the daemon calls none of them
    done = in_c.run("-n2", "true")
    assert (done.returncode, done.stderr) == (0, "")
    job = in_c.node.last_job()
    delete = f"delete {job} 0 0 0"
    wait_until(lambda: delete in in_c.said(), "the container is deleted")
    joined = [f"add_pid {job} 1 {NOBODY.pw_uid} 0"] * 2
    assert in_c.said()[1:] == [f"create {job} 0 0 0", f"add_cont {job} 1 0 0", *joined, delete]
    assert in_c.node.daemon is not None
    in_c.node.daemon.send_signal(signal.SIGHUP)
    wait_until(lambda: "reconfig 0 0 0 0" in in_c.said(), "the plugin is told of the reload")
    in_c.node.stop()
    wait_until(lambda: in_c.said()[-1] == "fini 0 0 0 0", "the forkserver ends")


@pytest.mark.parametrize("function", ["create", "add_cont", "add_pid"])
def test_failure_is_told_with_its_errno(in_c: Compiled, function: str) -> None:
    in_c.node.start()
    (in_c.node.scratch / f"fail.{function}").touch()
    done = in_c.run("true")
    assert done.returncode == 1
    why = f"plugin job_container/inc (a container in C): container_p_{function}: returned -1: No space left on device"
    assert why in done.stderr
    (in_c.node.scratch / f"fail.{function}").unlink()
    assert in_c.run("true").returncode == 0


@pytest.mark.parametrize(("how", "why"), [("die", "of plugin job_container/inc"), ("hang", LATE)])
@pytest.mark.parametrize("function", ["create", "add_pid"])
def test_function_that_dies_or_hangs_costs_its_step_and_is_named(
    in_c: Compiled, function: str, how: str, why: str
) -> None:
    in_c.node.start()
    (in_c.node.scratch / f"{how}.{function}").touch()
    done = in_c.run("true")
    assert done.returncode != 0
    assert f"container_p_{function}" in done.stderr, done.stderr
    assert why in done.stderr, done.stderr
    (in_c.node.scratch / f"{how}.{function}").unlink()
    assert in_c.run("true").returncode == 0


def test_delete_that_fails_or_dies_is_noted(in_c: Compiled) -> None:
    in_c.node.start()
    for how, why in (("fail", "returned -1: No space left on device"), ("die", "its process died")):
        (in_c.node.scratch / f"{how}.delete").touch()
        assert in_c.run("true").returncode == 0
        wait_until(lambda why=why: why in in_c.node.logged(), "it is in the log")
        (in_c.node.scratch / f"{how}.delete").unlink()
    assert in_c.run("true").returncode == 0


@pytest.mark.parametrize(
    ("name", "version", "why"),
    [
        ("other", "101", "plugin_type is 'job_container/other'; 'job_container/inc' was asked for"),
        ("inc", "0x170000", "written for version 23.0.0; this is 22.5.8"),
        ("inc", "7", "plugin_version is 7"),
    ],
)
def test_plugin_of_another_type_or_version_keeps_the_service_from_starting(
    in_c: Compiled, name: str, version: str, why: str
) -> None:
    in_c.plugin(name, version)
    with pytest.raises(AssertionError):
        in_c.node.start()
    assert why in in_c.node.logged()


def test_compiled_plugin_is_listed(in_c: Compiled) -> None:
    shown = in_c.node.nodectl("plugins").stdout
    assert f"{in_c.node.plugins}/job_container/inc.so\n      hooks: container_p_create, container_p_add_cont" in shown
