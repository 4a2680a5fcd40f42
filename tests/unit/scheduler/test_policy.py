"""The rules of the queue come from the configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.model.config import Config, ConfigError
from nodectl.scheduler.policy import Policy, Qos, UserLimits
from nodectl.service.config_file import reader


def configured(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "nodectl.toml"
    file.write_text(text)
    return reader.load(str(file), must_exist=True)


def test_defaults_are_the_same_in_both_places(tmp_path: Path) -> None:
    assert Policy.of(configured(tmp_path, "")) == replace(Policy(), limits=UserLimits(submitted=10_000))


def test_lines_and_limits_are_read(tmp_path: Path) -> None:
    text = """
    max_cpus_per_user = 16
    preempt_mode = "requeue"
    qos = [
      "Name=high Priority=5 Preempt=normal Users=ann,bob MaxTime=60 MaxCpusPerUser=4",
      "Name=normal PreemptMode=Suspend",
    ]
    """
    policy = Policy.of(configured(tmp_path, text))
    assert policy.limits == UserLimits(submitted=10_000, cpus=16)
    assert policy.qos["high"] == Qos("high", 5, ("normal",), "", ("ann", "bob"), 60, UserLimits(cpus=4))
    assert (policy.qos["normal"].preempt_mode, policy.preempt_mode) == ("suspend", "requeue")


def test_times_and_memory_of_a_quality_of_service_have_units(tmp_path: Path) -> None:
    policy = Policy.of(configured(tmp_path, 'qos = ["Name=long MaxTime=1-12 MaxMemoryPerUser=2G"]'))
    assert (policy.qos["long"].max_time, policy.qos["long"].limits.memory) == (129_600, 2048)


@pytest.mark.parametrize(
    "text", ['qos = "Priority=5"', "max_wait = -1", 'preempt_mode = "kill"', "bf_max_job_test = 0"]
)
def test_what_means_nothing_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=text.partition(" ")[0]):
        configured(tmp_path, text)
