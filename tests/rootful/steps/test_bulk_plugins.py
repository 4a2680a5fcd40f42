"""Plugins beside a bulk step: its own hooks once, those of a task for every command, in the order of any step."""

from __future__ import annotations

from typing import Any

import pytest

from rootful.bulk_client import BulkClient, shell
from rootful.native import native
from rootful.node import NOBODY, Node

NOTE = """
import os
PATH = {path!r}

def note(hook, sp):
    words = [hook]
    for item in ("S_TASK_ID", "S_TASK_GLOBAL_ID", "S_TASK_PID", "S_TASK_EXIT_STATUS"):
        try:
            words.append(str(spank_get_item(sp, globals()[item])))
        except SpankError:
            words.append("-")
    fd = os.open(PATH, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(fd, (" ".join(words) + chr(10)).encode())
    os.close(fd)
"""
HOOK = """
def slurm_spank_{hook}(sp, ac, av):
    note({hook!r}, sp)
    {body}
"""
STEPS_OWN = ("init", "init_post_opt", "user_init", "exit")
TASKS = ("task_init_privileged", "task_post_fork", "task_init", "task_exit")


def noting(node: Node, name: str, **bodies: str) -> list[list[str]]:
    """Makes a plugin that notes every hook; the notes."""
    path = node.scratch / name
    path.touch()
    path.chmod(0o666)
    text = "from nodectl.spank import *\n" + NOTE.format(path=str(path))
    text += "".join(HOOK.format(hook=hook, body=bodies.get(hook, "return 0")) for hook in (*STEPS_OWN, *TASKS))
    node.plugstack(f"required {node.plugin(name, text)}\n")
    return []


def notes(node: Node, name: str) -> list[list[str]]:
    return [line.split() for line in (node.scratch / name).read_text(encoding="utf-8").splitlines()]


def test_hooks_of_the_step_are_called_once_and_those_of_a_task_for_every_command(served: Node) -> None:
    noting(served, "noting")
    client = BulkClient(served, 2)
    client.all([shell(seq, f"exit {seq % 3}") for seq in range(100, 120)])
    seen = notes(served, "noting")
    assert [row[0] for row in seen if row[0] in STEPS_OWN] == list(STEPS_OWN)
    for seq, end in client.ended.items():
        of_task = {row[0]: row[1:] for row in seen if row[0] in TASKS and row[2] == str(seq)}
        place = [str(end["slot"]), str(seq), str(end["pid"])]
        assert of_task == {
            **{hook: [*place, "-"] for hook in TASKS[:3]},
            "task_exit": [*place, str(end["status"])],
        }
    order = [row[0] for row in seen if row[2] == "100"]
    assert order.index("task_post_fork") < order.index("task_init") < order.index("task_exit")


def test_the_rows_of_a_command_are_those_of_any_task(served: Node) -> None:
    noting(served, "rows")
    client = BulkClient(served, 1)
    client.all([shell(1, "true")])
    assert served.run("true", user=NOBODY).returncode == 0

    def rows(job: int, process: str) -> list[object]:
        skipped = ("open_gate",)
        return [row["call"] for row in served.trace(job) if row["process"] == process and row["call"] not in skipped]

    ordinary = served.last_job()
    assert rows(client.job, "task") == rows(ordinary, "task")
    assert rows(client.job, "stepd") == rows(ordinary, "stepd")


def test_a_compiled_plugin_knows_the_command_by_its_number(served: Node) -> None:
    path = served.scratch / "compiled"
    path.touch()
    path.chmod(0o666)
    body = f"""
    uint32_t local = 0, global = 0; pid_t pid = 0;
    spank_get_item(sp, S_TASK_ID, &local);
    spank_get_item(sp, S_TASK_GLOBAL_ID, &global);
    spank_get_item(sp, S_TASK_PID, &pid);
    FILE *file = fopen("{path}", "a");
    fprintf(file, "{{}} %u %u %d\\n", local, global, (int)pid);
    fclose(file);
    """
    hooks = {hook: body.replace("{}", hook) for hook in TASKS}
    served.plugstack(f"required {native(served, 'numbers', **hooks)}\n")
    client = BulkClient(served, 2)
    client.all([shell(seq, "true") for seq in range(2**32 - 5, 2**32)])
    seen = {tuple(row) for row in notes(served, "compiled")}
    assert seen == {
        (hook, str(end["slot"]), str(seq), str(end["pid"])) for seq, end in client.ended.items() for hook in TASKS
    }


@pytest.mark.parametrize("hook", ["task_init_privileged", "task_init", "task_exit"])
def test_a_hook_that_fails_for_a_command_costs_that_command(served: Node, hook: str) -> None:
    noting(served, f"failing_{hook}", **{hook: "return -1 if spank_get_item(sp, S_TASK_GLOBAL_ID) == 2 else 0"})
    client = BulkClient(served, 2)
    record = client.all([shell(seq, "true") for seq in range(1, 8)])
    assert [seq for seq, end in sorted(client.ended.items()) if end["status"]] == [2]
    assert hook in client.ended[2]["failed"]
    assert (record["state"], record["bulk"]["succeeded"]) == ("FAILED", 6)


def test_a_hook_of_the_stepd_that_fails_costs_the_step(served: Node) -> None:
    noting(served, "fork", task_post_fork="return -1 if spank_get_item(sp, S_TASK_GLOBAL_ID) == 5 else 0")
    client = BulkClient(served, 2).ready()
    client.run(shell(1, "sleep 1000"), *(shell(seq, "true") for seq in range(2, 30)))
    record = client.end()
    assert (record["state"], "task_post_fork" in record["reason"]) == ("FAILED", True)
    assert client.ended[1]["cut_short"] is True
    assert 5 not in client.ended or client.ended[5]["status"] != 0
    assert len(client.withdrawn) >= 20


def test_a_hook_that_ends_its_task_is_named(served: Node) -> None:
    noting(served, "leaving", task_init="os._exit(0) if spank_get_item(sp, S_TASK_GLOBAL_ID) == 1 else None")
    client = BulkClient(served, 1)
    client.all([shell(1, "true"), shell(2, "true")])
    assert "it ended inside slurm_spank_task_init of plugin leaving" in client.ended[1]["failed"]
    assert (client.ended[1]["status"], client.ended[2]["status"]) == (1 << 8, 0)


def test_prologs_and_epilogs_of_tasks_run_for_every_command(served: Node) -> None:
    out = served.scratch / "scripts"
    scripts: dict[str, Any] = {}
    for name in ("prolog", "epilog"):
        path = served.scratch / name
        path.write_text(f"#!/bin/sh\necho {name} $SLURM_PROCID $SLURM_SCRIPT_CONTEXT >> {out}\n", encoding="utf-8")
        path.chmod(0o755)
        scripts[f"task_{name}"] = str(path)
    served.plugstack("")
    BulkClient(served, 1, **scripts).all([shell(seq, f"echo task {seq} >> {out}") for seq in (4, 5)])
    assert out.read_text().splitlines() == [
        f"{words} {seq}{context}"
        for seq in (4, 5)
        for words, context in (("prolog", " prolog_task"), ("task", ""), ("epilog", " epilog_task"))
    ]
