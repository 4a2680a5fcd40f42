"""The commands beside `run`: what they print, made from values; none of this needs a service or root."""

from __future__ import annotations

import argparse
import json
import signal
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.cli import doctor, main, ps, send_signal, show, suspend
from nodectl.cli.catalogue import commands
from nodectl.cli.checks import check, machine
from nodectl.client import several_steps
from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.render import table, terminal
from nodectl.client.step_name import step_of
from nodectl.model import words
from nodectl.model.step_number import BATCH, EXTERN, FIRST
from nodectl.service.config_file import reader
from nodectl.view.timelines import timeline

HEAD = 'plugin_type = "spank"\nplugin_name = "mark"\nplugin_version = (22, 5, 8)\n'
RECORD: Mapping[str, Any] = {
    "job": 42,
    "step": 0,
    "name": "solve",
    "user": "alice",
    "uid": 1001,
    "gid": 100,
    "node": "n1",
    "command": ["./solve", "two words"],
    "cwd": "/home/alice",
    "ntasks": 2,
    "cpus": "f0f",
    "state": "FAILED",
    "reason": "task 1 was ended by signal 9",
    "exit_status": 137,
    "submitted": 1000.0,
    "started": 1001.5,
    "ended": 1065.0,
    "tasks": [
        {
            "task": 0,
            "pid": 70,
            "status": 0,
            "cpus": "1",
            "user_seconds": 1.5,
            "system_seconds": 0.25,
            "max_rss_kib": 2048,
            "peak_memory": 3 << 20,
            "pressure": {"cpu": [0.25, 0.0], "memory": [0.0, 0.0], "io": [1.04, 1.0]},
        },
        {"task": 1, "pid": 71, "status": 9, "cpus": "", "user_seconds": 0, "system_seconds": 0, "max_rss_kib": 900},
    ],
}
RUNNING: Mapping[str, Any] = {
    **{key: value for key, value in RECORD.items() if key not in ("exit_status", "started", "ended", "gid")},
    "state": "RUNNING",
    "reason": "",
    "pid": 69,
    "cgroup": "/nodectl/job_42/step_0",
    "tasks": [{"task": 0, "pid": 70, "status": None}, {"task": 1, "pid": -1, "status": None}],
}


def line(t: int, call: str, process: str, pid: int, **others: Any) -> dict[str, Any]:
    made = {"t": t * 1000, "call": call, "process": process, "pid": pid, "kind": "step", "plugin": "", "task": None}
    made |= {"ruid": 0, "euid": 0, "cgroup": "/a/stepd", "affinity": "3", "rc": 0, "us": 5}
    return made | others


TRACE: Sequence[Mapping[str, Any]] = (
    line(1000, "task_p_slurmd_launch_request", "daemon", 10, plugin="task/affinity", cgroup="/"),
    line(3000, "slurm_spank_user_init", "stepd", 20, plugin="mark", euid=1001, us=2500),
    line(6000, "task_p_pre_launch_priv", "task", 30, plugin="task/affinity", task=0, cgroup="/a/task_0"),
    line(6100, "become_user", "task", 30, task=0, ruid=1001, euid=1001, cgroup="/a/task_0", affinity="1"),
    # Written when it was over, after what the child it made had begun.
    line(5000, "fork", "stepd", 20, task=0, us=1_100),
    line(7000, "slurm_spank_task_post_fork", "stepd", 20, plugin="mark", task=0, rc=-1, note="no\x1b[31m"),
)


def drawn(*, colour: bool = False) -> list[str]:
    return timeline.timeline(TRACE, lambda uid: {0: "root"}.get(uid, f"user{uid}"), colour=colour)


def write(tmp_path: Path, text: str, name: str = "spank/mark.py") -> str:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("42.3", (42, 3)),
        ("42", (42, FIRST)),
        ("7.batch", (7, BATCH)),
        ("7.extern", (7, EXTERN)),
        ("4294967295.0", (4294967295, 0)),
    ],
)
def test_step_is_read(text: str, step: tuple[int, int]) -> None:
    assert step_of(text) == step


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "1.",
        ".1",
        "0",
        "0.1",
        "-1",
        "1.2.3",
        "x",
        "1.x",
        "1.Batch",
        "batch",
        " 1",
        "٤٢",
        "4294967296",
        "9" * 5000,
    ],
)
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no step|numbered"):
        step_of(text)


