"""The slurmd context: a process beside the daemon, told of the daemon's beginning and end, of which the daemon never
dies.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel.processes import cgroup_of
from rootful.hook_faults import DEATHS, FAULTS, HOOK_SECONDS, LATE
from rootful.node import PATIENCE, wait_until
from rootful.stage import Stage, staged

INIT, SLURMD_INIT, EXIT = "slurm_spank_init", "slurm_spank_slurmd_init", "slurm_spank_slurmd_exit"
NOTE = 'open(SCRATCH + "/log", "a").write({!r} + "\\n")'


@pytest.fixture(scope="module")
def module_stage() -> Iterator[Stage]:
    with staged(jobs=True, spank_hook_timeout=HOOK_SECONDS) as started:
        yield started


@pytest.fixture
def stage(module_stage: Stage) -> Iterator[Stage]:
    """A node whose daemon is not running yet; each test starts it."""
    module_stage.node.stop()
    module_stage.reset_orders()
    yield module_stage
    if module_stage.node.daemon is None:
        module_stage.reset_orders()
        module_stage.node.start()
    assert module_stage.node.run("echo", "served").stdout == "served\n"
    module_stage.node.assert_clean()


def helpers(stage: Stage) -> list[int]:
    """The processes of the daemon's slurmd context."""
    assert stage.node.daemon is not None
    pid = stage.node.daemon.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(child) for child in children if _name(int(child)) == "nodectl-spank"]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def logged(stage: Stage) -> list[str]:
    path = stage.node.scratch / "log"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def take_notes(stage: Stage) -> None:
    for plugin in ("first", "second"):
        for call in (INIT, SLURMD_INIT, EXIT):
            stage.order(f"{plugin}.slurmd.{call}", NOTE.format(f"{plugin}.{call.removeprefix('slurm_spank_')}"))


