"""The trace of a launch is the table of hooks: its rows in their order, where and as whom the table says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest

from lint.test_launch_guide import hops
from nodectl.model.launch_order import HOOKS, ROWS, Hook
from nodectl.plugin_host.tracing.recorder import FIELDS
from rootful.node import NOBODY
from rootful.stage import CONTAINER, PROCTRACK, SPANK_PLUGINS, TASK_PLUGINS, Stage, staged

Line = dict[str, object]
SLACK = 1000  # ns: `us` is cut to whole microseconds
NOT_CONFIGURED = ("prolog_slurmctld", "epilog_slurmctld")
TASK_HOOKS_OF = {
    "task/cgroup": ("task_p_pre_setuid",),
    "task/affinity": ("task_p_slurmd_launch_request", "task_p_pre_launch_priv", "task_p_pre_launch"),
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(jobs=True) as started:
        yield started


def traced(stage: Stage, ntasks: int) -> list[Line]:
    """The lines of a step that goes through every row."""
    script = stage.node.dir / "script"
    script.write_text("#!/bin/sh\n", encoding="utf-8")
    script.chmod(0o755)
    words = [f"-n{ntasks}", "--first=a", "--second=b", f"--task-prolog={script}", f"--task-epilog={script}"]
    done = stage.node.run(*words, "--cpu-bind=map_cpu:0", "true", user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return whole_trace(stage)


def whole_trace(stage: Stage) -> list[Line]:
    """The lines of the step that ran last, when its job's epilog is over."""
    job = stage.last_job()
    stage.node.call("Wait", job=job, step=0, epilog=True)
    return stage.node.trace(job)


def plugins_of(row: Hook) -> tuple[str, ...]:
    """Who is called in a row, in order; "" for nodectl itself."""
    if row.kind == "spank":
        return SPANK_PLUGINS
    if row.kind == "proctrack":
        return (PROCTRACK,)
    if row.kind == "mpi":
        return ()  # of a step with --mpi
    if row.kind == "job_container":
        return (CONTAINER,)
    if row.kind == "task":
        return tuple(name for name in TASK_PLUGINS if row.call in TASK_HOOKS_OF.get(name, (row.call,)))
    return ("",)


def expected(process: str) -> list[tuple[str, str]]:
    rows = (row for row in HOOKS if row.process == process and row.call not in NOT_CONFIGURED)
    return [(row.call, name) for row in rows for name in plugins_of(row)]


def start(line: Line) -> int:
    return int(str(line["t"]))


def end(line: Line) -> int:
    return start(line) + int(str(line["us"])) * 1000


def of(lines: list[Line], call: str) -> list[Line]:
    return [line for line in lines if line["call"] == call]


@pytest.mark.parametrize("ntasks", [1, 4, 32])
def test_every_process_goes_through_its_rows_in_the_order_of_the_table(stage: Stage, ntasks: int) -> None:
    lines = traced(stage, ntasks)
    for process, processes in (("daemon", 1), ("stepd", 1), ("job script", 2), ("container", 1)):
        ours = [line for line in lines if line["process"] == process]
        assert len({line["pid"] for line in ours}) == processes
        for rank in range(ntasks):  # what concerns other tasks may come between
            seen = [(line["call"], line["plugin"]) for line in ours if line["task"] in (None, rank)]
            assert seen == expected(process)
    for rank in range(ntasks):
        ours = [line for line in lines if line["process"] == "task" and line["task"] == rank]
        assert len({line["pid"] for line in ours}) == 1
        assert [(line["call"], line["plugin"]) for line in ours] == expected("task")
    # Calls of one process never overlap but for its scripts, and nothing else was recorded.
    for pid in {line["pid"] for line in lines}:
        calls = [line for line in lines if line["pid"] == pid and line["call"] != "task_epilog"]
        for before, after in pairwise(calls):
            assert end(before) <= start(after) + SLACK
    assert {line["process"] for line in lines} == {"daemon", "stepd", "task", "job script", "container"}
    # The job is around the step, and each script behind the hooks of its moment.
    ours = [line for line in lines if line["process"] != "task"]
    assert [line["call"] for line in ours if line["kind"] != "task"][:3] == ["slurm_spank_job_prolog"] * 2 + ["prolog"]
    last = ["slurm_spank_job_epilog", "slurm_spank_job_epilog", "epilog", "container_p_delete",
            "task_p_slurmd_release_resources"]  # fmt: skip
    assert [line["call"] for line in ours][-5:] == last
    begun = [start(line) for line in ours if line["call"] != "task_epilog"]  # written when it is over
    assert begun == sorted(begun)


