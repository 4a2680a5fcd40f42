"""How many threads the machine may have: no more than the kernel has numbers for, whatever else it allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.placement.machine import thread_limit
from nodectl.service.config_file.reader import build
from nodectl.service.daemon.admission import step_maker

PIDS, THREADS = "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"


@pytest.mark.parametrize(("threads", "pids"), [(200_000, 32_768), (20_000, 4_194_304)])
def test_a_user_has_no_more_processes_than_half_of_what_the_machine_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, pids: int
) -> None:
    for path, number in ((THREADS, threads), (PIDS, pids)):
        (tmp_path / Path(path).name).write_text(f"{number}\n", encoding="ascii")

    def described(path: str, *words: object, **named: object) -> object:
        return open(tmp_path / Path(path).name if path in (THREADS, PIDS) else path, *words, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(thread_limit, "open", described, raising=False)
    monkeypatch.setattr(step_maker, "_of_the_first", lambda _: -1)
    assert step_maker.hard_limits(build({}))["NPROC"] == min(threads, pids) // 2
