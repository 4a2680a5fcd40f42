"""GPUs and further devices for tasks: the devices of a job, the devices visible to a task, the CPUs near a device.

Owns: the options --gpus, --gpus-per-node, --gpus-per-task,
--gres=gpu, --gres=shard, --gpu-mem and --gpu-bind, the variables by which the makers' libraries choose a device. Pure
functions of values, in the daemon and in `nodectl bind`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nodectl.model import device_part, part_variables
from nodectl.model.cpu_list import cpus_of
from nodectl.model.device_part import ANYONE, FREE, MEMORY, SHARD, Load
from nodectl.model.number import whole
from nodectl.model.value_class import dataclass, replace
from nodectl.placement.binding.entries import Entries, shown
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.machine.declared_devices import GPU, LAST_MINOR, MOST, Device, memory_of
from nodectl.placement.machine.topology import Topology

_MOST_ASKED = 9999
# Each maker's library has a variable of its own. nodectl sets all of them, because the maker may be unknown.
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
# What `visible` reads: the last two have Slurm's own numbers of the same devices.
SEEN_BY = (*VISIBLE, "SLURM_JOB_ID", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
OF_STEP = ("SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE", *part_variables.ALL)
_NONE = ("", "-1", "NoDevFiles")
_BINDS = "none, closest, map_gpu:<list>, mask_gpu:<list>, per_task:<gpus> or single:<tasks>"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The devices requested for a step.

    `count` GPUs in all, 0 for none, or devices of another `name`; `per_task` of them for each task, 0 if the request
    has no number for each task. `bind` is the way of binding and `entries` its numbers or masks; `enforce`: use only
    CPUs near the devices. `shards` and `memory` (MiB): the part of a single device that is asked for instead.
    """

    count: int = 0
    per_task: int = 0
    type: str = ""
    bind: str = ""
    entries: tuple[int, ...] = ()
    enforce: bool = False
    name: str = GPU
    shards: int = 0
    memory: int = 0

    @property
    def is_share(self) -> bool:
        """True for a request for a part of a device."""
        return bool(self.shards or self.memory)

    def as_gres(self) -> dict[str, int]:
        """Return the request as a job's record counts it, by name or name:type; empty for no devices."""
        kind = f":{self.type}" if self.type else ""
        if self.is_share:
            parts = {SHARD: self.shards, MEMORY: self.memory}
            return {f"{name}{kind}": count for name, count in parts.items() if count}
        return {f"{self.name}{kind}": self.count} if self.count else {}


_NOTHING = Wanted()
_OPTIONS = frozenset({"gpus", "gpus_per_node", "gpus_per_task", "gres", "gpu_mem", "gpu_bind", "gres_flags"})


def of_gres(gres: Mapping[str, int]) -> list[Wanted]:
    """Return the requests of a job's record, those with a type first, for they have less to choose from."""
    found: list[Wanted] = []
    share = Wanted(1)
    for key, count in sorted(gres.items()):
        name, _, kind = key.partition(":")
        if name == SHARD:
            share = replace(share, shards=count, type=kind)
        elif name == MEMORY:
            share = replace(share, memory=count, type=kind)
        elif count:
            found.append(Wanted(count, type=kind, name=name))
    if share.is_share:
        found.append(share)
    return sorted(found, key=lambda one: not one.type)


