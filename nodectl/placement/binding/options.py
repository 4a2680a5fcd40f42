"""srun's options of layout and binding: a table for `nodectl run` and `nodectl bind`, and the options' joint meaning.

Rows are plain tuples, because the command that makes its parser of them must stay lean; `request_of` turns them into a
`LayoutRequest`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.placement.binding.cpu_bind import CpuBind
    from nodectl.placement.binding.request import LayoutRequest

COUNT, TEXT, FLAG = "count", "text", "flag"

# long option, letter, argument in the help, help, kind. The name under which a value travels is the long option's with
# underscores.
ROWS = (
    ("ntasks", "n", "N", "number of tasks (default 1)", COUNT),
    ("cpus-per-task", "c", "N", "CPUs for each task (default 1)", COUNT),
    ("nodes", "N", "MIN[-MAX]", "number of nodes", TEXT),
    ("distribution", "m", "DIST", "block|cyclic|plane=N|arbitrary[:block|cyclic|fcyclic[:...]][,Pack|NoPack]", TEXT),
    ("extra-node-info", "B", "S[:C[:T]]",
     "at least so many sockets, cores a socket, threads a core; binds to them", TEXT),
    ("sockets-per-node", "", "N", "nodes of at least N sockets", COUNT),
    ("cores-per-socket", "", "N", "nodes of at least N cores a socket", COUNT),
    ("threads-per-core", "", "N", "use N threads of a core", COUNT),
    ("ntasks-per-node", "", "N", "at most N tasks on a node", COUNT),
    ("ntasks-per-socket", "", "N", "at most N tasks on a socket", COUNT),
    ("ntasks-per-core", "", "N", "at most N tasks on a core", COUNT),
    ("hint", "", "HINT", "compute_bound|memory_bound|multithread|nomultithread", TEXT),
    ("cpu-bind", "", "BIND", "[quiet|verbose,][one_thread,]none|threads|cores|sockets|ldoms|map_cpu:LIST|mask_cpu:LIST|"
     "map_ldom:LIST|mask_ldom:LIST|rank|rank_ldom", TEXT),
    ("mem-bind", "", "BIND", "[quiet|verbose,][prefer,]none|rank|local|map_mem:LIST|mask_mem:LIST", TEXT),
    ("exact", "", "", "no more of the job than the tasks need", FLAG),
    ("exclusive", "", "", "a step: CPUs that no other step of the job has; a job: whole nodes", FLAG),
    ("overlap", "", "", "share CPUs with the job's other steps", FLAG),
    ("whole", "", "", "everything that the job has on its nodes", FLAG),
    ("overcommit", "O", "", "more than one task for a CPU", FLAG),
    ("core-spec", "S", "N", "leave N cores to the system", COUNT),
    ("thread-spec", "", "N", "leave N threads to the system", COUNT),
    ("mincpus", "", "N", "at least N CPUs on a node", COUNT),
    ("nodelist", "w", "NODES", "on these nodes", TEXT),
    ("exclude", "x", "NODES", "not on these nodes", TEXT),
    ("relative", "r", "N", "begin at the job's Nth node, from 0", COUNT),
    ("use-min-nodes", "", "", "of a range of nodes, the fewest", FLAG),
    ("network", "", "TYPE", "words about the job's network, for the select plugin", TEXT),
    # Read by binding/devices.py.
    ("gpus", "G", "[TYPE:]N", "GPUs of the job", TEXT),
    ("gpus-per-node", "", "[TYPE:]N", "GPUs of the job on each node", TEXT),
    ("gpus-per-task", "", "[TYPE:]N", "GPUs for each task", TEXT),
    ("gres", "", "gpu[:TYPE][:N]|shard[:TYPE][:N]", "devices of the job on each node, or shards of one device", TEXT),
    ("gpu-mem", "", "SIZE", "so much memory of a GPU that several jobs share, in MiB or with K, M, G, T", TEXT),
    ("gpu-bind", "", "BIND", "none|closest|map_gpu:LIST|mask_gpu:LIST|per_task:N|single:N", TEXT),
    ("gres-flags", "", "FLAGS", "enforce-binding: only CPUs near the devices", TEXT),
)  # fmt: skip

# srun reads these for options not given. Since 22.05 not SLURM_CPUS_PER_TASK: a step may differ from its job.
VARIABLES = {
    "SLURM_NTASKS": "ntasks", "SLURM_NPROCS": "ntasks", "SRUN_CPUS_PER_TASK": "cpus_per_task",
    "SLURM_DISTRIBUTION": "distribution", "SLURM_THREADS_PER_CORE": "threads_per_core",
    "SLURM_NTASKS_PER_NODE": "ntasks_per_node", "SLURM_NTASKS_PER_SOCKET": "ntasks_per_socket",
    "SLURM_NTASKS_PER_CORE": "ntasks_per_core", "SLURM_HINT": "hint", "SLURM_CPU_BIND": "cpu_bind",
    "SLURM_MEM_BIND": "mem_bind", "SLURM_EXACT": "exact", "SLURM_EXCLUSIVE": "exclusive", "SLURM_OVERLAP": "overlap",
    "SLURM_WHOLE": "whole", "SLURM_OVERCOMMIT": "overcommit", "SLURM_CORE_SPEC": "core_spec",
    "SLURM_THREAD_SPEC": "thread_spec", "SLURM_JOB_NUM_NODES": "nodes", "SLURM_NNODES": "nodes",
    "SLURM_USE_MIN_NODES": "use_min_nodes", "SLURM_GPUS": "gpus", "SLURM_GPUS_PER_NODE": "gpus_per_node",
    "SLURM_GPUS_PER_TASK": "gpus_per_task", "SLURM_GPU_BIND": "gpu_bind", "SLURM_GRES": "gres",
    "SLURM_STEP_GRES": "gres", "SLURM_GRES_FLAGS": "gres_flags", "SLURM_NETWORK": "network",
}  # fmt: skip

# The last name is no option: the text of SLURM_HOSTFILE travels under it.
NAMES = frozenset((*(row[0].replace("-", "_") for row in ROWS), "hostfile"))

# Most characters of a text. A list has a mask for each task, and comes back in the variables of every step.
LONGEST = 4096
_LONGER = {"cpu_bind": 131_072, "mem_bind": 131_072, "hostfile": 65_536}

_COUNTS = tuple(row[0].replace("-", "_") for row in ROWS if row[4] == COUNT)
DEVICES = frozenset({"gpus", "gpus_per_node", "gpus_per_task", "gres", "gpu_mem"})
"""Options that ask for the same: the largest of them counts."""
_FLAGS = tuple(row[0].replace("-", "_") for row in ROWS if row[4] == FLAG)
_UNITS_OF_LEVELS = ("", "sockets", "cores", "threads")
_LARGEST = 999_999_999


def changed(old: "Mapping[str, object]", new: "Mapping[str, object]") -> "dict[str, object]":
    """Return a job's earlier options with new ones in their place. One option of devices takes the place of all."""
    return {**{name: old[name] for name in old if DEVICES.isdisjoint(new) or name not in DEVICES}, **new}


