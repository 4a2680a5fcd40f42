"""What the campaign of `./dev torture` takes for right, lost and wrong, and what it sends."""

from __future__ import annotations

import json
import random

import pytest

from torture.judge import LOST, RIGHT, WRONG, judge
from torture.messages import calls, mutated
from torture.probe import Sample, latencies
from torture.report import Report
from torture.works import Work

HOOKS = ["init", "task_init 0", "task_exit 0", "exit"]


def work(
    ended: int, *suffered: tuple[str, str], err: str = "", out: str = "said\n", hooks: list[str] | None = None
) -> Work:
    return Work(
        "w", ["true"], 7, ["said"], suffered=list(suffered), ended=ended, err=err, out=out,
        hooks=HOOKS if hooks is None else hooks,
    )  # fmt: skip


def record(state: str, status: int, reason: str = "") -> dict[str, object]:
    return {"job": 1, "step": 0, "state": state, "exit_status": status, "reason": reason}


KNOWN = record("FAILED", 7)
DIED = record("NODE_FAIL", 1, "the step runner died while its tasks ran")
COPIED = record("FAILED", 143, "a process that copies its streams ended with exit code 1")
WENT = record("CANCELLED", 143, "the client that ran it went away")


@pytest.mark.parametrize(
    ("suffering", "found", "verdict"),
    [
        (work(7), KNOWN, RIGHT),
        (work(0), KNOWN, WRONG),
        (work(7), record("COMPLETED", 0), WRONG),
        (work(7, out="other\n"), KNOWN, WRONG),
        (work(7, hooks=HOOKS[:-1]), KNOWN, WRONG),
        (work(7, hooks=[*HOOKS, "exit"]), KNOWN, WRONG),
        (work(7), None, LOST),
        (work(1), DIED, LOST),
        (work(1, ("stepd", "KILL")), DIED, RIGHT),
        (work(1, ("runner", "KILL")), DIED, RIGHT),
        (work(7, ("stepd", "STOP")), DIED, LOST),
        (work(7, ("runner", "STOP")), DIED, LOST),
        (work(0, ("stepd", "KILL")), DIED, WRONG),
        (work(-9, ("client", "KILL")), WENT, RIGHT),
        (work(-9, ("client", "KILL")), KNOWN, RIGHT),
        (work(-9, ("client", "KILL")), None, LOST),
        (work(-9, ("client", "KILL"), out="", hooks=[]), None, RIGHT),
        (work(143, ("client", "TERM"), out="", hooks=[], err="job 1 was cancelled while it waited"), None, RIGHT),
        (work(143, ("client", "KILL"), out="", hooks=[], err="job 1 was cancelled while it waited"), None, WRONG),
        (work(143, ("client", "TERM"), err="job 1 was cancelled while it waited"), None, LOST),
        (work(1, ("listener", "descriptors"), err="more descriptors of yours are on their way"), WENT, RIGHT),
        (work(1, ("listener", "TERM"), err="more descriptors of yours are on their way"), WENT, WRONG),
        (work(7), WENT, WRONG),
        (work(7, ("daemon", "KILL")), KNOWN, RIGHT),
        (work(7, ("daemon", "KILL")), None, LOST),
        (work(1, ("daemon", "KILL"), out="", hooks=[], err="no service"), None, RIGHT),
        (work(1, ("daemon", "KILL"), out="", hooks=["init", "exit"], err="it went away"), WENT, WRONG),
        (work(1, ("listener", "KILL"), out="", hooks=["init", "exit"], err="it went away"), WENT, RIGHT),
        (work(1, ("listener", "STOP"), out="", hooks=["init", "exit"], err="it went away"), WENT, WRONG),
        (work(1, out="", hooks=["init", "exit"], err="it went away"), WENT, WRONG),
        (work(1, out="", hooks=[], err="no service"), None, WRONG),
        (work(1, ("daemon", "STOP"), out="", hooks=[], err="no service"), None, WRONG),
        (work(-9, ("client", "KILL"), ("forkserver", "KILL"), out="", hooks=[]), DIED, RIGHT),
        (work(143, ("stepd", "descriptors"), out="", hooks=[]), COPIED, RIGHT),
        (work(143, out="", hooks=[]), COPIED, WRONG),
        (work(137, ("task", "KILL")), record("FAILED", 137), RIGHT),
        (work(137), record("FAILED", 137), WRONG),
    ],
)
def test_a_step_is_judged_by_what_it_suffered(suffering: Work, found: dict[str, object] | None, verdict: str) -> None:
    assert judge(suffering, found)[0] == verdict


def test_times_in_which_the_service_was_struck_do_not_count_for_its_answers() -> None:
    samples = [Sample(0.0, 0.1, True), Sample(1.0, 3.0, True), Sample(4.0, 4.3, True), Sample(5.0, 5.1, False)]
    assert latencies(samples, [(2.0, 3.5)]) == pytest.approx((0.2, 0.3, 2, 1))


def test_the_same_seed_makes_the_same_messages_and_all_methods_are_among_them() -> None:
    sent = []
    for _ in range(2):
        rng = random.Random(5)
        valid = calls(rng)
        sent.append([mutated(rng, valid) for _ in range(500)])
    assert sent[0] == sent[1]
    methods = {str(valid()["method"]) for _ in range(2000)}
    assert {"org.nodectl.Launch", "org.nodectl.step.Attach", "org.varlink.service.GetInfo"} < methods


def test_calls_are_valid_before_they_are_mutated() -> None:
    rng = random.Random(7)
    valid = calls(rng)
    launches = [call for call in (valid() for _ in range(2000)) if call["method"] == "org.nodectl.Launch"]
    for launch in launches:
        request = json.loads(json.dumps(launch))["parameters"]["request"]
        assert request["argv"] == ["true"]
        assert {"environment", "cwd", "ntasks"} < set(request)


def test_a_message_of_any_size_is_written_only_as_far_as_it_is_sent() -> None:
    rng = random.Random(3)
    huge = ["x" * 100_000] * 1_000_000  # 100 GB of text, in one list
    sent = mutated(rng, lambda: {"method": "org.nodectl.Queue", "parameters": {"jobs": huge}})
    assert 100_000 < len(sent) <= (1 << 17) + 1


def test_the_report_holds_only_when_every_bar_does() -> None:
    report = Report(1)
    report.add("faults", 5)
    report.add("lost", 0, 0)
    assert report.held
    report.add("worst", 2000, 1000, "ms", timed=True)
    assert not report.held
    assert "NOT HELD" in report.text()
    assert report.as_json()["held"] is False
