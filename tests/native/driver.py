"""A process that runs compiled plugins as nodectl's own do: a real stack, plugin caller and handle, and a
step that is made up.

Run with the host preloaded; the argument is a JSON object, see `Case` in host.py. Prints what plugins and nodectl say,
and a line `= HOOK RC WHY` for what came of each hook.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

from nodectl import messages, spank
from nodectl.model.launch_order import Hook
from nodectl.model.plugstack_entry import Entry
from nodectl.model.step import Step, Task
from nodectl.model.step_number import BATCH
from nodectl.plugin_host.caller import Outcome, PluginCaller
from nodectl.plugin_host.tracing.recorder import Recorder
from nodectl.spank import _spank_host
from nodectl.spank.handle import Spank
from nodectl.spank.stack import Stack

_STEP: dict[str, object] = dict.fromkeys(set(Step.FIELDS) - {"argv"}, 0) | {
    "part": None,
    "job_id": 4000000001, "step_id": 3, "uid": 2001, "gid": 2002, "gids": [2002, 2100, 2101], "ntasks": 2,
    "environment": {"COLOUR": "green", "EMPTY": ""}, "allocation": 0x30F,
    "cpus_per_task": 3, "cores": "0-3", "node_name": "n1", "partition": "batch",
    "cluster_name": "here", "name": "its name", "user_name": "me", "cwd": "/srv",
    "stdin": "", "stdout": "out_%j", "stderr": "", "devices": ["gpu:0", "gpu:1"], "memory": 512, "time_limit": 90,
    "submitted": 1700000000.5, "first_step": BATCH,
    "restart": 3, "array_job": 3999999999, "array_task": 7,
}  # fmt: skip


def say(line: str) -> None:
    """At once: what C prints comes between."""
    print(line, flush=True)


def told(outcome: Outcome, case: dict[str, Any]) -> str:
    """What failed, without the plugin's file, which is where the test has put it."""
    for path in case["plugins"]:
        outcome.why = outcome.why.removesuffix(f" ({path})")
    return outcome.why


def run(stack: Stack, hook: str, task: Task | None) -> Outcome:
    """One hook of every plugin; "allocated" memory is counted around it."""
    row = Hook(hook, "spank", "stepd", "root", "step", 3, "")
    before = sys.getallocatedblocks(), resident()
    outcome = stack.call(row, task)
    if "memory" in sys.argv:
        after = sys.getallocatedblocks(), resident()
        say(f"blocks {after[0] - before[0]} pages {after[1] - before[1]}")
    return outcome


def fork_and_exit() -> None:
    """A child that ends by exit(3), which writes what its copies of C's buffers hold."""
    if os.fork() == 0:
        ctypes.CDLL(None).exit(0)
    os.wait()


def resident() -> int:
    """Pages of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1])


def main() -> None:
    """Loads the plugins and calls the hooks of the case."""
    case = json.loads(sys.argv[1])
    messages.listen(say, level=case["level"])
    step = Step(**_STEP, argv=case["program"])
    handle = Spank(case["context"], step if case["job"] else None)
    handle.tasks = [Task(0, 1), Task(1, 2)]
    for each in handle.tasks:
        each.pid, each.argv, each.environment = 4000 + each.local_id, list(step.argv), dict(step.environment)
    caller = PluginCaller(Recorder(-1, "stepd"), None, 0, case["timeout"], single_threaded=False)
    stack = Stack(caller, handle)
    entries = [
        Entry(path, tuple(case["argv"]), required=True, origin="plugstack.conf:1", missing=False)
        for path in case["plugins"]
    ]
    outcome = stack.load(entries)
    say(f"= load {outcome.rc} {outcome.why}")
    for hook in case["hooks"]:
        name, _, which = hook.partition("@")
        task = handle.tasks[int(which)] if which else None
        if name == "slurm_spank_task_exit" and task is not None:
            task.status = 0x1700
        if name == "fork":
            fork_and_exit()
            continue
        if name == "options":
            outcome = stack.process_options(case["options"])
            if not outcome:
                say(told(outcome, case))
            continue
        fini = stack.plugins[0].plugin.hooks.get("fini")
        outcome = run(stack, name, task) if name != "fini" or fini is None else caller.silent(fini, ())
        say(f"= {name} {outcome.rc} {told(outcome, case)}")
    say(f"environment {json.dumps(step.environment)}")
    if "FROM_C" in _spank_host.environ():
        say(f"FROM_C {_spank_host.environ()['FROM_C']} {os.environ.get('FROM_C')}")


assert spank.S_CTX_REMOTE == 2
main()