@pytest.mark.parametrize("ntasks", [1, 4, 32])
def test_no_user_code_runs_before_every_task_is_forked_and_announced(stage: Stage, ntasks: int) -> None:
    lines = traced(stage, ntasks)
    (opened,) = of(lines, "open_gate")
    forked, announced = of(lines, "fork"), of(lines, "slurm_spank_task_post_fork")
    assert len(forked) == ntasks
    assert len(announced) == ntasks * len(SPANK_PLUGINS)
    assert min(map(start, of(lines, "proctrack_p_add"))) >= max(map(end, forked)) - SLACK
    assert min(map(start, announced)) >= max(map(end, forked))
    assert max(map(end, announced)) <= start(opened)
    after = {row.call for row in HOOKS[HOOKS.index(ROWS["gate"]) + 1 :] if row.process == "task"}
    late = [line for line in lines if line["process"] == "task" and line["call"] in after]
    assert len(late) == ntasks * len([row for row in expected("task") if row[0] in after])
    assert min(map(start, late)) >= start(opened)
    assert min(map(end, of(lines, "gate"))) + SLACK >= start(opened)


@pytest.mark.parametrize("ntasks", [1, 4])
def test_every_line_tells_as_whom_where_and_what_came_of_it(stage: Stage, ntasks: int) -> None:
    lines = traced(stage, ntasks)
    user = {"ruid": NOBODY.pw_uid, "euid": NOBODY.pw_uid, "rgid": NOBODY.pw_gid, "egid": NOBODY.pw_gid}
    identities = {
        "root": {"ruid": 0, "euid": 0, "rgid": 0, "egid": 0},
        "effective user": {**user, "ruid": 0, "rgid": 0},
        "user": user,
    }
    for line in lines:
        row = ROWS[str(line["call"])]
        assert set(line) - {"note"} == set(FIELDS)
        assert line["kind"] == row.kind
        assert line["process"] == row.process
        assert {name: line[name] for name in user} == identities[row.identity], line
        assert (int(str(line["caps"]), 16) == 0) == (row.identity != "root"), line
        if row.identity != "root":
            assert set(line["groups"]) == {NOBODY.pw_gid}, line  # type: ignore[call-overload]
        assert line["rc"] == 0
        assert 0 <= int(str(line["us"])) < 10_000_000
        if row.process == "task":
            assert str(line["cgroup"]).endswith(f"/step_0/user/task_{line['task']}"), line
        elif row.process == "job script":
            assert str(line["cgroup"]).endswith(f"/job_{stage.last_job()}/{row.call.rpartition('_')[2]}"), line
        elif row.process == "stepd":
            assert str(line["cgroup"]).endswith("/step_0/stepd"), line
    starts = [start(line) for line in lines]
    assert max(starts) - min(starts) < 30e9


def test_walk_of_the_guide_has_its_hops_in_the_order_of_a_trace(stage: Stage) -> None:
    # The stepd waits for the task's first call: otherwise it may announce the task before that call.
    trace = stage.node.steps / f"{stage.last_job() + 1}.0.trace"
    started = f'while "task_p_pre_launch_priv" not in open({str(trace)!r}).read(): time.sleep(0.001)'
    stage.order("proctrack.proctrack_p_add", started)
    lines = traced(stage, 1)
    stage.reset_orders()
    walked = hops()
    rows = {row.call for hop in walked for row in hop.rows}
    assert {line["call"] for line in lines} == {call for call in rows if ROWS[call].kind != "mpi"} - {*NOT_CONFIGURED}
    calls = [{row.call for row in hop.rows} for hop in walked]
    begun = [[start(line) for line in lines if line["call"] in one] for one in calls]
    firsts = [min(starts) for starts in begun if starts]
    assert firsts == sorted(firsts)


def test_a_task_joins_its_container_when_its_tracker_has_it(stage: Stage) -> None:
    stage.order("proctrack.proctrack_p_add", "time.sleep(0.1)")  # no task is that slow
    lines = traced(stage, 2)
    stage.reset_orders()
    for rank in (0, 1):
        ours = [line for line in lines if line["task"] == rank]
        (added,), (joined,) = of(ours, "proctrack_p_add"), of(ours, "container_p_add_pid")
        assert end(added) <= start(joined) + SLACK


def test_affinity_holds_from_the_hook_that_binds_on(stage: Stage) -> None:
    for rank in range(4):
        ours = [line for line in traced(stage, 4) if line["process"] == "task" and line["task"] == rank]
        assert next((line["call"], line["plugin"]) for line in ours) == ("task_p_pre_launch_priv", "task/affinity")
        assert {int(str(line["affinity"]), 16) for line in ours} == {1}


def test_trace_option_of_run_writes_what_the_trace_command_prints(stage: Stage) -> None:
    path = stage.node.scratch / "trace"
    done = stage.node.run("-n2", "--trace", str(path), "true", user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    written = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    assert written == stage.node.trace(stage.last_job())
    assert [line["call"] for line in written if line["process"] == "stepd"][-1] == "proctrack_p_destroy"
    assert written[-1]["call"] == "task_p_slurmd_release_resources"
