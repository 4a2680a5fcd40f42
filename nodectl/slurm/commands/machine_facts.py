"""The machine as a node of a partition, for sinfo and scontrol show: facts from the service and the kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.session import Session
from nodectl.model.device_part import SHARD, as_tres, device_of
from nodectl.model.words import moment, user_name
from nodectl.placement.machine import topology
from nodectl.slurm.commands.job_fields import NULL
from nodectl.slurm.commands.release import RELEASE
from nodectl.slurm.commands.time_words import limit

Facts = Mapping[str, Any]
_SHORT = {"idle": "idle", "mixed": "mix", "allocated": "alloc", "draining": "drng", "drained": "drain"}


def read(session: Session) -> list[dict[str, Any]]:
    """Return a row for each node; here there is a single node."""
    nodes: Any = session.call("Nodes")["nodes"]
    config: Any = session.call("Config")["config"]
    hardware = topology.read()
    memory = _memory()
    system = os.uname()
    return [
        {
            **node,
            "partition": str(config.get("partition_name") or ""),
            "cluster": str(config.get("cluster_name") or ""),
            "max_time": config.get("max_time") or 0,
            "default_time": config.get("default_time") or 0,
            "over_subscribe": str(config.get("over_subscribe") or "no"),
            "parameters": ",".join(config.get("select_type_parameters") or ()).upper() or "NONE",
            "release": RELEASE,
            "sockets": len(hardware.sockets),
            "cores_per_socket": max(len(socket.cores) for socket in hardware.sockets),
            "threads_per_core": hardware.threads_per_core,
            "load": os.getloadavg()[0],
            "free": memory.get("MemFree", 0) // 1024,
            "booted": time.time() - float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]),
            "arch": system.machine,
            "os": f"{system.sysname} {system.release} {system.version}",
            "host": system.nodename,
        }
        for node in nodes
    ]


def _memory() -> dict[str, int]:
    """Return the values of /proc/meminfo in KiB, by name."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1}


def names_of(node: Facts) -> set[str]:
    """Return the node's names: from the configuration, and the machine's own."""
    return {str(node["name"]), os.uname().nodename, "localhost"}


def look_for_nodes(session: Session, names: Iterable[str]) -> None:
    """Check the names: each must mean this machine. Raises Failed."""
    nodes: Any = session.call("Nodes")["nodes"]
    known = set().union(*map(names_of, nodes))
    for name in names:
        if name not in known:
            raise Failed(f"Invalid node name {name[:40]}")


def state(node: Facts) -> str:
    """Return the node's state: idle, mixed, allocated, draining, drained."""
    return str(node.get("state") or "UNKNOWN").lower()


def short_state(node: Facts) -> str:
    """Return the node's state in sinfo's short form."""
    return _SHORT.get(state(node), state(node))


def scontrol_state(node: Facts) -> str:
    """Return the node's state in scontrol's form: IDLE+DRAIN."""
    if not state(node).startswith("drain"):
        return state(node).upper()
    if not node.get("jobs"):
        return "IDLE+DRAIN"
    return "ALLOCATED+DRAIN" if node["cpus_used"] >= node["cpus"] else "MIXED+DRAIN"


def gres(node: Facts, key: str = "gres") -> str:
    """Return the node's devices by kind: gpu:2."""
    keys = list(map(str, node.get(key) or ()))
    if key == "gres":  # here the parts are the device's capacity
        parts = as_tres(one for one in keys if "/" in one)
        kinds = {**as_tres(map(device_of, keys)), **{name: parts[name] for name in (SHARD,) if name in parts}}
    else:
        kinds = as_tres(keys)
    return ",".join(f"{name}:{count}" for name, count in kinds.items()) or NULL


def sharing(node: Facts) -> str:
    """Return OverSubscribe of the partition."""
    word, _, count = str(node["over_subscribe"]).partition(":")
    return f"{word.upper()}:{count or 4}" if word.lower() in ("yes", "force") else word.upper()


def reason(node: Facts) -> str:
    """Return why the node is drained."""
    return str(node.get("reason") or "none")


