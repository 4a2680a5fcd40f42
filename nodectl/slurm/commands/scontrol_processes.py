"""scontrol pidinfo and listpids: the job of a process, and the processes of a job on this machine."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.render.terminal import put
from nodectl.client.session import Session
from nodectl.client.step_name import step_of
from nodectl.model.number import whole
from nodectl.model.step_number import FIRST, step_word
from nodectl.model.words import moment
from nodectl.slurm.commands import jobs, step_fields
from nodectl.slurm.commands.option_words import Given

_LAST_PID = 2**22
_JOB = re.compile(r"/job_([0-9]{1,10})(?:/|$)", re.MULTILINE)  # in the path of a cgroup


def pidinfo(session: Session, given: Given, words: list[str]) -> int:
    """Print the job of a process, and the remaining time of the job."""
    pid = whole(words[0], _LAST_PID) if len(words) == 1 else None
    if pid is None:
        raise Failed("pidinfo wants the number of a process")
    try:
        found = _JOB.search(Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = None
    record = jobs.record_of(session, found[1]) if found else None
    if record is None:
        raise Failed(f"{jobs.INVALID}: process {pid} is in no job")
    print(f"Slurm JobId={record['job']} ends at {moment(record.get('end'), 'Unknown')}")
    if record.get("end"):
        print(f"Job remaining time is {max(0, int(record['end'] - time.time()))}")
    return 0


def listpids(session: Session, given: Given, words: list[str]) -> int:
    """Print the tasks of a job, of a step, or of all jobs: JOB[.STEP] [NODE]."""
    lines = [f"{'PID':8} {'JOBID':8} {'STEPID':8} {'LOCALID':7} {'GLOBALID':8}"]
    for job, step in _wanted(session, words[0] if words else ""):
        record: Any = session.call("Show", job=job, step=step)["record"]
        for task in record.get("tasks") or ():
            if task["pid"] > 0 and task.get("status") is None:
                number = task["task"]
                lines.append(f"{task['pid']:<8} {job:<8} {step_word(step):8} {number:<7} {number:<8}")
    put(lines)
    return 0


def _wanted(session: Session, word: str) -> list[tuple[int, int]]:
    """Return the running steps for the word: a step, a job, or all."""
    running = [(int(step["job"]), int(step["step"])) for step in step_fields.running(session)]
    if not word or word == "*":
        return running
    try:
        job, step = step_of(word)
    except ValueError as error:
        raise Failed(str(error)) from None
    found = [one for one in running if one[0] == job and step in (FIRST, one[1])]
    if not found:
        what = f"StepId={word[:40]} does not exist" if "." in word else f"Job {word[:40]} does not exist"
        raise Failed(f"{what} on this node")
    return found