def request_of(given: "Mapping[str, object]", environ: "Mapping[str, str]", hostfile: str = "") -> "LayoutRequest":
    """Turn options into a `LayoutRequest`; the command line takes precedence over the variables. Raises NoLayout.

    `given`: values by name, counts as int or text; names of options outside this table are ignored. `hostfile`: the
    text of SLURM_HOSTFILE, for -m arbitrary.
    """
    # Not at the top: the command needs the table only.
    from nodectl.placement.binding.hostlist import expand
    from nodectl.placement.binding.mem_bind import parse_mem_bind
    from nodectl.placement.binding.request import (
        UNLIMITED,
        LayoutRequest,
        parse_distribution,
        parse_geometry,
        parse_hint,
        parse_nodes,
    )

    values = gathered({**given, "hostfile": hostfile} if hostfile else given, environ)
    counts = {name: _count(name, values[name]) for name in _COUNTS if values.get(name) not in (None, "")}
    geometry = parse_geometry(str(values["extra_node_info"])) if values.get("extra_node_info") else ()
    for name, number in zip(("sockets_per_node", "cores_per_socket", "threads_per_core"), geometry, strict=False):
        counts[name] = number
    hint = parse_hint(str(values["hint"])) if values.get("hint") else ""
    bind = _cpu_bind(str(values.get("cpu_bind") or ""))
    if bind.asked or geometry or "ntasks_per_core" in counts or "threads_per_core" in counts:
        hint = ""  # Slurm's: these exclude the hint, which is then ignored
    if hint == "compute_bound":
        counts |= {"sockets_per_node": UNLIMITED, "cores_per_socket": UNLIMITED, "threads_per_core": 1}
        bind = bind.replace(unit="cores")
    elif hint == "memory_bound":
        counts |= {"cores_per_socket": 1, "threads_per_core": 1}
        bind = bind.replace(unit="cores")
    elif hint == "multithread":
        counts |= {"threads_per_core": UNLIMITED, "ntasks_per_core": UNLIMITED}
        bind = bind.replace(unit="threads")
    elif hint == "nomultithread":
        counts |= {"threads_per_core": 1}
        bind = bind.replace(unit="threads", one_thread=True)
    if not bind.unit:
        bind = bind.replace(unit=_implied_unit(bind.asked, counts, len(geometry)))
    distribution = parse_distribution(str(values["distribution"])) if values.get("distribution") else None
    return LayoutRequest(
        **counts,  # type: ignore[arg-type]  # the names are fields of counts
        nodes=parse_nodes(str(values["nodes"])) if values.get("nodes") else None,
        distribution=distribution,
        levels=len(geometry),
        hint=hint,
        cpu_bind=bind if bind.asked or bind.verbose else None,
        mem_bind=parse_mem_bind(str(values["mem_bind"])) if values.get("mem_bind") else None,
        nodelist=expand(str(values.get("nodelist") or "")),
        exclude=expand(str(values.get("exclude") or "")),
        hosts=tuple(hostfile.replace(",", " ").split()) if distribution and distribution.node == "arbitrary" else (),
        **{name: True for name in _FLAGS if values.get(name)},
    )


