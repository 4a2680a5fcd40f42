"""What select/cons_tres tells about itself and, in their NodeInfo, about its nodes."""

from __future__ import annotations

from nodectl.model.device_part import MEMORY, SHARD
from nodectl.selection.information import NodeInfo
from nodectl.selection.slurmctld import Parameters
from nodectl.selection.tres.state import State


def note(state: State, node: int) -> None:
    """Bring the information of a node up to date."""
    info = state.table[node].select_nodeinfo
    if type(info) is not NodeInfo:
        return
    use = state.uses[node]
    info.alloc_cpus, info.alloc_memory = state.cpus[node], use.memory
    info.weighted = float(state.cpus[node])
    words = [f"cpu={info.alloc_cpus}"] if info.alloc_cpus else []
    words += [f"mem={use.memory}M"] if use.memory else []
    counts: dict[str, int] = {}
    for device in use.shape.devices_of(use.gres):
        counts[device.name] = counts.get(device.name, 0) + 1
    for _, load in use.loads:
        for name, count in ((SHARD, load.shards), (MEMORY, load.memory)):
            counts[name] = counts.get(name, 0) + count
    gres = [f"gres/{name}={count}{'M' if name == MEMORY else ''}" for name, count in sorted(counts.items()) if count]
    info.tres = ",".join(words + gres)


def configuration(parameters: Parameters) -> list[tuple[str, str]]:
    """Return the answer for SELECT_CONFIG_INFO."""
    return [
        ("SelectTypeParameters", ",".join(parameters.settings.select_type_parameters)),
        ("OverSubscribe", f"{parameters.over_subscribe}:{parameters.share_count}"),
        ("DefMemPerCPU", str(parameters.def_mem_per_cpu)),
    ]
