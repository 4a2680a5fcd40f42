"""A step that runs out of memory when it is told to, while all of it but the eater rests.

At a limit the kernel kills a process, and for a moment takes it for gone while its memory is still charged. Whoever
within the limit asks for memory in that moment makes it kill a second one, whichever that is; a shell that looks every
tenth of a second whether something has happened asks often. So who is not to be killed is stopped, and the step runner
sleeps.
"""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

from vm import service
from vm.service import CGROUPS, STEPS_GROUP, wait_until

_EAT = "python3 -c 'x = bytearray(10**9)'"
# Words of a shell. They come before the eating, or do not end before it is over.
WHEN_TOLD = "until [ -e eat ]; do sleep 0.1; done"
EATS = f"{WHEN_TOLD}; {_EAT}"
BECOMES_THE_EATER = f"{WHEN_TOLD}; exec {_EAT}"
RESTS = "kill -STOP $$"


class Eater:
    """A step of alice's. The tasks `resting` stop themselves with `RESTS`, the tasks `ending` end by themselves, and
    a process of another one eats.
    """

    def __init__(self, *words: str, resting: tuple[int, ...] = (), ending: tuple[int, ...] = ()) -> None:
        self._told = Path("~alice").expanduser() / "eat"
        self._told.unlink(missing_ok=True)
        self._resting, self._ending = resting, ending
        self.client = service.start("--chdir", str(self._told.parent), *words, user="alice")
        wait_until(lambda: service.running_steps("alice"), "the step is there")
        (self._job,) = service.running_steps("alice")
        self._group = CGROUPS / STEPS_GROUP[1:] / f"job_{self._job}/step_0"

    def eat(self) -> None:
        """Tells it to, as soon as everything else rests."""
        wait_until(self._rests, "all but the eater rests")
        self._told.touch()

    def _rests(self) -> bool:
        tasks = self._tasks()
        if not tasks or any(state(tasks[number]["pid"]) != "T" for number in self._resting):
            return False
        if any(tasks[number]["status"] is None for number in self._ending):
            return False
        runner = int(json.loads(service.nodectl("show", "--json", f"{self._job}.0"))["pid"])
        return state(runner) == "S"  # it has told of its tasks, and nothing else is to come

    def _tasks(self) -> list[dict[str, Any]]:
        """As the step runner has it; none while it is busy."""
        shown: dict[str, Any] = json.loads(service.nodectl("show", "--json", f"{self._job}.0"))
        tasks: list[dict[str, Any]] = shown.get("tasks", [])
        return tasks if all(task["pid"] for task in tasks) else []

    def wait_until_killed(self, number: int) -> None:
        """Until the kernel has killed in this task, nothing is left of it, and the step runner knows how it ended."""
        group = self._group / f"user/task_{number}"

        def is_over() -> bool:
            killed = "\noom_kill 0\n" not in (group / "memory.events").read_text()
            return killed and "populated 0\n" in (group / "cgroup.events").read_text()

        def is_known() -> bool:
            tasks = self._tasks()
            return bool(tasks) and tasks[number]["status"] is not None

        wait_until(is_over, "the kernel has killed the eater, whose memory is nobody's any more")
        wait_until(is_known, "the step runner knows of the task's end")

    def wake(self) -> None:
        """The tasks that rest go on."""
        tasks = self._tasks()
        service.kill(*(tasks[number]["pid"] for number in self._resting), number=signal.SIGCONT)

    def ended(self) -> tuple[str, list[str], dict[str, Any]]:
        """How it ran out of memory: its output, the lines said of it, its record."""
        status, out, told = service.finished(self.client)
        assert status == 1, told
        job = re.search(r"step (\d+)\.0: out of memory", told)
        assert job is not None, told
        record = service.record(int(job[1]))
        assert (record["state"], record["exit_status"]) == ("OUT_OF_MEMORY", 1)
        return out, [line for line in told.splitlines() if line.startswith("nodectl: ")], record


def state(pid: int) -> str:
    """A process's, in the letters of proc(5); "" where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2][0]
    except OSError:
        return ""
