"""Steps in the words of squeue -s and scontrol show step, made from the service's records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from nodectl.client.session import Session
from nodectl.model.device_part import as_tres
from nodectl.model.step_number import step_name
from nodectl.model.words import elapsed, moment, short_duration
from nodectl.slurm.commands.column_format import Field, Row
from nodectl.slurm.commands.time_words import limit, long_limit


def running(session: Session) -> list[dict[str, Any]]:
    """Return the running steps, in order of job and step numbers."""
    steps = {(step["job"], step["step"]): step for step in session.rows("List", "steps")}
    config: Any = session.call("Config")["config"]
    partition = str(config.get("partition_name") or "")
    return [step_row(step, partition) for step in steps.values() if step.get("ended") is None]


def step_row(step: Mapping[str, Any], partition: str) -> dict[str, Any]:
    """Return a step's record with the further values for the fields."""
    return {
        **step,
        "id": step_name(step["job"], step["step"]),
        "partition": partition,
        "cpu_count": int(step.get("cpus") or "0", 16).bit_count(),
    }


def _start(step: Row) -> float | None:
    return step.get("started") or step.get("submitted")


def _used(step: Row) -> str:
    return short_duration(elapsed(step, time.time()))


FIELDS = (
    Field("A", "NumTasks", "TASKS", lambda step: step["ntasks"]),
    Field("i", "StepID", "STEPID", lambda step: step["id"]),
    Field("j", "Name", "NAME", lambda step: step["name"]),
    Field("j", "StepName", "NAME", lambda step: step["name"]),
    Field("l", "TimeLimit", "TIME_LIMIT", lambda step: limit(step.get("time_limit"))),
    Field("M", "TimeUsed", "TIME", _used),
    Field("N", "NodeList", "NODELIST", lambda step: step.get("node", "")),
    Field("N", "Nodes", "NODELIST", lambda step: step.get("node", "")),
    Field("P", "Partition", "PARTITION", lambda step: step["partition"]),
    Field("S", "StartTime", "START_TIME", lambda step: moment(_start(step))),
    Field("t", "StepState", "STATE", lambda step: step["state"]),
    Field("T", "StepStateLong", "STATE", lambda step: step["state"]),
    Field("u", "UserName", "USER", lambda step: step["user"]),
    Field("U", "UserID", "USER", lambda step: step["uid"]),
)


def step_facts(step: Row) -> Iterator[list[str]]:
    """Yield scontrol's lines of Key=Value."""
    yield [
        f"StepId={step['id']}", f"UserId={step['uid']}", f"StartTime={moment(_start(step), 'Unknown')}",
        f"TimeLimit={long_limit(step.get('time_limit'))}",
    ]  # fmt: skip
    yield [f"State={step['state']}", f"Partition={step['partition']}", f"NodeList={step.get('node', '')}"]
    yield ["Nodes=1", f"CPUs={step['cpu_count']}", f"Tasks={step['ntasks']}", f"Name={step['name']}", "Network=(null)"]
    memory = f",mem={step['memory']}M" if step.get("memory") else ""
    gres = "".join(f",gres/{name}={count}" for name, count in as_tres(step.get("devices") or ()).items())
    yield [f"TRES=cpu={step['cpu_count']}{memory},node=1{gres}"]
    yield ["ResvPorts=(null)"]
    yield ["CPUFreqReq=Default", "Dist=Block"]
    yield [f"SrunHost:Pid={step.get('node', '')}:{step.get('pid') or 0}"]