def reason_user(node: Facts) -> str:
    """Return the name of the user behind the reason."""
    return user_name(int(node["reason_uid"])) if node.get("reason") else "Unknown"


def node_facts(node: Facts) -> Iterator[list[str]]:
    """Yield scontrol's lines of Key=Value about the node."""
    features = ",".join(node.get("features") or ()) or NULL
    yield [f"NodeName={node['name']}", f"Arch={node['arch']}", f"CoresPerSocket={node['cores_per_socket']}"]
    yield [
        f"CPUAlloc={node['cpus_used']}", f"CPUEfctv={node['cpus']}", f"CPUTot={node['cpus']}",
        f"CPULoad={node['load']:.2f}",
    ]  # fmt: skip
    yield [f"AvailableFeatures={features}"]
    yield [f"ActiveFeatures={features}"]
    yield [f"Gres={gres(node)}"]
    if node.get("gres_used"):
        yield [f"GresUsed={gres(node, 'gres_used')}"]
    yield [f"NodeAddr={node['host']}", f"NodeHostName={node['host']}", f"Version={node['release']}"]
    yield [f"OS={node['os']}"]
    yield [
        f"RealMemory={node['memory']}", f"AllocMem={node['memory_used']}", f"FreeMem={node['free']}",
        f"Sockets={node['sockets']}", "Boards=1",
    ]  # fmt: skip
    yield [
        f"State={scontrol_state(node)}", f"ThreadsPerCore={node['threads_per_core']}", "TmpDisk=0", "Weight=1",
        "Owner=N/A", "MCS_label=N/A",
    ]  # fmt: skip
    yield [f"Partitions={node['partition']}"]
    yield [f"BootTime={moment(node['booted'])}", "SlurmdStartTime=Unknown"]
    yield [f"LastBusyTime={moment(time.time()) if node.get('jobs') else 'Unknown'}"]
    yield [f"CfgTRES=cpu={node['cpus']},mem={node['memory']}M,billing={node['cpus']}"]
    used = f"cpu={node['cpus_used']}"
    held = [f"mem={node['memory_used']}M"] if node["memory_used"] else []
    yield [f"AllocTRES={','.join([used, *held]) if node['cpus_used'] else ''}"]
    if node.get("reason"):
        yield [f"Reason={node['reason']} [{reason_user(node)}@{moment(node.get('reason_time'), 'Unknown')}]"]


def partition_facts(node: Facts) -> Iterator[list[str]]:
    """Yield scontrol's lines of Key=Value about the partition."""
    yield [f"PartitionName={node['partition']}"]
    yield ["AllowGroups=ALL", "AllowAccounts=ALL", "AllowQos=ALL"]
    yield ["AllocNodes=ALL", "Default=YES", "QoS=N/A"]
    default = limit(node["default_time"]) if node["default_time"] else "NONE"
    yield [f"DefaultTime={default}", "DisableRootJobs=NO", "ExclusiveUser=NO", "GraceTime=0", "Hidden=NO"]
    yield [
        "MaxNodes=UNLIMITED", f"MaxTime={limit(node['max_time'])}", "MinNodes=0", "LLN=NO",
        "MaxCPUsPerNode=UNLIMITED",
    ]  # fmt: skip
    yield [f"Nodes={node['name']}"]
    yield [
        "PriorityJobFactor=1", "PriorityTier=1", "RootOnly=NO", "ReqResv=NO", f"OverSubscribe={sharing(node)}"
    ]  # fmt: skip
    yield ["OverTimeLimit=NONE", "PreemptMode=OFF"]
    yield ["State=UP", f"TotalCPUs={node['cpus']}", "TotalNodes=1", f"SelectTypeParameters={node['parameters']}"]
    yield [f"JobDefaults={NULL}"]
    yield ["DefMemPerNode=UNLIMITED", "MaxMemPerNode=UNLIMITED"]
    yield [f"TRES=cpu={node['cpus']},mem={node['memory']}M,node=1,billing={node['cpus']}"]
