"""The clock that hooks run under: each has its whole time, whatever ran before it, and nothing rings outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from nodectl.model import launch_order
from nodectl.plugin_api import set_errno
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.tracing.recorder import Recorder

ALLOWED = 0.3
WHOLE = 0.98  # hooks are short: one of a walk may begin with a hundredth of its time gone
LATE = f"plugin it: slurm_spank_init: took longer than {ALLOWED} s"
HOOK = launch_order.SPANK_INIT


@pytest.fixture
def caller() -> Iterator[PluginCaller]:
    before = signal.getsignal(signal.SIGALRM)
    yield PluginCaller(Recorder(-1, "stepd"), None, 0, ALLOWED, single_threaded=False)
    signal.signal(signal.SIGALRM, before)


def lasting(seconds: float) -> int:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(0.005)
    return 0


def call(caller: PluginCaller, seconds: float) -> str:
    return caller.call(HOOK, "it", lasting, (seconds,)).why


def granted(caller: PluginCaller) -> float:
    """How long a hook ran before it was interrupted, of ALLOWED. At least, as a busy machine makes it longer."""
    began = time.monotonic()
    assert call(caller, 60) == LATE
    return (time.monotonic() - began) / ALLOWED


def test_each_hook_of_a_walk_has_its_whole_time(caller: PluginCaller) -> None:
    with caller:
        for seconds in (0, 0.5 * ALLOWED, 0.9 * ALLOWED):
            call(caller, seconds)
            assert granted(caller) >= WHOLE


def test_a_hook_that_overruns_in_a_walk_costs_the_next_ones_nothing(caller: PluginCaller) -> None:
    with caller:
        assert [call(caller, seconds) for seconds in (0, 60, 0, 60, 0)] == ["", LATE, "", LATE, ""]
        assert granted(caller) >= WHOLE


def test_nothing_rings_between_the_hooks_of_a_walk_or_behind_it(caller: PluginCaller) -> None:
    with caller:
        assert call(caller, 0) == ""
        lasting(2 * ALLOWED)
        assert granted(caller) >= WHOLE
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    lasting(2 * ALLOWED)


def test_a_plugin_that_takes_the_signal_takes_it_from_itself_only(caller: PluginCaller) -> None:
    with caller:
        caller.call(HOOK, "thief", signal.signal, (signal.SIGALRM, signal.SIG_IGN))
        assert "took longer" in call(caller, 60)


def test_a_plugins_own_alarm_leaves_the_clock_alone(caller: PluginCaller) -> None:
    with caller:
        caller.call(HOOK, "timed", signal.setitimer, (signal.ITIMER_REAL, 0))
        assert "took longer" in call(caller, 60)


def test_an_alarm_that_a_plugin_sends_is_no_overrun_of_the_hook_that_runs_then(caller: PluginCaller) -> None:
    def blameless() -> int:
        os.kill(os.getpid(), signal.SIGALRM)
        return 0

    with caller:
        call(caller, 0)
        assert caller.call(HOOK, "it", blameless, ()).why == ""
        assert granted(caller) >= WHOLE


def test_a_child_that_is_forked_in_a_walk_hears_no_alarm(caller: PluginCaller) -> None:
    with caller:
        call(caller, 0)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            lasting(2 * ALLOWED)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0


def test_the_reason_of_a_failure_is_of_the_call_that_failed(caller: PluginCaller) -> None:
    def hook(errno: int, message: str, rc: int) -> int:
        if errno:
            set_errno(errno, message)
        return rc

    def outcome(*arguments: object) -> tuple[int, str, int]:
        found = caller.call(HOOK, "it", hook, arguments)
        return found.rc, found.why.removeprefix("plugin it: slurm_spank_init: "), found.errno

    assert outcome(12, "", -1) == (-1, "returned -1: Cannot allocate memory", 12)
    assert outcome(3001, "no licence", -1) == (-1, "returned -1: no licence", 3001)
    assert outcome(12, "", 0) == (0, "", 0)
    assert outcome(0, "", -1) == (-1, "returned -1", 0)


def test_a_row_of_the_launch_is_called_in_its_own_process_only(caller: PluginCaller) -> None:
    called: list[int] = []
    with pytest.raises(RuntimeError, match="slurm_spank_task_init belongs to the task, not to the stepd"):
        caller.call(launch_order.SPANK_TASK_INIT, "it", called.append, (1,))
    assert not called
