"""What is kept for a job is counted as the daemon has it in its memory, which is more than its texts."""

from __future__ import annotations

import pytest

from nodectl.placement.binding.request import LayoutRequest
from nodectl.selection.records import JobDetails, JobRecord
from nodectl.service.daemon.controller import job_bytes

PLAIN = job_bytes.of(JobRecord(1))


@pytest.mark.parametrize(
    ("job", "least"),
    [
        (JobRecord(1, comment="x" * 1000), 1000),
        (JobRecord(1, array_tasks=",".join(map(str, range(0, 2000, 2)))), 1000 * 160),
        (JobRecord(1, details=JobDetails(dependency=",".join(["after:7"] * 100))), 100 * 500),
        (JobRecord(1, details=JobDetails(layout={"cpu_bind": "mask_cpu:0x1*1000,0x2"})), 1001 * 48),
        (JobRecord(1, details=JobDetails(layout={"cpu_bind": "mask_cpu:" + ",".join(["0x1"] * 1000)})), 1000 * 48),
        (JobRecord(1, details=JobDetails(argv=("x" * 500,), work_dir="/" * 500)), 1000),
        (JobRecord(1, details=JobDetails(_request=LayoutRequest(hosts=("n1",) * 1000))), 1000 * 48),
    ],
    ids=["comment", "array", "dependency", "repeated masks", "masks", "command", "hosts"],
)
def test_a_list_counts_as_its_objects_and_not_as_its_text(job: JobRecord, least: int) -> None:
    assert job_bytes.of(job) - PLAIN >= least


def test_a_plain_job_counts_little() -> None:
    assert 1 << 10 < PLAIN < 8 << 10
