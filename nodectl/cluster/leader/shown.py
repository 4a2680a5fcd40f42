"""Nodes, waiting launches and ended steps, in the form of org.nodectl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.model.reasons import RESOURCES
from nodectl.model.states import PENDING
from nodectl.placement.binding.job import tasks_of

if TYPE_CHECKING:
    from nodectl.cluster.leader.books import Books
    from nodectl.cluster.leader.line import Waiting

_LONGEST = 64  # tasks and nodes of a record in a list
_MOST_NAMED = 8  # steps for which a launch waits


def name_of(request: Mapping[str, Any]) -> str:
    """Return the name of the step."""
    return str(request.get("name") or str(request["argv"][0]).rpartition("/")[2])


def brief(record: dict[str, Any]) -> dict[str, Any]:
    """Shorten a record for a list: at most `_LONGEST` tasks and nodes."""
    for part in ("tasks", "nodes"):
        if len(record.get(part) or ()) > _LONGEST:
            record[part] = record[part][:_LONGEST]
    return record


def waiting(books: Books, one: Waiting) -> dict[str, object]:
    """Return a waiting launch as a job of the queue."""
    asked = one.asked
    wish = asked.wish.request
    tasks = tasks_of(wish)
    cpus = tasks * (wish.cpus_per_task or 1)
    return {
        "job": books.job, "id": f"{books.job}.{one.number}",
        "array_job": 0, "array_task": None, "array_tasks": "", "array_limit": 0,
        "name": name_of(asked.request), "account": str(asked.request.get("account", "")),
        "user": books.life.owner.get("user", ""), "uid": books.life.owner.get("uid", 0), "state": PENDING,
        "reason": RESOURCES, "words": "other steps have the nodes that it needs", "priority": 0, "qos": "normal",
        "nice": 0, "partition": "", "submit": one.since, "eligible": one.since, "start": None,
        "end": None, "time_limit": asked.request.get("time_limit", 0), "used": 0, "tasks": tasks, "cpus": cpus,
        "memory": asked.wish.memory or asked.wish.memory_per_cpu * cpus, "gres": "", "nodes": "", "cpu_list": "",
        "held_by": "run", "held": "", "dependency": "", "reservation": "", "command": list(asked.request["argv"])[:64],
        "restarts": 0, "exit_code": 0,
    }  # fmt: skip


def explanation(books: Books, one: Waiting) -> dict[str, object]:
    """Explain why a launch waits."""
    row = waiting(books, one)
    running = [f"step {step.name} ({step.facts['name']})" for step in books.life.steps.values()]
    told = {name: row[name] for name in ("state", "reason", "words")}
    return {**told, "for": running[:_MOST_NAMED], "start": None, "help": []}


def nodes(books: Books) -> Iterator[dict[str, object]]:
    """Yield the nodes of the allocation, including nodes still to join."""
    running: dict[int, int] = {}
    for step in books.life.steps.values():
        for rank in step.open_ranks:
            running[rank] = running.get(rank, 0) + 1
    for rank, name in enumerate(books.names):
        machine = books.table.machines.get(rank)
        down = books.table.why_down(rank)
        if machine is None:
            yield {
                "name": name, "state": "DOWN", "reason": down or "it has not joined", "reason_uid": 0,
                "reason_time": None,
                "cpus": 0, "cpus_used": 0, "cpu_list_used": "", "cores": 0, "memory": 0, "memory_used": 0, "gres": [],
                "gres_used": [], "features": [], "select": {}, "jobs": 0, "running": 0, "waiting": len(books.line),
                "steps_by": "",
            }  # fmt: skip
            continue
        used = books.table.cpus_used(rank) & machine.topology.usable
        cpus, busy = machine.topology.usable.bit_count(), used.bit_count()
        count = running.get(rank, 0)
        yield {
            "name": name,
            "state": "DOWN" if down else "IDLE" if not count else "ALLOCATED" if busy >= cpus else "MIXED",
            "reason": down,
            "reason_uid": 0,
            "reason_time": None,
            "cpus": cpus,
            "cpus_used": busy,
            "cpu_list_used": format_cpulist(cpus_of(used)),
            "cores": len(machine.topology.cores),
            "memory": machine.memory,
            "memory_used": books.table.memory_used(rank),
            "gres": [device.key for device in machine.devices],
            "gres_used": books.table.devices_used(rank),
            "features": [],
            "select": {},
            "jobs": count,
            "running": count,
            "waiting": len(books.line),
            "steps_by": books.steps_by.get(rank, ""),
        }