def test_table_columns_stand_below_their_header() -> None:
    assert table.table(("A", "LONG", "Z"), [("wide", 1, "x"), ("y", 22, "")], right=("LONG",)) == [
        "A     LONG  Z",
        "wide     1  x",
        "y       22",
    ]


def test_table_is_cut_only_to_a_width() -> None:
    assert table.table(("A", "B"), [("1234", "5678")], width=8) == ["A     B", "1234  5+"]
    assert table.table(("A", "B"), [("1234", "5678")], width=10)[1] == "1234  5678"
    assert table.table(("A",), []) == ["A"]


def test_text_of_others_cannot_move_the_cursor() -> None:
    assert words.printable("a\x1b[2J\nb\udcff") == "a\\x1b[2J\\nb\\udcff"
    assert table.table(("A",), [("\r",)])[1] == "\\r"


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "00:00:00"), (59.9, "00:00:59"), (3661, "01:01:01"), (90_061, "1-01:01:01")]
)
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_ps_shows_running_and_ended_steps() -> None:
    header, running, ended = ps.listing([RUNNING, RECORD], now=1060.0)
    assert header.split() == list(ps.HEADER)
    assert running.split()[:8] == ["42.0", "alice", "solve", "RUNNING", "2", "00:01:00", "0-3,8-11", "69"]
    assert ended.split()[3:8] == ["FAILED", "2", "00:01:03", "0-3,8-11", "-"]
    assert ended.endswith("./solve 'two words'")


def test_step_of_an_array_task_has_the_tasks_name() -> None:
    task = {**RECORD, "job": 48, "array_job": 45, "array_task": 3}
    assert ps.listing([task], now=1060.0)[1].split()[0] == "45_3.0"
    assert show.text_of(task, now=2000.0)[0].split() == ["step:", "45_3.0"]


def test_step_that_never_started_took_no_time() -> None:
    assert words.elapsed({**RECORD, "started": None}, now=5000.0) == 0


def test_show_says_how_each_task_ended() -> None:
    text = show.text_of(RECORD, now=2000.0)
    assert "exit status:  137 (signal 9 (SIGKILL))" in text
    assert "user:         alice (uid 1001, gid 100)" in text
    assert [row.split() for row in text[-2:]] == [
        ["0", "70", "exit", "code", "0", "0", "1.500", "s", "0.250", "s", "2.0", "MiB", "3.0", "MiB",
         "0.2/0.0/1.0"],
        ["1", "71", "signal", "9", "(SIGKILL)", "-", "0.000", "s", "0.000", "s", "900", "KiB", "-", "-"],
    ]  # fmt: skip


def test_show_tells_limits_and_what_came_of_them() -> None:
    limits = {"cpuset.cpus": "0-3", "memory.max": str(64 << 20), "memory.high": str(64 << 20), "pids.max": "40",
              "cpu.max": "150000 100000", "io.max": "8:0 rbps=1 wbps=max\n8:16 rbps=2 wbps=max",
              "hugetlb.2MB.max": str(4 << 20)}  # fmt: skip
    used = {"peak_memory": 1 << 20, "memory": 64, "throttled_seconds": 1.5, "read_bytes": 2 << 20, "written_bytes": 0}
    text = show.text_of({**RECORD, "limits": limits, **used}, now=2000.0)
    said = {name: words for name, _, words in (row.partition(": ") for row in text)}
    assert said["peak memory"].strip() == "1.0 MiB of 64.0 MiB"
    assert said["limits"].strip() == (
        "memory 64.0 MiB, processes 40, CPU time 150%, disks 8:0 rbps=1 wbps=max; 8:16 rbps=2 wbps=max, "
        "pages of 2MB 4.0 MiB"
    )
    assert said["over its CPU time"].strip() == "1.500 s without any"
    assert said["disks"].strip() == "2.0 MiB read, 0 B written"


