"""Jobs that do nothing are told and ended, and no other job is, in 200 simulated days of jobs of all kinds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.launch.cgroup.delegation import Base
from nodectl.model.states import RUNNING
from nodectl.selection.records import JobRecord
from nodectl.service.config_file.reader import build
from nodectl.service.daemon.notices import gpu_loads
from nodectl.service.daemon.notices.gpu_loads import nvidia_loads
from nodectl.service.daemon.notices.idle_watch import IdleWatch, _are_busy
from nodectl.service.daemon.notices.idleness import PERIOD, Rule, Sample, Spell, Verdict, is_idle, judged

DAY = 86_400.0
RULE = Rule(after=3600, grace=600, ends=True)
Work = Callable[[float, random.Random], tuple[float, int, bool | None]]
"""What a job does in a minute that begins at a time: CPU seconds, bytes, whether its devices work."""


def computes(_at: float, dice: random.Random) -> tuple[float, int, bool | None]:
    return dice.uniform(20, 240), 0, False


def waits_for_its_disk(_at: float, dice: random.Random) -> tuple[float, int, bool | None]:
    return 0.1, dice.randrange(2 << 20, 1 << 30), False


def works_on_a_gpu_alone(_at: float, _dice: random.Random) -> tuple[float, int, bool | None]:
    return 0.1, 0, True


def has_a_gpu_that_tells_nothing(_at: float, _dice: random.Random) -> tuple[float, int, bool | None]:
    return 0.0, 0, None


def works_for_a_second_each_half_hour(at: float, _dice: random.Random) -> tuple[float, int, bool | None]:
    return float(at % 1800 < 60), 0, False


def computes_and_rests_for_up_to_50_minutes(at: float, _dice: random.Random) -> tuple[float, int, bool | None]:
    return (60.0 if at % 7200 < 4200 else 0.0), 0, False


def does_nothing(_at: float, _dice: random.Random) -> tuple[float, int, bool | None]:
    return 0.0, 0, False


def is_a_notebook_whose_user_has_gone(_at: float, dice: random.Random) -> tuple[float, int, bool | None]:
    return dice.uniform(0.05, 0.5), dice.randrange(1 << 16), False


BUSY = (computes, waits_for_its_disk, works_on_a_gpu_alone, has_a_gpu_that_tells_nothing,
        works_for_a_second_each_half_hour, computes_and_rests_for_up_to_50_minutes)  # fmt: skip
IDLE = (does_nothing, is_a_notebook_whose_user_has_gone)


def played(work: Work, days: float, dice: random.Random) -> Iterator[tuple[float, Verdict]]:
    """The verdicts about a job. Samples are late at times, and now and then there is no daemon for some hours."""
    at = taken = 0.0
    cpu, moved, spell, away = 0.0, 0, None, 0.0
    while at < days * DAY:
        spent, bytes_, devices = work(at, dice)
        cpu, moved, at = cpu + spent, moved + bytes_, at + PERIOD
        if dice.random() < 0.0003:
            away, spell = at + dice.uniform(60, 6 * 3600), None  # the next daemon knows nothing of the job
        if at < away or (at - taken < 4 * PERIOD and dice.random() < 0.1):
            continue
        taken = at
        spell, verdict = judged(spell, Sample(at, cpu, moved, devices), RULE)
        yield at, verdict
        if verdict is Verdict.END:
            return


@pytest.mark.parametrize("work", BUSY)
def test_no_job_that_does_something_is_told_or_ended_in_200_days(work: Work) -> None:
    dice = random.Random(7)  # noqa: S311  # the same jobs each time
    wrong = [at for at, verdict in played(work, 200 / len(BUSY), dice) if verdict is not Verdict.NOTHING]
    assert not wrong


@pytest.mark.parametrize("work", IDLE)
def test_each_job_that_does_nothing_is_told_once_and_then_ended(work: Work) -> None:
    for seed in range(20):
        dice = random.Random(seed)  # noqa: S311
        said = [(at, verdict) for at, verdict in played(work, 2, dice) if verdict is not Verdict.NOTHING]
        assert [verdict for _, verdict in said][-2:] == [Verdict.TELL, Verdict.END]
        told, ended = (at for at, _ in said[-2:])
        assert told >= RULE.after
        assert ended - told >= RULE.grace - 5 * PERIOD


def test_a_job_that_goes_on_after_it_was_told_is_told_anew_and_not_ended() -> None:
    spell, seen = None, []
    for minute in range(300):
        cpu = 100.0 if minute >= 65 else 0.0  # it works in one minute, just after it was told
        spell, verdict = judged(spell, Sample(minute * 60.0, cpu), RULE)
        seen.append(verdict)
        if verdict is Verdict.END:
            break
    assert seen.count(Verdict.TELL) == 2
    assert seen.index(Verdict.END) == 65 + 60 + 10


def test_who_is_only_to_be_told_is_not_ended() -> None:
    spell: Spell | None = None
    verdicts = set()
    for minute in range(600):
        spell, verdict = judged(spell, Sample(minute * 60.0, 0.0), RULE._replace(ends=False))
        verdicts.add(verdict)
    assert verdicts == {Verdict.NOTHING, Verdict.TELL}


def test_a_job_that_no_file_tells_of_is_never_idle() -> None:
    assert is_idle(Sample(0, 5.0), Sample(60, 5.0))
    assert not is_idle(Sample(0, None), Sample(60, None))
    assert not is_idle(Sample(0, 5.0), Sample(60, 5.0, devices=None))
    assert not is_idle(Sample(0, 5.0), Sample(60, 5.0, devices=True))


def test_a_counter_that_went_down_tells_nothing() -> None:
    """As after a cgroup was made anew."""
    assert not is_idle(Sample(0, 5.0), Sample(60, 0.0))
    assert is_idle(Sample(0, 5.0), Sample(60, 4.99)), "its step runner worked between the looks at both counters"
    assert not is_idle(Sample(0, 5.0, 9), Sample(60, 5.0, 8))


def test_jobs_are_judged_by_what_their_cgroups_have_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, told, ended = [1000.0], list[int](), list[int]()
    monkeypatch.setattr("nodectl.service.daemon.notices.idle_watch.time.monotonic", lambda: now[0])
    watch = IdleWatch(
        build({"idle_after": 60, "idle_grace": 30, "idle_action": "end"}), Base(str(tmp_path), "/n", (), {}), []
    )
    watch.tell, watch.end = lambda job, _: told.append(job.job_id), lambda job, _: ended.append(job.job_id)
    jobs = {number: JobRecord(number, job_state=RUNNING) for number in (1, 2, 3)}
    for number in jobs:
        (tmp_path / f"n/job_{number}").mkdir(parents=True)
    (tmp_path / "n/job_1/step_0/stepd").mkdir(parents=True)
    for tick in range(30):
        said = 90_000 * len(told)  # microseconds of the first job's step runner, which tells the job
        (tmp_path / "n/job_1/step_0/stepd/cpu.stat").write_text(f"usage_usec {said}\n")
        used = {1: said, 2: 10**6 * tick, 3: 0}  # microseconds: the second computes, the third writes to a disk
        for number in jobs:
            (tmp_path / f"n/job_{number}/cpu.stat").write_text(f"usage_usec {used[number]}\nuser_usec 0\n")
        (tmp_path / "n/job_3/io.stat").write_text(f"8:0 rbytes=0 wbytes={tick << 24}\n")
        asyncio.run(watch._look(jobs))
        now[0] += 7.5
    assert told == [1]
    assert set(ended) == {1}


def test_a_part_of_a_gpu_has_the_load_of_the_gpu() -> None:
    gpu: Any = SimpleNamespace(key="gpu:0", file="/dev/nvidia0")
    watch = IdleWatch(build({"idle_after": 60}), Base("", "", (), {}), [gpu])
    holder: Any = SimpleNamespace(job_resrcs=SimpleNamespace(gres={0: ["gpu:0/shard:2"], 1: ["gpu:0/mem:16384M"]}))
    assert watch._held(holder) == ["/dev/nvidia0"] * 2


def test_root_runs_no_nvidia_smi_that_another_user_could_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs(*_: object, **__: object) -> None:
        raise AssertionError("it is run")

    monkeypatch.setattr(gpu_loads, "_PROGRAMS", ("/bin/sh",))
    monkeypatch.setattr(gpu_loads, "_DRIVER", "/")
    monkeypatch.setattr("nodectl.service.daemon.notices.gpu_loads.subprocess.run", runs)
    monkeypatch.setattr("nodectl.service.daemon.notices.gpu_loads.trust.is_trusted", lambda path: path != "/bin/sh")
    assert gpu_loads._nvidia() == {}


def test_a_gap_between_samples_excuses_no_more_than_a_period() -> None:
    assert not is_idle(Sample(0, 0.0), Sample(6 * 3600, 0.7))


def test_a_job_is_busy_where_one_of_its_devices_is_or_does_not_tell() -> None:
    loads = {"/dev/nvidia0": 0, "/dev/nvidia1": 7}
    assert _are_busy(["/dev/nvidia0"], loads) is False
    assert _are_busy(["/dev/nvidia0", "/dev/nvidia1"], loads) is True
    assert _are_busy(["/dev/nvidia0", ""], loads) is None


def test_loads_are_those_of_the_files_that_programs_open() -> None:
    said = "00000000:3B:00.0, 35\n00000000:AF:00.0, [N/A]\n00000001:3b:00.0, 0\nno devices\n"
    minors = {"0000:3b:00.0": "1", "0000:af:00.0": "0", "0001:3b:00.0": "2"}
    assert nvidia_loads(said, minors) == {"/dev/nvidia1": 35, "/dev/nvidia2": 0}
