"""A step over several nodes, a part of it on each: what its tasks, its plugins and its client are told."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.cluster.leader.parts import Part, parts_of
from nodectl.launch.stepd.orders import WAITING
from nodectl.model.cpu_list import lowest
from nodectl.placement.binding.allocation import Allocation
from nodectl.placement.binding.request import Settings
from nodectl.placement.binding.step import place
from nodectl.placement.machine.spec import from_spec
from oracle.cases import request as options_of
from rootful.native import HEAD, HOOK, compiled
from rootful.node import wait_until
from rootful.own import OwnNode, own_node
from rootful.parts import JOB, MACHINE, PartRun, by_hand, call, laid_out, request, run

Nodes = tuple[OwnNode, OwnNode, OwnNode]
RECORDED = json.loads(Path(__file__).with_name("srun_on_three_nodes.json").read_text(encoding="utf-8"))
"""What tasks were told by a real Slurm."""
SAY = """
    static const struct { const char *name; int item; } items[] = {
        {"nnodes", S_JOB_NNODES}, {"nodeid", S_JOB_NODEID}, {"here", S_JOB_LOCAL_TASK_COUNT},
        {"total", S_JOB_TOTAL_TASK_COUNT}, {"job", S_JOB_ID}, {"step", S_JOB_STEPID}, {"local", S_TASK_ID},
        {"global", S_TASK_GLOBAL_ID},
    };
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        uint32_t value = 77;
        spank_err_t code = spank_get_item(sp, items[i].item, &value);
        slurm_error("%s %s %d %d", HOOK, items[i].name, (int)code, (int)value);
    }
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t global = 77, local = 77;
        int codes[2] = {spank_get_item(sp, S_JOB_LOCAL_TO_GLOBAL_ID, i, &global),
                        spank_get_item(sp, S_JOB_GLOBAL_TO_LOCAL_ID, i, &local)};
        slurm_error("%s convert %d %d %d %d %d", HOOK, (int)i, codes[0], (int)global, codes[1], (int)local);
    }
"""
ESPANK_BAD_ARG, ESPANK_NOT_TASK, ESPANK_NOEXIST = 3001, 3002, 3007


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with own_node() as first, own_node() as second, own_node() as third:
        yield first, second, third


def as_recorded(case: dict[str, Any], number: int) -> list[Part]:
    """The parts of a step of the same options: on three nodes, with one CPU on each."""
    names = ("n1", "n2", "n3")
    machines = (from_spec("1s:1c:1t"),) * len(names)
    asked = options_of(case["args"], {})
    held = Allocation.of_masks(machines, dict.fromkeys(range(len(names)), 1), names)
    layout = place(machines, held, asked, Settings())
    whole, own = parts_of(layout, names, (int(RECORDED["alloc"]["SLURM_JOB_ID"]), number))
    cpu = f"{1 << lowest(MACHINE.usable):x}"
    return [{**whole, **part, "cpus": cpu, "masks": [cpu for _ in part["masks"]]} for part in own.values()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", RECORDED["steps"], ids=lambda case: " ".join(case["args"]))
def test_tasks_are_told_what_srun_tells_them_on_three_nodes(nodes: Nodes, case: dict[str, Any]) -> None:
    parts = as_recorded(case, int(case["all"]["SLURM_STEP_ID"]))
    environment = {"PATH": "/usr/bin:/bin", **RECORDED["alloc"]}
    ended = run(nodes[: len(parts)], parts, ["env"], label=True, environment=environment)
    told: dict[int, dict[str, str]] = {}
    for line in "".join(one.out for one in ended).splitlines():
        task, _, variable = line.partition(": ")
        name, _, value = variable.partition("=")
        told.setdefault(int(task), {})[name] = value
    assert sorted(told) == list(range(len(case["each"])))
    for number, own in enumerate(case["each"]):
        wanted = {**case["all"], **own}
        assert {name: told[number].get(name) for name in wanted} == wanted, f"task {number}"


def test_labels_are_the_numbers_of_the_whole_step_and_as_wide(nodes: Nodes) -> None:
    first, second = run(nodes[:2], by_hand(0, ["0-1,10", "2-9"]), ["sh", "-c", "echo $SLURM_PROCID"], label=True)
    assert sorted(first.out.splitlines()) == [" 0: 0", " 1: 1", "10: 10"]
    assert sorted(second.out.splitlines()) == [f" {task}: {task}" for task in range(2, 10)]


def test_names_of_files_say_which_task_of_which_node(nodes: Nodes) -> None:
    run(nodes[:2], by_hand(5, ["0-1", "2"]), ["hostname"], stdout="f.%t.%n.%N.%s.%J.%j.%3t")
    files = [sorted(path.name for path in node.home.glob("f.*")) for node in nodes[:2]]
    # As srun has written them.
    assert files == [
        [f"f.0.0.n1.5.{JOB}.5.{JOB}.000", f"f.1.0.n1.5.{JOB}.5.{JOB}.001"],
        [f"f.2.1.n2.5.{JOB}.5.{JOB}.002"],
    ]


def test_a_file_of_all_nodes_is_emptied_by_none_and_one_of_a_node_by_that(nodes: Nodes) -> None:
    """What a node empties late may be what another one's tasks have written."""
    shared = nodes[0].home
    names = ["common", "common.labelled", "n1.own", "n2.own"]
    for name in names:
        (shared / name).write_text("before\n")
        (shared / name).chmod(0o666)
    for step, (pattern, label) in enumerate([("common", False), ("common.labelled", True), ("%N.own", False)], 10):
        run(
            nodes[:2], by_hand(step, ["0,2", "1,3"]), ["sh", "-c", "echo $SLURM_PROCID"], label=label,
            stdout=f"{shared}/{pattern}",
        )  # fmt: skip
    found = {name: sorted((shared / name).read_text().splitlines()) for name in names}
    assert found == {
        "common": ["0", "1", "2", "3", "before"],
        "common.labelled": ["0: 0", "1: 1", "2: 2", "3: 3", "before"],
        "n1.own": ["0", "2"],
        "n2.own": ["1", "3"],
    }