def visible(devices: Sequence[Device], environ: Mapping[str, str]) -> tuple[Device, ...]:
    """Return the machine's devices visible to a program with the variables `environ`.

    Where a variable lists GPUs, these are all GPUs, under the names in the list: Slurm numbers a job's GPUs anew where
    it confines programs to them. Without a list all of the machine's devices are visible, but inside a Slurm job none.
    """
    listed = next((environ[name] for name in VISIBLE if name in environ), None)
    if listed is None and "SLURM_JOB_ID" not in environ:
        return tuple(devices)
    names = list(dict.fromkeys(word for word in (listed or "").split(",") if word not in _NONE))[:MOST]
    has_numbers = all(whole(name, LAST_MINOR) is not None for name in names)
    numbers = (environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS") or ",".join(names)).split(",")
    if len(numbers) != len(names):
        numbers = names
    of_machine = {str(device.number): device for device in devices if device.name == GPU}
    seen = []
    for place, (name, number) in enumerate(zip(names, numbers, strict=True)):
        known = of_machine.get(number, Device(GPU, 0))
        seen.append(replace(known, number=int(name)) if has_numbers else replace(known, number=place, id=name))
    return (*seen, *(device for device in devices if device.name != GPU))


def wanted(options: Mapping[str, str], ntasks: int) -> Wanted:
    """Return the devices requested by the options. Raises NoLayout.

    The options have their names without dashes: gpus, gpus_per_node, gpus_per_task, gres, gpu_bind, gres_flags.
    """
    if _OPTIONS.isdisjoint(options):
        return _NOTHING
    kind, per_task = _count("gpus-per-task", options.get("gpus_per_task", ""))
    count = per_task * ntasks
    of_shards, shards = "", 0
    for name, text in (("gpus", options.get("gpus", "")), ("gpus-per-node", options.get("gpus_per_node", ""))):
        other, number = _count(name, text)
        kind, count = kind or other, max(count, number)
    for word in filter(None, options.get("gres", "").split(",")):
        name, colon, text = word.partition(":")
        if name.lower() in ("none", GPU):
            other, number = _count("gres", _counted(text or colon or "1")) if name.lower() == GPU else ("", 0)
            kind, count = kind or other, max(count, number)
        elif name.lower() == SHARD:
            of_shards, shards = _count("gres", _counted(text or colon or "1"))
        elif text.rpartition(":")[2] != "0":  # a request for 0 of a missing device is fine
            raise NoLayout(f"--gres={word[:60]}: only {GPU} and {SHARD} can be asked for")
    memory = _memory(options.get("gpu_mem", ""))
    if shards or memory:
        if count:
            raise NoLayout(
                "GPUs are asked for, and a part of one: --gpus and its like give whole GPUs; leave one out; "
                "--gpus=0 overrides a script's line"
            )
        kind, count = of_shards or kind, 1
    bind, entries = _bind(options.get("gpu_bind", ""))
    if bind and bind != "none" and not count:
        raise NoLayout("--gpu-bind: no GPUs are asked for")
    enforce = "enforce-binding" in options.get("gres_flags", "").split(",")
    return Wanted(count, per_task, kind, bind, entries, enforce, shards=shards, memory=memory)


def _memory(text: str) -> int:
    amount = memory_of(text) if text else 0
    if amount < 0 or (text and not amount):
        raise NoLayout(f"--gpu-mem={text[:60]!r}: not an amount of memory, as 20G")
    return amount


def _counted(text: str) -> str:
    """Return the text behind --gres=gpu: with its number: of a type alone, one device is meant."""
    is_type = text[:1].isalnum() and not text.isdecimal() and ":" not in text
    return f"{text}:1" if is_type else text


def _count(option: str, text: str) -> tuple[str, int]:
    kind, _, number = text.rpartition(":")
    if not text:
        return "", 0
    count = whole(number, _MOST_ASKED)
    if count is None:
        raise NoLayout(f"--{option}={text[:60]!r}: not a number of devices, as 2 or a100:2")
    return kind, count


def _bind(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the way of binding and the numbers of the list, with repetitions `x*N` written out. Raises NoLayout."""
    words = text.split(",")
    if words[0].lower() in ("v", "verbose", "q", "quiet"):
        del words[0]
    way, _, rest = ",".join(words).partition(":")
    way = way.lower()
    if way in ("", "none", "closest"):
        if rest:
            raise NoLayout(f"--gpu-bind={text[:60]!r}: {way} takes no list")
        return way, ()
    if way not in ("map_gpu", "mask_gpu", "per_task", "single"):
        raise NoLayout(f"--gpu-bind={text[:60]!r}: give {_BINDS}")
    masks = way == "mask_gpu"
    entries = Entries(f"--gpu-bind={way}", masks=masks, highest=MOST - 1 if masks else _MOST_ASKED, noun="devices")
    for part in rest.split(","):
        entries.add(part)
    values = entries.values
    if len(values) > MOST:
        raise NoLayout(f"--gpu-bind={way}: more than {MOST} entries")
    if way in ("per_task", "single") and (len(values) != 1 or not values[0]):
        raise NoLayout(f"--gpu-bind={way}: {shown(rest)} is not one number from 1")
    return way, values


def near(device: Device, topology: Topology) -> int:
    """Return the mask of machine CPUs near a device; all online CPUs if neither gres.conf nor sysfs names any."""
    if device.cores is not None:
        cores = topology.cores
        mask = 0
        for core in device.cores:
            mask |= cores[core].mask if core < len(cores) else 0
        return mask or topology.online
    return device.cpus & topology.online or topology.online


def hold(  # the arguments of a choice
    devices: Sequence[Device], asked: Wanted, loads: Mapping[str, Load], cpus: int, topology: Topology, *,
    user: int = ANYONE, entire: bool = False,
) -> list[Device]:  # fmt: skip
    """Return the devices for a job: free devices of the requested type, near to `cpus` first, then by number.

    For a part of a device this is one device: of those with room the one that has least left, so that others stay
    whole; with `entire`, a whole device that has so much. `loads`: what jobs hold of the devices by key, `user`: the
    job's uid. Raises NoLayout if there are too few.
    """
    fitting = [device for device in devices if device.name == asked.name and asked.type in ("", device.type)]
    if asked.is_share:
        able = [one for one in fitting if device_part.part_for(one, asked.shards, asked.memory) is not None]
        if not able:
            raise NoLayout(f"{_said(asked)} asked for: {_largest(fitting)}")
        if not entire:
            return [_shared(able, asked, loads, cpus, topology, user)]
        fitting = able
    free = [device for device in fitting if loads.get(device.key, FREE) == FREE]
    if len(free) < asked.count:
        noun = f"GPU{'s' if asked.count != 1 else ''}" if asked.name == GPU else asked.name
        kind = f" of type {asked.type}" if asked.type else ""
        there = f"{len(fitting)}, of which {len(free)} are free" if fitting else "none"
        if not fitting and (types := {one.type for one in devices if one.name == asked.name and one.type}):
            there = f"those of type {', '.join(sorted(types))}"
        raise NoLayout(f"{asked.count} {noun}{kind} asked for: this node has {there}")
    free.sort(key=lambda device: (not near(device, topology) & cpus, device.number))
    return sorted(free[: asked.count], key=lambda device: device.number)


def _shared(
    able: Sequence[Device], asked: Wanted, loads: Mapping[str, Load], cpus: int, topology: Topology, user: int
) -> Device:
    places = []
    for device in able:
        part = device_part.part_for(device, asked.shards, asked.memory)
        load = loads.get(device.key, FREE)
        if part is not None and not device_part.conflict(device, load, part, user):
            left = (device.shards - load.shards, device.memory - load.memory)
            places.append((not load.is_shared, not near(device, topology) & cpus, left, device.number, device, part))
    if not places:
        raise NoLayout(f"{_said(asked)} asked for: no GPU that jobs may share has so much free")
    *_, device, part = min(places, key=lambda place: place[:4])
    return replace(device, part=str(part))


def _said(asked: Wanted) -> str:
    words = [_shards_of(asked.shards)] if asked.shards else []
    words += [f"{asked.memory} MiB"] if asked.memory else []
    return f"{' and '.join(words)} of a GPU{f' of type {asked.type}' if asked.type else ''}"


def _shards_of(count: int) -> str:
    return f"{count} shard{'s' if count > 1 else ''}"


def _largest(devices: Sequence[Device]) -> str:
    shards, memory = (max((getattr(one, name) for one in devices), default=0) for name in ("shards", "memory"))
    if not shards and not memory:
        return "this node has none that jobs share; the key gres says how many shards, or how much Memory=, a GPU has"
    has = [_shards_of(shards)] if shards else []
    has += [f"{memory} MiB of memory"] if memory else []
    return f"a GPU has {' and '.join(has)} at most, and a job's part is of one GPU"


def held_of(devices: Iterable[Device], keys: Iterable[str]) -> list[Device]:
    """Return the devices of these keys, each with the part that the key names, in the order of the devices."""
    parts = {device_part.device_of(key): key for key in keys}
    return [
        replace(device, part=parts[device.key].removeprefix(device.key)) if parts[device.key] != device.key else device
        for device in devices
        if device.key in parts
    ]


def within(held: Iterable[Device], *, entire: bool) -> list[Device]:
    """Return a job's devices as devices for its steps: the job's part of a device is all that steps can share.

    With `entire` only the devices that the job holds whole.
    """
    found = []
    for device in held:
        part = device_part.part_of(device.key)
        if part is None:
            found.append(device)
        elif not entire:
            found.append(replace(device, part="", shards=part.shards, memory=part.memory, one_user=False))
    return found


def cpus_near(held: Sequence[Device], allocation: int, asked: Wanted, need: int, topology: Topology) -> int:
    """Return the CPUs for the step's tasks: the CPUs of `allocation` near the devices if there are `need`, else all.

    Raises NoLayout if there are fewer than `need` and --gres-flags=enforce-binding forbids further CPUs.
    """
    mask = 0
    for device in held:
        mask |= near(device, topology) & allocation
    if mask.bit_count() >= need or not held:
        return mask or allocation
    if asked.enforce:
        raise NoLayout(f"{need} CPUs asked for, of which {mask.bit_count()} are near the GPUs (enforce-binding)")
    return allocation


def of_tasks(held: Sequence[Device], asked: Wanted, masks: Sequence[int], topology: Topology) -> list[list[Device]]:
    """Return the devices visible to each task. `masks`: the tasks' CPUs, 0 for an unbound task. Raises NoLayout."""
    if asked.bind in ("map_gpu", "mask_gpu"):
        return [_listed(held, asked, task) for task in range(len(masks))]
    if asked.bind == "closest":
        return [_closest(held, mask, topology) for mask in masks]
    if asked.bind == "single":
        tasks = asked.entries[0]
        return [[held[task // tasks % len(held)]] for task in range(len(masks))]
    each = asked.entries[0] if asked.bind == "per_task" else asked.per_task if not asked.bind else 0
    return _dealt(held, each, masks, topology) if each else [list(held) for _ in masks]


def _listed(held: Sequence[Device], asked: Wanted, task: int) -> list[Device]:
    entry = asked.entries[task % len(asked.entries)]
    numbers = {entry} if asked.bind == "map_gpu" else set(cpus_of(entry))
    found = [device for device in held if device.number in numbers]
    if len(found) < len(numbers) or not found:
        lost = min(numbers - {device.number for device in found}, default=0)
        have = ",".join(str(device.number) for device in held)
        raise NoLayout(f"--gpu-bind={asked.bind}: GPU {lost} is not allocated; allocated GPUs are: {have}")
    return found


def _closest(held: Sequence[Device], mask: int, topology: Topology) -> list[Device]:
    found = [device for device in held if _is_near(device, mask, topology)]
    return found or list(held)


def _dealt(held: Sequence[Device], each: int, masks: Sequence[int], topology: Topology) -> list[list[Device]]:
    """Give every task `each` devices, near devices first; when too few are left, begin anew with all.

    Raises NoLayout.
    """
    if each > len(held):
        raise NoLayout(f"{each} GPUs a task of the {len(held)} in the allocation")
    free: list[Device] = []
    given = []
    for mask in masks:
        if len(free) < each:
            free = list(held)
        free.sort(key=lambda device: device.number)
        free.sort(key=lambda device: not _is_near(device, mask, topology))
        given.append(sorted(free[:each], key=lambda device: device.number))
        del free[:each]
    return given


def _is_near(device: Device, mask: int, topology: Topology) -> bool:
    return not mask or bool(near(device, topology) & mask)


def step_environment(held: Sequence[Device], options: Mapping[str, str]) -> dict[str, str]:
    """Return the device variables common to all tasks of the step."""
    if not held:
        return {}
    numbers = ",".join(str(device.number) for device in held)
    variables = {"SLURM_JOB_GPUS": numbers, "SLURM_STEP_GPUS": numbers, "SLURM_GPUS_ON_NODE": str(len(held))}
    parts = [part for device in held if device.part and (part := device_part.part_of(device.key)) is not None]
    if shards := sum(part.shards for part in parts):
        variables[part_variables.SHARDS] = str(shards)
    if parts and all(part.memory for part in parts):
        variables[part_variables.MEMORY] = str(sum(part.memory for part in parts))
        variables[part_variables.MPS_LIMIT] = part_variables.mps_limit(parts[0].memory)
    for name in ("gpus", "gpus_per_node", "gpus_per_task", "gpu_bind"):
        if options.get(name):
            variables[f"SLURM_{name.upper()}"] = options[name]
    return variables


def task_environment(devices: Sequence[Device]) -> dict[str, str]:
    """Return the variables by which a task's libraries see only the task's devices."""
    names = ",".join(device.id or str(device.number) for device in devices)
    return dict.fromkeys(VISIBLE, names)