def refuses(stage: Stage) -> str:
    """What a daemon says that does not start."""
    done = subprocess.run(
        stage.node.command("daemon"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=stage.node.environment(),
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert not stage.node.socket.exists()
    assert not Path(stage.node.base).exists()
    return line


def test_hooks_run_at_the_daemons_start_and_orderly_end_in_the_order_of_the_stack(stage: Stage) -> None:
    take_notes(stage)
    stage.node.start()
    assert logged(stage) == ["first.init", "second.init"]
    stage.node.stop()
    assert logged(stage) == ["first.init", "second.init", "first.slurmd_exit", "second.slurmd_exit"]


def test_slurmd_init_is_the_init_of_a_plugin_without_one(stage: Stage) -> None:
    text = "import os\nfrom nodectl.spank import *\n"
    for call in (SLURMD_INIT, EXIT):
        text += f"def {call}(sp, ac, argv):\n    {NOTE.format(call)}\n".replace(
            "SCRATCH", repr(str(stage.node.scratch))
        )
    stage.node.plugin("third", text)
    stage.node.plugstack("required third\n")
    stage.node.start()
    stage.node.stop()
    assert logged(stage) == [SLURMD_INIT, EXIT]


def test_process_is_roots_with_its_context_and_without_a_job(stage: Stage) -> None:
    stage.order(
        f"first.slurmd.{INIT}",
        """
def item(number):
    try:
        return spank_get_item(sp, number)
    except SpankError as error:
        return error.code
open(SCRATCH + "/facts", "w").write(repr(
    (spank_context(), spank_remote(sp), os.getresuid(), os.getsid(0) == os.getpid(), os.getcwd(), item(0), item(20),
     sorted(os.environ), os.readlink("/proc/self/fd/1") == os.readlink("/proc/self/fd/2"))
))""",
    )
    stage.node.start()
    (pid,) = helpers(stage)
    found = (stage.node.scratch / "facts").read_text(encoding="utf-8")
    assert found == repr((4, 0, (0, 0, 0), True, "/", 3009, "22.05.8", ["LANG", "PATH"], True))
    assert cgroup_of(pid) == cgroup_of()


@pytest.mark.parametrize("fault", [*FAULTS, *DEATHS])
def test_required_plugin_that_fails_refuses_the_daemons_start(stage: Stage, fault: str) -> None:
    code, words = {**FAULTS, **DEATHS}[fault]
    stage.order(f"second.slurmd.{INIT}", code)
    line = refuses(stage)
    assert all(word in line for word in ("nodectl daemon: ", "plugin second", INIT, words)), line


def test_required_plugin_that_cannot_be_loaded_refuses_the_daemons_start(stage: Stage) -> None:
    stage.node.plugin("third", "def slurm_spank_init(sp, ac, argv):\n    return 0\nraise ValueError('no')\n")
    stage.node.plugstack("required third\n")
    assert "its body raised ValueError: no" in refuses(stage)


@pytest.mark.parametrize("fault", FAULTS)
def test_optional_plugin_that_fails_costs_nothing(stage: Stage, fault: str) -> None:
    stage.stack("optional", "required")
    take_notes(stage)
    stage.order(f"first.slurmd.{INIT}", FAULTS[fault][0])
    stage.node.start()
    assert len(helpers(stage)) == 1
    assert logged(stage) == ["second.init"]


@pytest.mark.parametrize("death", DEATHS)
def test_optional_plugin_that_ends_the_process_is_reported_and_the_daemon_serves(stage: Stage, death: str) -> None:
    code, words = DEATHS[death]
    stage.stack("optional", "required")
    stage.order(f"first.slurmd.{INIT}", code)
    stage.node.start()
    assert helpers(stage) == []
    assert f"optional plugin first: {INIT}: {words}" in stage.node.logged()
    stage.node.stop()


@pytest.mark.parametrize("fault", [*FAULTS, *DEATHS])
def test_failure_at_the_end_is_reported_and_costs_nothing(stage: Stage, fault: str) -> None:
    code, words = {**FAULTS, **DEATHS}[fault]
    stage.order(f"second.slurmd.{EXIT}", code)
    stage.node.start()
    assert stage.node.daemon is not None
    stage.node.daemon.terminate()
    assert stage.node.daemon.wait(PATIENCE) == 0
    stage.node.daemon = None
    assert f"plugin second: {EXIT}: {words}" in stage.node.logged()


HARMLESS = {
    "writes to every descriptor": "for fd in range(3, 64):\n try: os.write(fd, b'rubbish')\n except OSError: pass",
    "redirects its streams": "fd = os.open('/dev/null', os.O_RDWR)\nfor place in range(3): os.dup2(fd, place)",
    "closes its streams": "os.closerange(0, 3)",
    "blocks every signal": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "has children": "for _ in range(3):\n if os.fork() == 0: time.sleep(1000)",
    "forks and both return": "os.fork()",
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_a_hook_does_to_its_process_is_not_the_daemons_business(stage: Stage, kind: str) -> None:
    take_notes(stage)
    stage.order(f"first.slurmd.{INIT}", HARMLESS[kind])
    stage.node.start()
    assert stage.node.run("echo", "on").stdout == "on\n"
    stage.node.stop()
    assert logged(stage) == ["second.init", "first.slurmd_exit", "second.slurmd_exit"]


def test_daemon_goes_on_without_a_process_that_was_killed(stage: Stage) -> None:
    stage.node.start()
    (pid,) = helpers(stage)
    before = len(stage.node.logged())
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "slurmd context: died by SIGKILL" in stage.node.logged()[before:], "it is told")
    assert not Path(f"/proc/{pid}").exists()
    assert stage.node.run("echo", "on").stdout == "on\n"
    stage.node.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_daemon_and_the_next_one_begins_anew(stage: Stage, number: int) -> None:
    take_notes(stage)
    child = "\npid = os.fork()\nif pid == 0: time.sleep(1000)\nopen(SCRATCH + '/child', 'w').write(str(pid))"
    stage.order(f"first.slurmd.{INIT}", NOTE.format("first.init") + child)
    stage.node.start()
    (pid,) = helpers(stage)
    started = int((stage.node.scratch / "child").read_text(encoding="ascii"))
    stage.node.stop(number)
    for gone in (pid, started):
        wait_until(lambda gone=gone: _name(gone) == "" or _zombie(gone), "it is gone")
    last = [] if number == signal.SIGKILL else ["first.slurmd_exit", "second.slurmd_exit"]
    assert logged(stage) == ["first.init", "second.init", *last]
    stage.node.start()
    assert len(helpers(stage)) == 1
    assert logged(stage)[-2:] == ["first.init", "second.init"]


def _zombie(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_without_a_plugin_that_asks_for_it_there_is_no_process(stage: Stage) -> None:
    stage.node.plugin("third", "def slurm_spank_init_post_opt(sp, ac, argv):\n    return 0\n")
    for text in ("", "required third\n"):
        stage.node.plugstack(text)
        stage.node.start()
        assert helpers(stage) == []
        stage.node.stop()


def test_start_does_not_wait_for_each_plugin_in_turn_without_end(stage: Stage) -> None:
    entries = []
    for number in range(8):
        stage.node.plugin(
            f"slow{number}", "import time\ndef slurm_spank_init(sp, ac, argv):\n    while True: time.sleep(1)\n"
        )
        entries.append(f"optional slow{number}\n")
    stage.node.plugstack("".join(entries))
    stage.node.start()
    assert helpers(stage) == []
    assert f"{LATE}; no plugin is told" in stage.node.logged()
    stage.node.stop()
