"""A visit whose job_container plugin fails does not happen: nothing runs, and nothing is written, outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.hook_faults import HOOK_SECONDS, LATE
from rootful.node import NOBODY, PATIENCE
from rootful.stage import Stage, staged
from rootful.steps.test_hook_failures import FAULTS

CALLS = ("container_p_add_cont", "container_p_add_pid")


@pytest.fixture
def stage(module_stage: Stage) -> Iterator[Stage]:
    """With a running job."""
    yield from visited(module_stage)


@pytest.fixture
def hurried() -> Iterator[Stage]:
    """Likewise; hooks have little time, for those that take more."""
    with staged(spank_hook_timeout=HOOK_SECONDS) as started:
        yield from visited(started)


def visited(module_stage: Stage) -> Iterator[Stage]:
    """A stage while a job waits there."""
    module_stage.reset()
    script = "echo ready; until [ -e release ]; do sleep 0.02; done"
    client = module_stage.node.popen("sh", "-c", script, user=NOBODY)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    yield module_stage
    module_stage.release()
    assert client.wait(PATIENCE) == 0
    client.communicate()


def refused(stage: Stage, call: str, words: str) -> None:
    """Neither kind of visit happens, and both say why."""
    job, written = str(stage.last_job()), stage.node.scratch / "written"
    entered = stage.node.nodectl("enter", job, "echo", "outside", user=NOBODY)
    copied = stage.node.nodectl("bcast", "/etc/hostname", str(written), "--job", job, user=NOBODY)
    for done in (entered, copied):
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert f"plugin job_container/puppet: {call}: {words}" in line
    assert not written.exists()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
def test_visit_fails_where_the_plugin_fails(stage: Stage, call: str, fault: str) -> None:
    code, words = FAULTS[fault]
    stage.order(f"container.{call}", code)
    refused(stage, call, words)


@pytest.mark.parametrize("call", CALLS)
def test_visit_fails_where_the_plugin_hangs(hurried: Stage, call: str) -> None:
    hurried.order(f"container.{call}", "time.sleep(60)")
    refused(hurried, call, LATE)


def test_visit_is_added_to_the_container_of_processes_that_the_tracker_has_made(stage: Stage) -> None:
    stage.order("container.container_p_add_cont", f"{_CONT_ID}\nopen(SCRATCH + '/id', 'w').write(str(cont_id))")
    assert stage.node.nodectl("enter", str(stage.last_job()), "true", user=NOBODY).returncode == 0
    (user,) = Path(stage.node.base).glob("job_*/step_0/user")
    assert (stage.node.scratch / "id").read_text(encoding="ascii") == str(user.stat().st_ino)


_CONT_ID = "cont_id = sys._getframe(2).f_locals['b']"
