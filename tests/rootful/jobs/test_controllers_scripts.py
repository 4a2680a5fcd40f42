"""What Slurm's controller runs around a job: `prolog_slurmctld` in front of the prolog, `epilog_slurmctld` behind the
epilog, with the variables that plugins set for them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rootful.node import NOBODY, Node, running, wait_until

SCRIPTS = ("prolog_slurmctld", "prolog", "epilog", "epilog_slurmctld")
PLUGIN = """
from nodectl.spank import *

def slurm_spank_init_post_opt(sp, ac, argv):
    if not spank_remote(sp):
        spank_job_control_setenv(sp, "PAINT", "wet", 1)
"""


@pytest.fixture
def node() -> Iterator[Node]:
    """Each script notes where it runs, what the plugin has set and who it is, and fails where a file says so."""
    with running() as started:
        started.plugin("painter", PLUGIN)
        started.plugstack("required painter\n")
        started.stop()
        for name in SCRIPTS:
            script = started.dir / name
            script.write_text(
                f'#!/bin/sh\necho "$SLURM_SCRIPT_CONTEXT $SPANK_PAINT $SLURM_JOB_USER $(id -u)" >>{started.dir}/log\n'
                f"! [ -e {started.dir}/fail-{name} ]\n",
                encoding="utf-8",
            )
            script.chmod(0o755)
        started.configure(**{name: str(started.dir / name) for name in SCRIPTS}, drain_on_failure=[])
        yield started.start()


def contexts(node: Node) -> list[str]:
    """Where scripts have run, when the last of them has."""
    node.assert_clean()
    return [line.split()[0] for line in (node.dir / "log").read_text(encoding="utf-8").splitlines()]


def test_controllers_scripts_are_around_those_of_the_node(node: Node) -> None:
    assert node.run("true", user=NOBODY).returncode == 0
    assert contexts(node) == ["prolog_slurmctld", "prolog_slurmd", "epilog_slurmd", "epilog_slurmctld"]
    for line in (node.dir / "log").read_text(encoding="utf-8").splitlines():
        assert line.split()[1:] == ["wet", NOBODY.pw_name, "0"]


def test_job_is_refused_whose_controllers_prolog_fails_and_its_epilogs_run(node: Node) -> None:
    (node.dir / "fail-prolog_slurmctld").touch()
    done = node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"prolog_slurmctld {node.dir}/prolog_slurmctld: " in done.stderr
    assert contexts(node) == ["prolog_slurmctld", "epilog_slurmd", "epilog_slurmctld"]


def test_failure_of_the_controllers_epilog_is_noted_and_costs_the_job_nothing(node: Node) -> None:
    (node.dir / "fail-epilog_slurmctld").touch()
    done = node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert contexts(node)[-1] == "epilog_slurmctld"
    job = node.last_job()
    wait_until(lambda: "epilog" in node.record(job), "the record has a note")
    assert "epilog_slurmctld" in str(node.record(job)["epilog"])
