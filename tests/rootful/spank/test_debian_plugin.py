"""Debian's own compiled plugin spank_pbs.so, as it is: it gives tasks the variables that PBS would have set."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from packages import Packages
from rootful.node import NOBODY, Node, running

pytestmark = pytest.mark.packages

GIVEN = {
    "HOME": "/home/of-mine",
    "HOST": "submitter",
    "LANG": "C.UTF-8",
    "LOGNAME": "me",
    "MAIL": "/var/mail/me",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "QUEUE": "long",
    "SHELL": "/bin/ksh",
    "SYSTEM": "large",
}


@pytest.fixture(scope="module")
def node(packages: Packages) -> Iterator[Node]:
    with running() as started:
        (started.plugins / "spank").mkdir()
        shutil.copy(packages.plugin("spank_pbs.so"), started.plugins / "spank")
        started.plugstack("required spank_pbs.so\n")
        yield started


def tasks(node: Node, *words: str) -> list[dict[str, str]]:
    """The variables of each of two tasks."""
    done = node.run("-n2", "-o", f"{node.scratch}/env_%t", *words, "env", "-0", user=NOBODY, env=GIVEN)
    assert (done.returncode, done.stderr) == (0, "")
    texts = [(node.scratch / f"env_{rank}").read_text(encoding="utf-8") for rank in range(2)]
    return [dict(pair.split("=", 1) for pair in text.split("\0") if pair) for text in texts]


def test_tasks_find_what_pbs_would_have_set(node: Node, packages: Packages) -> None:
    packages.need_our_version()
    for rank, found in enumerate(tasks(node, "-J", "its name", "-D", "/usr")):
        pbs = {name: value for name, value in found.items() if name.startswith("PBS_")}
        assert pbs == {
            **{f"PBS_O_{name}": value for name, value in GIVEN.items()},
            "PBS_JOBID": str(node.last_job()),
            "PBS_JOBNAME": "its name",
            "PBS_JOBDIR": "/usr",
            "PBS_NODENUM": "0",
            "PBS_O_WORKDIR": found["SLURM_SUBMIT_DIR"],
            "PBS_TASKNUM": str(rank + 1),
        }


def test_a_python_plugin_behind_it_sees_them(node: Node, packages: Packages) -> None:
    packages.need_our_version()
    node.plugin(
        "behind",
        "from nodectl.spank import spank_getenv, spank_setenv\n"
        "def slurm_spank_task_init(sp, ac, argv):\n"
        '    spank_setenv(sp, "SEEN", spank_getenv(sp, "PBS_TASKNUM"))\n',
    )
    node.plugstack("required spank_pbs.so\nrequired behind\n")
    assert [found["SEEN"] for found in tasks(node)] == ["1", "2"]


def test_one_of_another_release_is_refused_in_one_line(node: Node, packages: Packages) -> None:
    if packages.are_ours:
        pytest.skip("this distribution has the release of Slurm whose plugins run")
    done = node.run("true", user=NOBODY)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "spank_pbs.so" in line
    assert "version" in line