def test_show_of_a_running_step_has_no_end() -> None:
    text = show.text_of(RUNNING, now=1060.0)
    assert not [row for row in text if row.startswith(("ended", "exit status", "reason"))]
    assert text[-2].split()[:3] == ["0", "70", "running"]
    assert text[-1].split()[:4] == ["1", "-", "not", "started"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("TERM", 15),
        ("sigkill", 9),
        ("9", 9),
        ("64", 64),
        ("RTMIN", signal.SIGRTMIN),
        ("SIGRTMIN+2", signal.SIGRTMIN + 2),
        ("rtmax-1", signal.SIGRTMAX - 1),
    ],
)
def test_signals_are_read_by_name_and_number(text: str, number: int) -> None:
    assert send_signal.signal_of(text) == number


@pytest.mark.parametrize("text", ["0", "65", "", "SIG", "FOO", "SIGSIGTERM", "RTMIN+99", "-9", "SIG_IGN", "RTMIN+-1"])
def test_what_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="signal"):
        send_signal.signal_of(text)


def test_steps_after_one_that_failed_are_asked_for_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    class Service:
        def __init__(self, settings: GlobalOptions) -> None:
            pass

        def call(self, method: str, **words: int) -> Mapping[str, object]:
            asked.append((method, *words.values()))
            if words["job"] == 1:
                raise Failed("has ended")
            return {"running": [70, 71] if words["job"] == 2 else []}

        def close(self) -> None:
            asked.append(("close",))

    monkeypatch.setattr(several_steps, "Session", Service)
    given = argparse.Namespace(settings=GlobalOptions(), jobs=["1.0", "2.3", "3.0", "1.0"], signal=15)
    assert suspend.main(given) == 1
    assert capsys.readouterr().err == (
        "nodectl: error: suspend 1.0: has ended\n"
        "nodectl: error: suspend 2.3: hanging in the kernel, not suspended: 70, 71\n"
    )
    assert asked == [("Suspend", 1, 0), ("Suspend", 2, 3), ("Suspend", 3, 0), ("close",)]
    given.jobs = ["2.3", "3.0"]
    assert send_signal.main(given) == 0
    assert asked[4:] == [("Signal", 2, 3, 15), ("Signal", 3, 0, 15), ("close",)]


def test_timeline_is_in_order_of_time_with_a_heading_for_each_change_of_process() -> None:
    text = drawn()
    assert text[0] == "6 calls in 3 processes, 6.005 ms"
    assert [row for row in text if row.startswith("==")] == [
        "== daemon, pid 10 ==",
        "== stepd, pid 20 ==",
        "== task 0, pid 30 ==",
        "== stepd, pid 20 ==",
    ]
    assert [row.split()[0] for row in text if row[:1].isdigit()][1:] == [
        "0.000",
        "2.000",
        "4.000",
        "5.000",
        "5.100",
        "6.000",
    ]


def test_timeline_shows_identity_cgroup_and_cpus_where_they_change() -> None:
    text = [" ".join(row.split()) for row in drawn()]
    assert "2.000 root as user1001 slurm_spank_user_init mark 2.50 ms" in text
    assert "5.100 user1001 become_user - 5 us" in text
    assert "cgroup /a/task_0, CPUs 0-1" in text
    assert "now CPUs 0" in text
    assert text.count("cgroup /a/stepd, CPUs 0-1") == 1
    assert "4.000 root fork [0] - 1.10 ms" in text


def test_timeline_shows_failures_and_no_control_characters() -> None:
    assert drawn()[-1].endswith("5 us  rc -1: no\\x1b[31m")
    assert not [row for row in drawn() if not row.isprintable()]


def test_timeline_in_colour_has_the_same_text() -> None:
    bare = "\n".join(drawn(colour=True))
    for code in (*timeline._COLOURS.values(), "0"):
        bare = bare.replace(f"\x1b[{code}m", "")
    assert [row.rstrip() for row in bare.split("\n")] == drawn()


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.wants_colour()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.wants_colour()