@pytest.mark.parametrize(("stream", "number"), [("stdin", 20), ("stdout", 21), ("stderr", 22)])
def test_a_stream_of_one_task_is_that_of_one_node(nodes: Nodes, stream: str, number: int) -> None:
    parts = by_hand(number, ["0,3", "1-2"])
    argv = ["sh", "-c", "read line; echo $SLURM_PROCID $line; echo err $SLURM_PROCID >&2"]
    begun = [
        PartRun(node, request(node, part, argv, **{stream: "1"}), b"typed\n")
        for node, part in zip(nodes[:2], parts, strict=True)
    ]
    for one in begun:
        assert one.end()["state"] == "COMPLETED"
    if stream == "stdin":
        assert [sorted(one.out.splitlines()) for one in begun] == [["0", "3"], ["1 typed", "2"]]
    else:
        outputs = [sorted((one.out if stream == "stdout" else one.err).splitlines()) for one in begun]
        assert outputs == [[], ["1 typed" if stream == "stdout" else "err 1"]]


def test_rows_of_programs_name_tasks_of_the_whole_step(nodes: Nodes) -> None:
    rows = [["1-2", ["echo", "%t", "is", "%o"]], ["*", ["echo", "other", "%t"]]]
    first, second = run(nodes[:2], by_hand(30, ["0-1", "2-3"]), ["many"], programs=rows)
    assert sorted(first.out.splitlines()) == ["1 is 0", "other 0"]
    assert sorted(second.out.splitlines()) == ["2 is 1", "other 3"]


def test_a_terminal_is_that_of_one_task_on_one_node(nodes: Nodes) -> None:
    argv = ["sh", "-c", "test -t 0 && (: </dev/tty) && touch terminal.$SLURM_PROCID; exit 0"]
    for node, part in zip(nodes[:2], by_hand(31, ["0-1", "2-3"]), strict=True):
        one = PartRun(
            node,
            request(node, part, argv, pty=[3, 33, 99, 0, 0]),
            seen=socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET),
        )
        assert one.end()["state"] == "COMPLETED", one.events
    assert [sorted(path.name for path in node.home.glob("terminal.*")) for node in nodes[:2]] == [[], ["terminal.3"]]


def test_events_and_record_tell_of_tasks_by_their_numbers_in_the_whole_step(nodes: Nodes) -> None:
    argv = ["sh", "-c", "test $SLURM_PROCID != 5 || exit 7"]
    _, second = run(nodes[:2], by_hand(32, ["0-3", "4-5"]), argv)
    start, *exits, end = second.events
    assert (start["event"], start["tasks"], len(start["pids"])) == ("start", [4, 5], 2)
    assert sorted(task for one in exits for task in one["tasks"]) == [4, 5]
    record = end["record"]
    assert (record["reason"], record["exit_status"]) == ("task 5 ended with exit code 7", 7)
    assert [task["task"] for task in record["tasks"]] == [4, 5]
    part = {"nodes": "n[1-2]", "nnodes": 2, "nodeid": 1, "ntasks": 6, "tasks": "4-5", "tasks_per_node": "4,2"}
    assert (record["node"], record["ntasks"], record["part"]) == ("n2", 2, part)


