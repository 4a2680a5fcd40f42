"""Workloads read from files: what a good one means, and that a bad one costs one clear line with its number."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.lab.simulation import json_workload, swf
from nodectl.lab.simulation.workload import BadWorkload, NodeEvent
from nodectl.lab.simulation.workload_file import read

# Fields: number, submit, wait, run, processors, cpu, memory, asked, limit, asked memory, status, user, group,
# executable, queue, partition, preceding, think.
JOB = "1 0 -1 60 4 -1 -1 -1 120 -1 1 7 1 -1 1 -1 -1 -1"


def of_swf(*lines: str) -> object:
    return swf.parse("a.swf", "\n".join(lines).encode())


def test_a_job_of_the_standard_workload_format_is_read() -> None:
    workload = swf.parse(
        "a.swf",
        b"; Computer: some machine\n;   MaxProcs: 128\n; a comment\n\n"
        b"  3 90 -1 12.5 8 -1 -1 16 600 2048 0 7 1 -1 1 -1 1 30\n" + JOB.encode(),
    )
    assert workload.about == {"Computer": "some machine", "MaxProcs": "128"}
    first, second = workload.jobs  # by submission
    assert (first.number, first.submit, first.runs, first.limit, first.cpus, first.user) == (
        1, 0, (60,), 120, 4, "user7",
    )  # fmt: skip
    assert (first.mem_per_cpu, first.after, first.exit_code) == (0, 0, 0)
    assert (second.cpus, second.runs, second.mem_per_cpu) == (16, (12.5,), 2)
    assert (second.after, second.think, second.exit_code) == (1, 30, 1)


def test_what_is_no_job_of_its_own_is_left_out_and_told() -> None:
    part = JOB.replace("1 0 -1 60 4 -1 -1 -1 120 -1 1", "1 0 -1 60 4 -1 -1 -1 120 -1 3")
    cancelled = JOB.replace("1 0 -1 60", "2 0 -1 -1").replace("120 -1 1 7", "120 -1 5 7")
    without = JOB.replace("1 0 -1 60 4", "3 0 -1 60 -1")
    workload = swf.parse("a.swf", "\n".join([part, JOB, cancelled, without]).encode())
    assert [job.number for job in workload.jobs] == [1]
    assert workload.notes == (
        "left out: 1 lines about parts of jobs",
        "left out: 1 jobs cancelled before they ran",
        "left out: 1 jobs without processors",
    )


def test_a_job_whose_predecessor_is_left_out_waits_for_nobody() -> None:
    workload = swf.parse("a.swf", JOB.replace("-1 -1 -1", "-1 99 40").replace("1 0", "5 0", 1).encode())
    assert [(job.after, job.think) for job in workload.jobs] == [(0, 0)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 2 3", "a.swf:2: 3 fields; a job of the Standard Workload Format has 18"),
        (JOB + " 4", "a.swf:2: 19 fields"),
        (JOB.replace("60", "soon"), "a.swf:2: run time is 'soon', not a number"),
        (JOB.replace("60", "1e9"), "a.swf:2: run time is '1e9', not a number"),
        (JOB.replace("60", "nan"), "a.swf:2: run time is 'nan', not a number"),
        (JOB.replace("60", "99999999999"), "a.swf:2: run time 1e+11 is above 2147483648"),
        (JOB.replace("1 0", "0 0", 1), "a.swf:2: job number 0 is below 1"),
        (JOB.replace("1 0", "1 -3", 1), "a.swf:2: submit time -3 is below 0"),
        (JOB.replace(" 4 ", " 99999999 "), "a.swf:2: 99999999 processors are above 10000000"),
        (JOB + "\n" + JOB, "a.swf:3: job 1 is there twice"),
        ("\x00\xff" * 9, "a.swf:2: 1 fields"),
        ("; nothing", "a.swf: no job is in it"),
    ],
)
def test_a_bad_line_is_told_with_its_number(line: str, words: str) -> None:
    with pytest.raises(BadWorkload) as refused:
        of_swf("; head", line)
    assert str(refused.value).startswith(words)


@given(st.binary(max_size=200))
def test_no_bytes_make_a_reader_fail_otherwise(data: bytes) -> None:
    for parse in (swf.parse, json_workload.parse):
        with suppress(BadWorkload):
            parse("file", data)


def of_json(text: str) -> object:
    return json_workload.parse("a.json", text.encode())


def test_jobs_in_json_are_read() -> None:
    workload = json_workload.parse(
        "a.json",
        json.dumps(
            {
                "jobs": [
                    {"run": [1, 2], "array": "0-9%2", "user": "ann", "submit": 5, "gres": {"gpu": 2}, "memory": 64},
                    {"run": 3.5, "id": 7, "tasks": 4, "cpus_per_task": 2, "dependency": "afterok:1", "nice": -3},
                    {"run": 1, "user": "ben", "after": 7, "think": 9, "requeue": False, "exclusive": True},
                ],
                "events": [{"time": 9, "node": "n1", "state": "resume"}, {"time": 3, "node": "n1", "state": "drain"}],
            }
        ).encode(),
    )
    second, third, first = workload.jobs
    assert (first.number, first.array, first.array_limit, first.gres, first.memory) == (
        1, "0-9", 2, (("gpu", 2),), 64,
    )  # fmt: skip
    assert [first.run_of(task) for task in (0, 1, 2)] == [1, 2, 1]
    assert (second.number, second.cpus, second.dependency, second.nice, second.user) == (7, 8, "afterok:1", -3, "root")
    assert (third.after, third.think, third.requeue, third.exclusive) == (7, 9, False, True)
    assert first.uid != third.uid
    assert second.uid == 0
    assert workload.events == (NodeEvent(3, "n1", "drain"), NodeEvent(9, "n1", "resume"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[\n{"run": 1},\n{"run": 1,}]', "a.json:3: not JSON: "),
        ('[\n\n{"tasks": 1}]', "a.json:3: run is missing"),
        ('[{"run": 1},\n{"run": 1, "gres": {\n"gpu": "x"}}]', "a.json:2: gres: 'x' is no whole number"),
        ('[{"run": 1},\n{"run": 1, "cores": 3}]', "a.json:2: 'cores' is unknown"),
        ('[{"run": 1},\n{"run": 1, "tasks": 0}]', "a.json:2: tasks: 0 is below 1"),
        ('[{"run": 1},\n{"run": 1, "tasks": true}]', "a.json:2: tasks: True is no whole number"),
        ('[{"run": 1},\n{"run": NaN}]', "a.json:2: run: nan is no time"),
        ('[{"run": 1},\n{"run": -1}]', "a.json:2: run: -1 is no time"),
        ('[{"run": 1},\n{"run": 1, "id": 1}]', "a.json:2: job 1 is there twice"),
        ('[{"run": 1},\n{"run": 1, "after": 5}]', "a.json:2: after: there is no job 5"),
        ('[{"run": 1, "array": "0-9%x"}]', "a.json:1: array: 'x' is no whole number"),
        ('[{"run": 1}, 4]', "a.json: job 2: not an object"),
        ("[]", "a.json: no job is in it"),
        ("3", 'a.json: no list "jobs" is in it'),
        ('{"jobs": [{"run": 1}], "job": 3}', "a.json: 'job' is unknown beside jobs, events and about"),
        ('{"jobs": [{"run": 1}],\n"events": [{"time": 1, "node": "n", "state": "gone"}]}', "a.json:2: state: 'gone'"),
        ("[" * 100_000, "a.json: not JSON"),
        ("9" * 5000, "a.json: not JSON"),
    ],
)
def test_a_bad_document_is_told_with_its_line(text: str, words: str) -> None:
    with pytest.raises(BadWorkload) as refused:
        of_json(text)
    assert str(refused.value).startswith(words)
    assert len(str(refused.value)) < 200


def test_the_kind_of_a_file_is_known_by_its_name_or_its_first_character(tmp_path: Path) -> None:
    (tmp_path / "one").write_text(' [{"run": 1}]')
    (tmp_path / "two").write_text(JOB)
    assert [len(read(str(tmp_path / name)).jobs) for name in ("one", "two")] == [1, 1]