def gathered(given: "Mapping[str, object]", environ: "Mapping[str, str]") -> "dict[str, object]":
    """Return the options in force: the given options, and from the variables the rest. Raises NoLayout."""
    values: dict[str, object] = {}
    for variable in [variable for variable in VARIABLES if variable in environ]:
        name, text = VARIABLES[variable], environ[variable]
        if name not in values:
            values[name] = text.lower() not in ("0", "no", "false") if name in _FLAGS else text
    if str(values.get("distribution")).lower() == "plane":
        values["distribution"] = f"plane={environ.get('SLURM_DIST_PLANESIZE', '')}"
    values |= {name: value for name, value in given.items() if value is not None}
    for name in NAMES & values.keys():
        check_text(name, str(values[name]))
    return values


def check_text(name: str, text: str) -> None:
    """Refuse an overlong text before parsing. Raises NoLayout."""
    most = _LONGER.get(name, LONGEST)
    if len(text) > most:
        from nodectl.placement.binding.no_layout import NoLayout

        option = "SLURM_HOSTFILE" if name == "hostfile" else f"--{name.replace('_', '-')}"
        raise NoLayout(f"{option} is longer than {most} characters")


def _count(name: str, value: object) -> int:
    from nodectl.model.number import whole
    from nodectl.placement.binding.no_layout import NoLayout

    text = str(value)
    least = 0 if name in ("core_spec", "thread_spec", "relative") else 1
    number = whole(text, _LARGEST)
    if number is None or number < least:
        raise NoLayout(f'Invalid numeric value "{text[:20]}" for --{name.replace("_", "-")}.')
    return number


def _cpu_bind(text: str) -> "CpuBind":
    from nodectl.placement.binding.cpu_bind import CpuBind, parse_cpu_bind

    return parse_cpu_bind(text) if text else CpuBind()


def _implied_unit(asked: bool, counts: "Mapping[str, int]", levels: int) -> str:
    """Return the unit implied by options like -B, where --cpu-bind names no unit.

    Slurm adds this unit to a map or `none`, too, which only the variables show; but the unit of --threads-per-core only
    where the user asked for no binding at all.
    """
    if levels:
        return _UNITS_OF_LEVELS[levels]
    if "threads_per_core" in counts and not asked:
        return "threads"
    if "ntasks_per_core" in counts:
        return "cores"
    if "ntasks_per_socket" in counts:
        return "sockets"
    return ""