def test_the_task_that_ends_a_step_is_told_by_its_number(nodes: Nodes) -> None:
    argv = ["sh", "-c", "test $SLURM_PROCID = 2 || exec sleep 1000; exit 3"]
    part = by_hand(33, ["0-1", "2-3"])[1]
    record = PartRun(nodes[1], request(nodes[1], part, argv, kill_on_bad_exit=True)).end()
    assert record["reason"] == "task 2 ended with exit code 3 and --kill-on-bad-exit was given"


def test_messages_of_tasks_that_cannot_begin_tell_their_numbers(nodes: Nodes) -> None:
    part = by_hand(34, ["0", "1,2"])[1]
    one = PartRun(nodes[1], request(nodes[1], part, ["/nonexistent"]))
    record = one.end()
    assert record["reason"].startswith("task 1: ")
    said = [event["text"] for event in one.events if event["event"] == "message"]
    assert any("task 2" in line for line in said), said
    assert not any("task 0" in line for line in said), said


def test_verbose_lines_tell_node_and_both_numbers_of_a_task_and_the_given_mask(nodes: Nodes) -> None:
    parts = laid_out(35, nodes="2", ntasks="2", cpu_bind="verbose,threads")
    ended = run(nodes[:2], parts, ["true"])
    for task, one in enumerate(ended):
        mask = str(parts[task]["masks"])[2:-2]  # of the only task
        (line,) = [event["text"] for event in one.events if event["event"] == "message"]
        assert line.startswith(f"cpu-bind=MASK - n{task + 1}, task  {task}  0 [")
        assert line.endswith(f": mask 0x{mask} set")


def test_a_task_has_the_mask_that_came_with_its_part(nodes: Nodes) -> None:
    cpu = lowest(MACHINE.usable)
    part = by_hand(36, ["1", "0,2"], mems=f"{MACHINE.nodes[0].number}")[1]
    part |= {"masks": [f"{1 << cpu:x}", "0"], "bind": ["mask_cpu:", "0x1"]}
    # The request's own options are the whole step's: they have been obeyed by whoever laid it out.
    asked = request(nodes[1], part, ["sh", "-c", "grep Cpus_allowed_list /proc/self/status"], layout={"nodes": "2"})
    one = PartRun(nodes[1], {**asked, "label": True, "cpu_bind": "none"})
    assert one.end()["state"] == "COMPLETED"
    lines = dict(line.split(": ", 1) for line in one.out.splitlines())
    assert lines["0"].split() == ["Cpus_allowed_list:", str(cpu)]
    explained = call(nodes[1], "Explain", job=JOB, step=36)
    if "error" not in explained:  # it has not ended yet
        assert [task["task"] for task in explained["parameters"]["layout"]["tasks"]] == [0, 2]


def test_a_tasks_devices_are_those_that_its_part_has_here() -> None:
    with own_node(started=False) as node:
        node.configure("nodectl.toml", 'gres = ["Name=gpu Count=4"]\n')
        node.start()
        for number, (layout, seen) in enumerate(
            (({"gpus_per_task": "1"}, {"0": "1", "2": "3"}), ({"gpus": "4"}, {"0": "1,3", "2": "1,3"}))
        ):
            part = by_hand(number, ["1,3", "0,2"], devices=["gpu:1", "gpu:3"])[1]
            asked = request(node, part, ["printenv", "CUDA_VISIBLE_DEVICES"], layout=layout, label=True)
            one = PartRun(node, asked)
            record = one.end()
            assert dict(line.split(": ") for line in one.out.splitlines()) == seen
            assert record["devices"] == ["gpu:1", "gpu:3"]


