"""Which devices a job and its step may open, as rules: what is held, what others hold, what is allowed besides."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.launch.cgroup import device_access
from nodectl.placement.machine.declared_devices import Device

NULL, TTY = Device("gpu", 0, file="/dev/null"), Device("gpu", 1, file="/dev/tty")
GONE, COUNTED = Device("gpu", 2, file="/dev/no-such-device"), Device("gpu", 3)


ONE, TWO = "/dev/kmsg", "/dev/console"  # of nobody's list


@pytest.fixture
def pair() -> list[Device]:
    """Two devices that there are."""
    if not os.path.exists(ONE) or not os.path.exists(TWO):
        pytest.skip(f"{ONE} or {TWO} is missing here")
    return [Device("gpu", 0, file=ONE), Device("gpu", 1, file=TWO)]


def test_devices_of_others_are_denied(pair: list[Device]) -> None:
    assert device_access.of_job(pair, []) == [[2, 1, 11, 0], [2, 5, 1, 0]]
    assert device_access.of_job(pair, ["gpu:1"]) == [[2, 1, 11, 0]]
    assert device_access.of_job(pair, ["gpu:0", "gpu:1"]) == []


def test_every_file_of_a_device_is_denied(pair: list[Device]) -> None:
    both = [Device("gpu", 0, file=ONE, also=(TWO,)), Device("gpu", 1)]
    assert device_access.of_job(both, ["gpu:1"]) == device_access.of_job(pair, [])
    assert device_access.of_job(both, ["gpu:0"]) == []


def test_device_that_is_held_under_another_name_is_not_denied(pair: list[Device]) -> None:
    twice = [*pair, Device("gpu", 7, file=ONE)]
    assert device_access.of_job(twice, ["gpu:7"]) == [[2, 5, 1, 0]]


def test_what_every_program_expects_is_never_denied() -> None:
    assert device_access.of_job([NULL, TTY], []) == []


def test_device_without_a_file_has_no_rule() -> None:
    assert device_access.of_job([GONE, COUNTED, Device("gpu", 4, file="/etc/passwd")], []) == []


def test_step_opens_everything_else_unless_it_is_said_what(pair: list[Device]) -> None:
    assert device_access.of_step(pair, ["gpu:0"], ()) == device_access.of_job(pair, ["gpu:0"])
    rules = device_access.of_step(pair, ["gpu:0"], ("/dev/random*", "char-tty"))
    assert rules[0] == [2, 5, 1, 0]
    assert rules[-1] == [0, -1, -1, 0]
    assert [2, 1, 11, 1] in rules
    for path in ("/dev/null", "/dev/random", "/dev/ptmx"):
        number = Path(path).stat().st_rdev
        assert [2, os.major(number), os.minor(number), 1] in rules
    assert [2, 136, -1, 1] in rules
    assert [2, 4, -1, 1] in rules  # char-tty of /proc/devices