def test_config_prints_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "kill_wait = 7\n", "nodectl.toml")
    for options in ([], ["--explain"]):
        assert main.main(["--config", path, "config", *options]) == 0
        told = capsys.readouterr().out
        assert all(len(line) <= 100 for line in told.splitlines() if line.startswith("#"))
        values = tomllib.loads(told)
        assert values["kill_wait"] == 7
        assert reader.build(values) == reader.load(path, must_exist=True)
    assert main.main(["--config", path, "config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kill_wait"] == 7
    assert main.main(["--config", path, "config", "--json", "--explain"]) == 0
    assert json.loads(capsys.readouterr().out)["kill_wait"]["default"] == "30"


def test_config_that_is_not_valid_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "kill_wait = -1\n", "nodectl.toml")
    assert main.main(["--config", path, "config"]) == 1
    assert capsys.readouterr().err.startswith(f"nodectl: error: {path}: kill_wait: is -1")


def test_doctor_looks_for_no_service_where_the_configuration_is_not_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "kill_wait = -1\n", "nodectl.toml")
    assert main.main(["--config", path, "doctor"]) == 1
    told = capsys.readouterr().out
    assert told.startswith(f"fail  configuration        {path}: kill_wait: is -1")
    assert "service  " not in told


@pytest.mark.parametrize(
    ("release", "levels"),
    [("6.1.0-9-amd64", ["ok"]), ("5.14", ["ok"]), ("5.10.0", ["fail", "warn"]), ("4.19+", ["warn", "fail", "warn"])],
)
def test_kernels_are_judged_by_what_they_lack(release: str, levels: list[str]) -> None:
    assert [found.level for found in machine.kernel(release)] == levels


def test_controllers_that_v1_holds_are_named() -> None:
    mounts = ["cgroup /c/cpu cgroup rw,cpu 0 0", "cgroup2 /c/unified cgroup2 rw 0 0", "cgroup /c/b cgroup rw,blkio 0 0"]
    found = list(machine.controllers(["cpuset", "memory", "pids"], machine.v1_controllers(mounts)))
    assert found[0].detail == "cpuset memory pids"
    assert [one.detail.partition(",")[0] for one in found[1:]] == [
        "cpu belongs to cgroup v1",
        "io belongs to cgroup v1",
    ]
    assert not machine.v1_controllers(mounts[1:2])


def test_capabilities_that_root_lacks_are_named() -> None:
    everything = (1 << 41) - 1
    assert [one.level for one in machine.capabilities(everything, 0)] == ["ok"]
    (found,) = machine.capabilities(everything & ~(1 << 24), 0)
    assert "CAP_SYS_RESOURCE is missing: oom_score_adj cannot be lowered" in found.detail
    assert "fail" in {one.level for one in machine.capabilities(0, 0)}
    assert not list(machine.capabilities(0, 1001))


def test_report_has_a_line_for_each_finding_and_their_number() -> None:
    found = [check.Check("ok", "root", "yes"), check.Check("warn", "kernel", "old", "use a new one")]
    assert doctor.report(found) == [
        "ok    root    yes",
        "warn  kernel  old -> use a new one",
        "",
        "1 ok, 1 warn, 0 fail",
    ]


def test_doctor_fails_for_a_required_plugin_that_is_missing(tmp_path: Path) -> None:
    stack = write(tmp_path, "required absent\noptional gone\n", "plugstack.conf")
    found = list(doctor.plugin_checks(reader.build({"plugstack_config": stack})))
    assert [(one.level, one.what) for one in found] == [("ok", "plugins"), ("fail", "plugins"), ("warn", "plugins")]
    assert str(found[1]).startswith(f"{stack}:1: required plugin absent is missing")


@pytest.mark.parametrize("command", [name for name, one in commands().items() if not one.reads_words])
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([command, "--help"])
    assert ended.value.code == 0
    assert f"Usage: nodectl {command}" in capsys.readouterr().out
