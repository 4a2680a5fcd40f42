"""The lines of the verbose reports have Slurm's columns."""

from __future__ import annotations

import pytest

from nodectl.placement.binding import report

WHO = report.subject("bed", 3, 1, 5567)


@pytest.mark.parametrize(
    ("kind", "mask", "got", "line"),
    [
        ("mask_cpu:", 0x101, 0x101, "cpu-bind=MASK - bed, task  3  1 [5567]: mask 0x101 set"),
        ("map_cpu:", 0x2, 0x2, "cpu-bind=MAP  - bed, task  3  1 [5567]: mask 0x2 set"),
        ("none", 0, 0xFF, "cpu-bind=NONE - bed, task  3  1 [5567]: mask 0xff"),
        ("cores,map_ldom:", 0xF, 0xF, "cpu-bind-cores=LDMAP  - bed, task  3  1 [5567]: mask 0xf set"),
        ("mask_cpu:", 0x3, 0x1, "cpu-bind=MASK - bed, task  3  1 [5567]: mask 0x3 set FAILED"),
    ],
)
def test_report_about_cpus(kind: str, mask: int, got: int, line: str) -> None:
    assert report.cpu_line(kind, WHO, mask=mask, got=got) == line


def test_report_about_memory() -> None:
    assert (
        report.memory_line("local", WHO, prefer=False, mask=1) == "mem-bind=LOC - bed, task  3  1 [5567]: mask 0x1 set"
    )
    preferred = report.memory_line("map_mem:", WHO, prefer=True, mask=2)
    assert preferred == "mem-bind PREFER MAP - bed, task  3  1 [5567]: mask 0x2 set"
