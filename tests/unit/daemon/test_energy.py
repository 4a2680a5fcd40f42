"""Energy: counters that begin again, and whose it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodectl.service.daemon.steps.energy import EnergyBook, EnergyMeter

FULL = 262_143_328_850


def zone(root: Path, name: str, kind: str, count: int) -> Path:
    path = root / "sys/class/powercap" / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "name").write_text(f"{kind}\n")
    (path / "energy_uj").write_text(f"{count}\n")
    (path / "max_energy_range_uj").write_text(f"{FULL}\n")
    return path / "energy_uj"


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    for name, kind in (("intel-rapl:0:0", "core"), ("intel-rapl:2", "psys"), ("intel-rapl-mmio:0", "package-0")):
        zone(tmp_path, name, kind, 5)
    return zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)


def test_packages_are_counted_and_nothing_twice(tmp_path: Path, counter: Path) -> None:
    other = zone(tmp_path, "intel-rapl:1", "package-1", 7)
    meter = EnergyMeter(str(tmp_path))
    assert meter.counts
    assert meter.read() == 0
    counter.write_text("3500000\n")
    other.write_text("500007\n")
    (tmp_path / "sys/class/powercap/intel-rapl:2/energy_uj").write_text("99999999\n")
    assert meter.read() == pytest.approx(3.0)


def test_counter_that_begins_again_goes_on(tmp_path: Path, counter: Path) -> None:
    counter.write_text(f"{FULL - 1_000_000}\n")
    meter = EnergyMeter(str(tmp_path))
    for _ in range(2):
        counter.write_text("1000000\n")
        assert meter.read() == pytest.approx(2.0)


def test_machine_without_counters_counts_nothing(tmp_path: Path) -> None:
    meter = EnergyMeter(str(tmp_path))
    assert not meter.counts
    book = EnergyBook([(1, 0)], meter)
    book.begun(1, is_first=True)
    record = {"job": 1}
    assert book.with_energy(1, record) is record


def test_only_a_job_that_was_alone_is_told_what_it_took(tmp_path: Path, counter: Path) -> None:
    meter = EnergyMeter(str(tmp_path))

    async def alone() -> None:
        running = {(1, 0): None}
        book = EnergyBook(running, meter)
        book.begun(1, is_first=True)
        running[1, 1] = None
        book.begun(1, is_first=False)
        later(book)

    def later(book: EnergyBook) -> None:
        counter.write_text("4000000\n")
        assert book.with_energy(1, {"state": "COMPLETED"}) == {"state": "COMPLETED", "energy": 3.0}

    async def together() -> None:
        running: dict[tuple[int, int], None] = {(2, 0): None}
        book = EnergyBook(running, meter)
        book.begun(2, is_first=True)
        running[3, 0] = None
        book.begun(3, is_first=True)
        assert book.with_energy(3, {}) == {}
        del running[3, 0]
        running[2, 1] = None
        book.begun(2, is_first=False)  # only this step of it is alone
        assert book.with_energy(2, {}) == {}

    asyncio.run(alone())
    asyncio.run(together())
