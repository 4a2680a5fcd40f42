"""Options counted by GPU, rewritten as options counted by task or step, which the service knows.

Pure, over the options by name; a given option overrides a counted one.
"""

from nodectl.client.command import BadOption
from nodectl.model.number import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST = 10**6
_GPU = ("gres/gpu", "gres:gpu", "gpu")


def settle(values: "dict[str, Any]") -> None:
    """Change the options in place. Raises BadOption."""
    _bind(values)
    _tres_per_task(values)
    _per_socket(values)
    per_gpu = {name: values.pop(name) for name in ("ntasks_per_gpu", "cpus_per_gpu", "mem_per_gpu") if name in values}
    if not per_gpu:
        return
    ntasks = per_gpu.get("ntasks_per_gpu")
    gpus = count(values)
    if ntasks and not gpus and "ntasks" in values:
        gpus = -(-int(values["ntasks"]) // ntasks)
        values["gpus"] = str(gpus)
    if not gpus:
        raise BadOption(f"--{next(iter(per_gpu)).replace('_', '-')} wants GPUs: give --gpus, or another option of them")
    if ntasks:
        values.setdefault("ntasks", ntasks * gpus)
    if "cpus_per_gpu" in per_gpu and "cpus_per_task" not in values:
        values["cpus_per_task"] = max(1, per_gpu["cpus_per_gpu"] * gpus // int(values.get("ntasks", 1)))
    if "mem_per_gpu" in per_gpu and not values.keys() & {"mem", "mem_per_cpu"}:
        values["mem"] = per_gpu["mem_per_gpu"] * gpus


def count(values: "dict[str, Any]") -> int:
    """Return the number of GPUs asked for by the options."""
    found = 0
    for name, times in (("gpus", 1), ("gpus_per_node", 1), ("gpus_per_task", int(values.get("ntasks", 1)))):
        number = whole(str(values.get(name, "")).rpartition(":")[2], _MOST)
        found = max(found, (number or 0) * times)
    for word in str(values.get("gres", "")).split(","):
        name, _, rest = word.partition(":")
        if name.lower() == "gpu":
            number = whole(rest.rpartition(":")[2], _MOST) if rest else 1
            found = max(found, 1 if number is None else number)
    return found


def _bind(values: "dict[str, Any]") -> None:
    nearest = "g" in str(values.pop("accel_bind", ""))
    given = str(values.pop("tres_bind", ""))
    if given:
        name, _, way = given.partition(":")
        if name.lower() != "gres/gpu" or not way:
            raise BadOption(f"--tres-bind={given[:40]!r}: give gres/gpu:BIND, as of --gpu-bind")
        values.setdefault("gpu_bind", way)
    if nearest and count(values):
        values.setdefault("gpu_bind", "closest")


def _per_socket(values: "dict[str, Any]") -> None:
    text = str(values.pop("gpus_per_socket", ""))
    if not text:
        return
    kind, _, number = text.rpartition(":")
    each, sockets = whole(number, _MOST), whole(str(values.get("sockets_per_node", "")), _MOST)
    if not each:
        raise BadOption(f'Invalid numeric value "{text[:20]}" for --gpus-per-socket.')
    if not sockets:
        raise BadOption("--gpus-per-socket option requires --sockets-per-node specification")
    values.setdefault("gpus_per_node", f"{kind}:{each * sockets}" if kind else str(each * sockets))


def _tres_per_task(values: "dict[str, Any]") -> None:
    for word in filter(None, str(values.pop("tres_per_task", "")).split(",")):
        name, _, rest = word.replace("=", ":").partition(":")
        if name == "cpu":
            number = whole(rest, _MOST)
            if not number:
                raise BadOption(f'Invalid numeric value "{rest[:20]}" for --tres-per-task.')
            values.setdefault("cpus_per_task", number)
        elif name in _GPU:
            values.setdefault("gpus_per_task", rest or "1")
        else:
            raise BadOption(f"--tres-per-task: {word[:40]!r}: cpu:N and gres/gpu[:TYPE]:N are known")
