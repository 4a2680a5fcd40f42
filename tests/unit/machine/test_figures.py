"""The machine as a whole: what psutil reads, as values and in words."""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest

from nodectl.cli.checks import usage
from nodectl.cli.checks.check import OK, WARN
from nodectl.client.render.machine_figures import figure_words
from nodectl.placement.machine import figures
from nodectl.placement.machine.figures import Disk, Figures, Login

GIB = 1 << 30
MADE_UP = Figures(
    cpus=4,
    load=(9.0, 8.5, 1.0),
    memory=8 * GIB,
    memory_available=GIB,
    swap=2 * GIB,
    swap_used=3 * GIB // 2,
    booted=1000.0,
    disks=(Disk("/dev/a", "/", "ext4", 100 * GIB, 99 * GIB, GIB),),
    sessions=tuple(Login(f"user{n}", "pts/0", "", 0.0) for n in range(10)),
    temperatures={"coretemp": 61.7},
)


def test_figures_are_those_of_this_machine_and_are_json() -> None:
    found = figures.read()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found.memory == pytest.approx(memory, rel=0.01)
    assert 0 < found.memory_available <= found.memory
    assert found.cpus == os.cpu_count()
    root = next(disk for disk in found.disks if disk.mount == "/")
    assert root.total == pytest.approx(shutil.disk_usage("/").total, rel=0.01)
    with open("/proc/uptime", encoding="ascii") as file:
        assert time.time() - found.booted == pytest.approx(float(file.read().split()[0]), abs=60)
    assert json.loads(json.dumps(found.as_json()))["disks"]


def test_a_disk_is_told_once_however_often_parts_of_it_are_mounted() -> None:
    devices = [disk.device for disk in figures.read().disks]
    assert len(devices) == len(set(devices))


def test_figures_are_told_in_words() -> None:
    assert list(figure_words(MADE_UP.as_json(), 1000.0 + 90_061)) == [
        ("up", "1-01:01:01"),
        ("load", "9.00 8.50 1.00 on 4 CPUs"),
        ("memory", "1.0 GiB of 8.0 GiB available"),
        ("swap space", "1.5 GiB of 2.0 GiB used"),
        ("disk /", "1.0 GiB of 100.0 GiB free"),
        ("sessions", "10, of user0, user1, user2, user3, user4, user5, user6, user7 and 2 more"),
        ("temperature", "coretemp 62 C"),
    ]


def test_doctor_tells_load_swap_and_full_disks() -> None:
    assert usage.load(MADE_UP).level == WARN
    assert usage.swap(MADE_UP.swap_used, MADE_UP.swap).level == WARN
    full = usage.full(MADE_UP.disks[0])
    assert full is not None
    assert (full.level, full.detail) == (WARN, "/: 1.0 GiB of 100.0 GiB are free")
    assert usage.full(Disk("/dev/a", "/", "ext4", 100 * GIB, 0, 100 * GIB)) is None
    assert usage.sessions(MADE_UP).level == OK
    assert {check.what for check in usage.all_checks()} >= {"load", "sessions"}
