"""The record of an ended step: state, exit status, and the end of each task.

Pure but for `save`. The exit status is made in `exit_status.py`.
"""

import os
import time

from nodectl.launch.stepd import exit_status
from nodectl.launch.streams.filename import files_of
from nodectl.model.wire.lean_json import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.launch.stepd.run import Run
    from nodectl.model.step import Step

# Limits of a record's parts, as JSON: `room` counts on them.
_MOST_VICTIMS = 32
_LONGEST_TEXT = 600  # characters of a reason, each up to twelve bytes
_SMALL = 16 << 10  # bytes of a step's JSON: below, all of it counts as facts
_SET = 1.0  # seconds: a smaller change only corrects the clock
_ROOM = 24 << 10  # for all but the facts and the tasks
_ROOM_OF_TASK = 800  # for its figures
ROOM_OF_COMMANDS = 64 << 10  # for the tally of a bulk step


def room(step: "Step", size: int) -> int:
    """Return the maximal size of the step's record in bytes, which is reserved before any program of the step runs.

    `size` is the size of the step's own JSON, which contains the facts.
    """
    of_task = _ROOM_OF_TASK + step.allocation.bit_length() // 4
    facts = size if size < _SMALL else len(dumps(step.facts()))
    if files := files_of(step):  # longer than their patterns
        facts += len(dumps(files))
    return _ROOM + facts + of_task * step.ntasks + (ROOM_OF_COMMANDS if step.bulk else 0)


def compose(run: "Run") -> "dict[str, object]":
    """Return the record of an ended step. Times are seconds since the epoch, CPU times seconds, memory KiB."""
    status = exit_status.of_step(run)
    return {
        **run.step.facts(),
        **files_of(run.step),
        "state": run.state,
        "reason": _beginning(run.reason),
        "exit_status": status,
        "started": run.clock.started,
        "ended": time.time(),
        **({"clock_set": round(was_set, 3)} if abs(was_set := run.clock.set_forward()) >= _SET else {}),
        "suspended_seconds": round(run.uncounted_seconds, 3),
        "unkillable": _beginning(run.unkillable),
        "victims": run.end_reasons.victims[:_MOST_VICTIMS],
        **run.end_reasons.used,
        **run.orphans.figures(),
        **({"bulk": run.bulk.figures()} if run.bulk is not None else {}),
        "tasks": [
            {
                **task.shown(),
                "user_seconds": round(task.usage[0], 6),
                "system_seconds": round(task.usage[1], 6),
                "max_rss_kib": task.usage[2],
                "read_chars": task.transferred[0],
                "written_chars": task.transferred[1],
                **task.used,
            }
            for task in run.tasks
            if task.pid > 0
        ],
    }


def _beginning(text: str) -> str:
    """Return the text, cut to the room for a text."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def save(directory: int, name: str, record: str) -> None:
    """Write the record where this or the next daemon will find the file: whole or not at all. Raises OSError.

    `record` is JSON. `directory` is a descriptor: a plugin may have given the stepd another root. The record is written
    into the room reserved by the daemon, which is not freed before: on a full disk no process would get it again.
    """
    partial = f"{name}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(partial, flags, 0o600, dir_fd=directory)
    try:
        data = memoryview(record.encode("ascii"))
        size = len(data)
        while data:
            data = data[os.write(fd, data) :]
        os.ftruncate(fd, size)
    finally:
        os.close(fd)
    os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
