"""scontrol show: blocks of Key=Value, or with -o a line for each block."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.render.terminal import put
from nodectl.client.session import Session
from nodectl.model.words import moment, printable
from nodectl.service.config_file.reader import DEFAULT_PATH
from nodectl.slurm.commands import jobs, machine_facts, reservations, step_fields
from nodectl.slurm.commands.host_names import compressed, expanded
from nodectl.slurm.commands.job_values import job_facts
from nodectl.slurm.commands.option_words import Given
from nodectl.slurm.commands.release import RELEASE

_INDENT = "   "
_HOSTS = ("hostnames", "hostlist", "hostlistsorted")
_ENTITIES = (
    "assoc_mgr", "bbstat", "burstbuffer", "config", "daemons", "federation", "hostlist", "hostlistsorted", "hostnames",
    "jobs", "licenses", "nodes", "partitions", "reservations", "slurmd", "steps", "topology",
)  # fmt: skip
_TOLD = {  # always the same
    "assoc_mgr": "Current Association Manager state\n\nNo associations",
    "bbstat": "No burst buffers",
    "burstbuffer": "No burst buffers",
    "daemons": "slurmctld slurmd",
    "federation": "No federations",
    "licenses": "No licenses configured in Slurm.",
    "topology": "No topology information available",
}
# Values that scripts look for and that are constant here.
_ALWAYS = {
    "AccountingStorageType": "(null)", "AccountingStorageEnforce": "none", "EnforcePartLimits": "ANY",
    "LaunchParameters": "(null)", "LaunchType": "launch/slurm", "MinJobAge": "300 sec",
    "MULTIPLE_SLURMD": "Yes",  # several services run beside each other, each with its own socket
    "OverTimeLimit": "0 min",
    "PropagateResourceLimits": "ALL", "PropagateResourceLimitsExcept": "(null)", "SchedulerParameters": "(null)",
    "SchedulerType": "sched/backfill", "SLURM_VERSION": RELEASE, "SlurmctldPort": "(null)", "SlurmdPort": "(null)",
    "SlurmdUser": "root(0)", "SlurmUser": "root(0)", "SwitchType": "(null)", "TopologyPlugin": "topology/none",
}  # fmt: skip
_SECONDS = ("kill_wait",)  # with their unit
_KEYS = {"cluster_name": "ClusterName", "gres": "GresTypes", "qos": "QOS"}  # irregular names in Slurm
Block = Iterable[list[str]]


def needs_no_service(words: list[str]) -> bool:
    """Return True if the command only expands or compresses names, perhaps of another cluster."""
    return bool(words) and _entity(words[0]) in _HOSTS


def host_names(words: list[str]) -> int:
    """Run show hostnames LIST or show hostlist NAMES; without names, for the nodes of the job."""
    text = ",".join(words[1:])
    if not text:
        text = os.environ.get("SLURM_JOB_NODELIST", "")
        if not text:
            raise Failed("Hostlist is empty")
    if _entity(words[0]) == "hostnames":
        put(expanded(text))
    else:
        put([compressed(_read_names(text), in_order=_entity(words[0]) == "hostlist")])
    return 0


def _read_names(text: str) -> list[str]:
    """Return the names between commas, or on the lines of a file."""
    if text.startswith("/") or text == "-":
        try:
            with open(0 if text == "-" else text, encoding="utf-8") as file:
                text = ",".join(file.read().split())
        except OSError as error:
            raise Failed(f"{text}: {error.strerror}") from None
    return expanded(text)


def _entity(word: str) -> str:
    """Return the entity to show, for a full, singular or abbreviated name; "" for an unknown name."""
    lower = word.lower()
    found = [name for name in _ENTITIES if name.startswith(lower) or name.rstrip("s") == lower]
    if lower in ("jobid", "stepid", "nodename", "partitionname", "reservationname"):
        return next(name for name in _ENTITIES if name.startswith(lower.removesuffix("name").removesuffix("id")))
    return lower if lower in _ENTITIES else found[0] if found else ""


def show(session: Session, given: Given, words: list[str]) -> int:
    """Print the entities. Return 0. Raises Failed."""
    if not words:
        raise Failed("too few arguments for keyword:show")
    first, _, value = words[0].partition("=")
    names = [word for word in (value, *words[1:]) if word]
    kind = _entity(first)
    wanted = names[0] if names else ""
    if kind == "jobs":
        blocks = _jobs(session, given, wanted)
    elif kind == "steps":
        blocks = _steps(session, wanted)
    elif kind in ("nodes", "partitions", "slurmd"):
        return _machine(session, given, kind, wanted)
    elif kind == "config":
        put(_config(session))
        return 0
    elif kind == "reservations":
        blocks = list(reservations.facts(session, wanted))
    elif kind in _TOLD:
        print(_TOLD[kind])
        return 0
    else:
        raise Failed(f"invalid entity:{first[:40]} for keyword:show")
    _put(blocks, given)
    return 0


def _put(blocks: Iterable[Block], given: Given) -> None:
    for block in blocks:
        lines = [printable(" ".join(line)) for line in block]
        put([" ".join(map(str.strip, lines))] if "oneliner" in given else [f"\n{_INDENT}".join(lines), ""])


def _jobs(session: Session, given: Given, wanted: str) -> list[Block]:
    if wanted in ("", "0"):
        waiting = jobs.queued(session, {})
        found = [jobs.record_of(session, str(job["job"])) for job in waiting] + jobs.ended(session, [])
        if not found:
            print("No jobs in the system")
        return [job_facts(job, details="details" in given) for job in _in_order(filter(None, found))]
    names = jobs.jobs_named([wanted])
    rows = jobs.queued(session, {"jobs": names})
    found = [jobs.record_of(session, str(job["job"])) for job in rows]
    known = [job for job in found if job is not None]
    if not known:
        known = [job for name in names if (job := jobs.record_of(session, name)) is not None]
    if not known:
        raise Failed(f"slurm_load_jobs error: {jobs.INVALID}")
    return [job_facts(job, details="details" in given) for job in _in_order(known)]


def _in_order(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda job: int(job["job"]))


def _steps(session: Session, wanted: str) -> list[Block]:
    steps = [step for step in step_fields.running(session) if wanted in ("", step["id"], str(step["job"]))]
    if not steps:
        if wanted:
            raise Failed(f"slurm_get_job_steps error: {jobs.INVALID}: {wanted[:40]}")
        print("No job steps in the system")
    return [step_fields.step_facts(step) for step in steps]


def _machine(session: Session, given: Given, kind: str, wanted: str) -> int:
    nodes = machine_facts.read(session)
    if kind == "partitions":
        found = [node for node in nodes if wanted in ("", node["partition"])]
        if not found:
            raise Failed(f"Partition {wanted[:40]} not found")
        _put(map(machine_facts.partition_facts, found), given)
        return 0
    names = expanded(wanted)
    found = [node for node in nodes if not names or machine_facts.names_of(node) & set(names)]
    missing = [name for name in names if not any(name in machine_facts.names_of(node) for node in nodes)]
    _put(map(machine_facts.node_facts, found), given)
    if missing:
        raise Failed(f"Node {missing[0][:40]} not found")
    return 0


def _config(session: Session) -> Iterator[str]:
    """Yield the configuration; keys shared with Slurm have Slurm's names and spelling."""
    config: Any = session.call("Config")["config"]
    hello = session.call("Hello")
    yield f"Configuration data as of {moment(time.time())}"
    shown = {
        _KEYS.get(name) or "".join(part.capitalize() for part in name.split("_")): _word(value)
        for name, value in config.items()
    }
    shown |= _ALWAYS | {"SlurmctldHost[0]": str(hello["node"]), "SLURM_CONF": DEFAULT_PATH}
    shown["SelectTypeParameters"] = shown.get("SelectTypeParameters", "NONE").upper()
    shown |= {"".join(part.capitalize() for part in name.split("_")): f"{config[name]} sec" for name in _SECONDS}
    for key, value in sorted(shown.items(), key=lambda pair: pair[0].lower()):
        yield f"{key:23} = {value}"
    yield ""
    yield f"Slurmctld(primary) at {hello['node']} is UP"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "(null)"
    return str(value) if value not in ("", None) else "(null)"


def ping(session: Session, given: Given, words: list[str]) -> int:
    """Print the service's answer. Raises Failed without an answer."""
    print(f"Slurmctld(primary) at {session.call('Hello')['node']} is UP")
    return 0
