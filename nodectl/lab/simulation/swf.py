"""The Standard Workload Format of the Parallel Workloads Archive: a job a line, 18 numbers, -1 for unknown.

The reader uses: number, submission, run time, processors and memory requested (or, without that, processors used), the
requested time, status, user, preceding job and think time. Memory is in KB for each processor. A line of status 2, 3 or
4 is a part of a job that has a line of its own, and is left out; so is a job without processors or without a run time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodectl.lab.simulation.workload import LONGEST_TIME, MOST_JOBS, BadWorkload, WorkJob, Workload, in_order

FIELDS = 18
_NUMBER = re.compile(rb"-?[0-9]{1,18}(?:\.[0-9]{0,18})?")
_HEADER = re.compile(rb";\s*([A-Za-z][A-Za-z ]{0,40}):\s*(.{0,200})")
_PARTS = (2, 3, 4)
_CANCELLED = 5
_MOST_PROCESSORS = 10_000_000
_NAMES = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip


def parse(path: str, data: bytes) -> Workload:
    """Return the workload of a file with this content. Raises BadWorkload with file and line number."""
    jobs: list[WorkJob] = []
    about: dict[str, str] = {}
    left_out: dict[str, int] = {}
    seen: set[int] = set()
    for line, text in _lines(data):
        where = f"{path}:{line}"
        if text.startswith(b";"):
            if header := _HEADER.match(text):
                about.setdefault(header[1].decode().strip(), header[2].decode("utf-8", "replace").strip())
            continue
        values = _values(where, text)
        if why := _left_out(values):
            left_out[why] = left_out.get(why, 0) + 1
            continue
        number = int(values[0])
        if number in seen:
            raise BadWorkload(f"{where}: job {number} is there twice")
        seen.add(number)
        jobs.append(_job(where, values))
        if len(jobs) > MOST_JOBS:
            raise BadWorkload(f"{where}: more than {MOST_JOBS} jobs")
    if not jobs:
        raise BadWorkload(f"{path}: no job is in it")
    notes = [f"left out: {count} {why}" for why, count in left_out.items()]
    # A job's predecessor must exist, or the job would never be submitted.
    jobs = [job if job.after in seen else _without_predecessor(job) for job in jobs]
    return in_order(path, jobs, [], about, notes)


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for line, text in enumerate(data.split(b"\n"), 1):
        if stripped := text.strip():
            yield line, stripped


def _values(where: str, text: bytes) -> list[float]:
    words = text.split(None, FIELDS)
    if len(words) != FIELDS:
        count = len(text.split()) if len(text) < 10_000 else "too many"
        raise BadWorkload(f"{where}: {count} fields; a job of the Standard Workload Format has {FIELDS}")
    values = []
    for name, word in zip(_NAMES, words, strict=True):
        if not _NUMBER.fullmatch(word):
            raise BadWorkload(f"{where}: {name} is {word[:40].decode('ascii', 'backslashreplace')!r}, not a number")
        values.append(float(word))
    return values


def _left_out(values: list[float]) -> str:
    if int(values[10]) in _PARTS:
        return "lines about parts of jobs"
    if values[3] < 0:
        return "jobs cancelled before they ran" if values[10] == _CANCELLED else "jobs without a run time"
    if values[7] <= 0 and values[4] <= 0:
        return "jobs without processors"
    return ""


def _job(where: str, values: list[float]) -> WorkJob:
    processors = int(values[7] if values[7] > 0 else values[4])
    if values[0] < 1:
        raise BadWorkload(f"{where}: job number {values[0]:g} is below 1")
    if values[1] < 0:
        raise BadWorkload(f"{where}: submit time {values[1]:g} is below 0")
    for name, value in (("submit time", values[1]), ("run time", values[3]), ("requested time", values[8])):
        if value > LONGEST_TIME:
            raise BadWorkload(f"{where}: {name} {value:g} is above {LONGEST_TIME}")
    if processors > _MOST_PROCESSORS:
        raise BadWorkload(f"{where}: {processors} processors are above {_MOST_PROCESSORS}")
    user = max(0, int(values[11]))
    return WorkJob(
        int(values[0]),
        values[1],
        (values[3],),
        limit=max(0, int(values[8])),
        user=f"user{user}",
        uid=100_000 + user,
        tasks=processors,
        mem_per_cpu=-(-int(max(0.0, values[9])) // 1024),
        exit_code=1 if values[10] == 0 else 0,
        after=max(0, int(values[16])),
        think=max(0.0, values[17]),
    )


def _without_predecessor(job: WorkJob) -> WorkJob:
    from dataclasses import replace

    return replace(job, after=0, think=0.0) if job.after else job
