"""--debugger-test: each task stops before running the program, and is listed, as parallel debuggers want.

A task continues when an attached debugger continues it (SIGCONT), or ends with the step.
"""

import os
from typing import TYPE_CHECKING

from nodectl.launch.task import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from nodectl.client.run_options import Parsed
    from nodectl.client.watch import Watch

# The shell becomes the program, so the pid that was told stays.
_STOPPED = ("/bin/sh", "-c", 'kill -STOP $$; exec "$0" "$@"')


def stop_tasks(parsed: "Parsed") -> "Callable[[Watch], None]":
    """Make the tasks stop first. Return the function which lists the tasks after the start."""
    rows: list[Any] = parsed.values.get("programs", [])  # type: ignore[assignment]  # as they were read
    if rows:
        parsed.values["programs"] = [[tasks, [*_STOPPED, *argv], *plain] for tasks, argv, *plain in rows]
    else:
        rows = [[programs.EVERY_OTHER, parsed.argv, True]]
        parsed.argv = [*_STOPPED, *parsed.argv]
    return lambda watch: _list(watch, rows)


def _list(watch: "Watch", rows: "list[Any]") -> None:
    inner = watch.tell

    def tell(event: "Mapping[str, object]") -> None:
        if event.get("event") == "start":
            pids: list[int] = event["pids"]  # type: ignore[assignment]
            node = os.uname().nodename
            for task, (pid, argv) in enumerate(zip(pids, programs.argv_of(rows, len(pids)), strict=True)):
                watch.say(f"nodectl: task:{task} host:{node} pid:{pid} executable:{argv[0]}")
        inner(event)

    watch.tell = tell