def test_plugins_are_told_of_the_whole_step() -> None:
    with own_node(started=False) as node:
        hooks = {"user_init": "user_init", "task_init": "task_init"}
        bodies = [HOOK.format(hook=hook, body=SAY.replace("HOOK", f'"{name}"')) for hook, name in hooks.items()]
        source = node.home / "asks.c"
        source.write_text("#include <stdint.h>\n" + HEAD.format(name="asks") + "".join(bodies), encoding="utf-8")
        node.configure("plugstack.conf", f"required {compiled(source, node.home / 'asks.so')}\n")
        node.start()
        part = by_hand(40, ["0-1", "3,5", "2,4"])[1]
        one = PartRun(node, request(node, part, ["true"]))
        assert one.end()["state"] == "COMPLETED"
        said = [event["text"] for event in one.events if event["event"] == "message"]
    rows = {tuple(line.rpartition("asks: ")[2].split() or line.split()) for line in said}
    rows = {row[next(i for i, word in enumerate(row) if word in hooks) :] for row in rows}
    for name, value in {"nnodes": 3, "nodeid": 1, "here": 2, "total": 6, "job": JOB, "step": 40}.items():
        for hook in hooks:
            assert (hook, name, "0", str(value)) in rows, sorted(rows)
    assert {row[3] for row in rows if row[:3] == ("task_init", "global", "0")} == {"3", "5"}
    assert {row[3] for row in rows if row[:3] == ("task_init", "local", "0")} == {"0", "1"}
    assert ("user_init", "global", str(ESPANK_NOT_TASK)) in {row[:3] for row in rows}
    converted = {int(row[2]): tuple(map(int, row[3:])) for row in rows if row[:2] == ("user_init", "convert")}
    nobody = 2**32 - 1 - 2**32
    assert {number: row[:2] for number, row in converted.items()} == {
        0: (0, 3), 1: (0, 5), **dict.fromkeys(range(2, 6), (ESPANK_NOEXIST, nobody)),
    }  # fmt: skip
    assert {number: row[2:] for number, row in converted.items()} == {
        3: (0, 0), 5: (0, 1), **dict.fromkeys((0, 1, 2, 4), (ESPANK_NOEXIST, nobody)),
    }  # fmt: skip


def test_steps_of_one_job_run_at_a_time_and_come_in_any_order(nodes: Nodes) -> None:
    node = nodes[0]
    go = node.home / "go"
    argv = ["sh", "-c", f"echo begun; until test -e {go}; do sleep 0.05; done"]
    begun = [PartRun(node, request(node, by_hand(number, ["0", "1"])[0], argv)) for number in (52, 50, 51)]
    for one in begun:
        one.until("start")
    listed = call(node, "List")["parameters"]["steps"]
    assert {(step["job"], step["step"]) for step in listed} >= {(JOB, number) for number in (50, 51, 52)}
    go.touch()
    assert [one.end()["state"] for one in begun] == ["COMPLETED"] * 3
    after = PartRun(node, request(node, by_hand(5_000_000, ["0", "1"])[0], ["true"]))
    assert after.end()["exit_status"] == 0


def test_a_part_outlives_its_daemon_and_the_next_one_records_it() -> None:
    with own_node() as node:
        go = node.home / "go"
        argv = ["sh", "-c", f"until test -e {go}; do sleep 0.05; done; exit 4"]
        one = PartRun(node, request(node, by_hand(60, ["0", "1,2"])[1], argv))
        one.until("start")
        node.stop(9)
        node.start()
        go.touch()
        assert one.end()["exit_status"] == 4
        wait_until(lambda: "error" not in call(node, "Wait", job=JOB, step=60), "its record is there")
        record = call(node, "Show", job=JOB, step=60)["parameters"]["record"]
        assert (record["part"]["ntasks"], [task["task"] for task in record["tasks"]]) == (3, [1, 2])
        again = PartRun(node, request(node, by_hand(60, ["0", "1,2"])[1], argv))
        assert again.refusal() == f"step {JOB}.60 runs here already, or has"


def test_runners_that_are_kept_serve_parts_and_nothing_is_left_of_their_job() -> None:
    with own_node(delegated=True) as node:
        assert node.cgroup is not None
        base = Path(f"{node.cgroup.full_path}/nodectl")
        tell = "echo $PPID $SLURM_PROCID $SLURM_NODEID $SLURM_NNODES $SLURM_GTIDS $SLURM_STEP_ID"
        runners = set()
        for number in range(3):
            part = by_hand(number, ["0", f"{number + 1}"], ntasks=8)[1]
            one = PartRun(node, request(node, part, ["sh", "-c", f"{tell}; grep ^0:: /proc/self/cgroup"]))
            assert one.end()["state"] == "COMPLETED"
            told, cgroup = one.out.splitlines()
            runner, _, words = told.partition(" ")
            assert words == f"{number + 1} 1 2 {number + 1} {number}"
            assert cgroup.endswith(f"/nodectl/job_{JOB}/step_{number}/user/task_0")
            runners.add(runner)
            wait_until(lambda runner=runner: _waits(runner), "the runner waits for the next step")
            done = node.nodectl("run", "sh", "-c", tell)  # one of this node's own, between
            runner, _, words = done.stdout.strip().partition(" ")
            assert words == "0 0 1 0 0", done.stderr
            runners.add(runner)
            wait_until(lambda runner=runner: _waits(runner), "the runner waits for the next step")
        assert len(runners) == 1
        wait_until(lambda: not list(base.glob("job_*")), "the daemon has removed the job's cgroup")


def _waits(runner: str) -> bool:
    return Path(f"/proc/{runner}/comm").read_text(encoding="utf-8").strip() == WAITING
