"""Makes cases/*.jsonl of placements measured on a real Slurm: `python3 shrink.py DIRECTORY`.

One file a machine: a line for the machine, then a line a case. What is compared is kept; of messages only what they
say, as a word. What a measurement did not write down is told from its outcome: the variables that `env-job` set, the
lines of host files.
"""

from __future__ import annotations

import json
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "cases"
# what a refusal says, and the word for it in the cases
REFUSALS = [
    (r"allocated CPUs are: (0x[0-9A-F]+)", r"outside \1"),
    (r"Entire node must be allocated for (\S+)", r"whole node \1"),
    (r"More processors requested", "too many CPUs"),
    (r"more threads per core than the job", "threads per core"),
    (r"Requested node configuration|specification can not be satisfied|nvalid node name", "no such nodes"),
    (r"unrecognized --(\S+) argument|Invalid --(\S+) specification", r"bad \1\2"),
    (r"hostlist specified", "hostlist"),
    (r"--relative|Only allocated", "nodes of the job"),
    (r"NUMA node|--mem-bind=|pre_launch", "no such NUMA node"),
]
# the environment that a case of env-job was run in, told from what slurmd made of it
ENVIRONMENTS: list[tuple[str, dict[str, str]]] = [
    (r'"SLURM_MEM_BIND": "quiet,local"', {"SLURM_MEM_BIND": "local"}),
    (r"manual binding", {"SLURM_CPU_BIND": "map_cpu:1,0"}),
    (r'"SLURM_DISTRIBUTION": "block:block:block"', {"SLURM_DISTRIBUTION": "block:block:block"}),
    (r'"SLURM_CPUS_PER_TASK": "2".*"SLURM_CPUS_ON_NODE": "4"', {"SRUN_CPUS_PER_TASK": "2"}),
    (r'"SLURM_CPUS_PER_TASK": "2"', {"SLURM_CPUS_PER_TASK": "2"}),
    (r'"SLURM_THREADS_PER_CORE": "1".* binding: threads,one_thread', {"SLURM_HINT": "nomultithread"}),
    (r'"SLURM_THREADS_PER_CORE": "1"', {"SLURM_THREADS_PER_CORE": "1"}),
    (r"JobId=\d+ binding: cores", {"SLURM_CPU_BIND": "cores"}),
    (r'"SLURM_CPUS_ON_NODE": "1"', {"SLURM_OVERCOMMIT": "1"}),
]
# lines of the host files, by what came of them: tasks per node, tasks on the node of task 0
HOSTFILES = {
    ("1(x4)", "0"): "n1 n2 n3 n4",
    ("1,2", "0,1"): "n2 n2 n1",
    ("1(x2),2(x2)", "0,4"): "n4 n3 n2 n1 n4 n3",
    ("3,1", "0,1,2"): "n1 n1 n1 n2",
    ("1", "0"): "n3",
}
TOLD = (
    "CPU_BIND", "MEM_BIND", "DISTRIBUTION", "TASKS_PER_NODE", "CPUS_PER_TASK", "THREADS_PER_CORE", "CPUS_ON_NODE",
    "GTIDS",
)  # fmt: skip


def runs(items: list[Any]) -> str:
    """Equal neighbours written once, with how many they are: `0-15*3 0`."""
    counted = [(json.dumps(item).strip('"').replace(" ", ""), len(list(group))) for item, group in groupby(items)]
    return " ".join(word if count == 1 else f"{word}*{count}" for word, count in counted)


def refusal(text: str) -> str:
    for pattern, word in REFUSALS:
        if match := re.search(pattern, text):
            return match.expand(word) if "\\" in word else word
    raise ValueError(f"not a refusal that is known: {text}")


def environ(raw: dict[str, Any]) -> dict[str, str]:
    if raw["group"] == "hostfile":
        told = raw["env"]
        return {"SLURM_HOSTFILE": HOSTFILES[told["SLURM_TASKS_PER_NODE"], told["SLURM_GTIDS"]]}
    if raw["group"] == "env-job":
        text = json.dumps(raw.get("env", {})) + " ".join(raw["slurmd"])
        words = [found for pattern, found in ENVIRONMENTS if re.search(pattern, text)]
        return words[0] if words else {}
    return {}


def case(raw: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {key: raw[key] for key in ("group", "mode", "alloc", "args", "exit") if key in raw}
    if environ(raw):
        kept["environ"] = environ(raw)
    if "allocated_cpus" in raw:
        kept["allocated"] = raw["allocated_cpus"]
    if not raw["cpus"] and not raw["exit"]:
        kept["refusal"] = "not started"  # srun says 0 though no task could be
        return kept
    if raw["exit"]:
        kept["refusal"] = refusal(raw.get("stderr", ""))
        return kept
    kept["cpus"] = runs(raw["cpus"])
    kept["step"] = raw.get("cgroup_cpus", "")  # of the node of task 0
    if "mems" in raw:
        kept["mems"] = runs(raw["mems"])
    if "mempolicy" in raw:
        kept["policies"] = runs(raw["mempolicy"])
    told = dict(raw.get("env", {}))
    if told.get("SLURM_TASKS_PER_NODE", "").isdecimal():
        del told["SLURM_GTIDS"]  # on one node these are all
    kept["env"] = {name: told[f"SLURM_{name}"] for name in TOLD if f"SLURM_{name}" in told}
    return kept


def machine(raw: dict[str, Any]) -> dict[str, Any]:
    conf = raw["slurm_conf"]
    parameters = re.search(r"^SlurmdParameters=(\S+)", conf, re.MULTILINE)
    selected = re.search(r"^SelectTypeParameters=(\S+)", conf, re.MULTILINE)
    boards = re.search(r" Boards=(\d+)", conf)
    return {
        "slurm": raw["slurm_version"],
        "boards": int(boards[1]) if boards else 1,
        "names": re.findall(r"^NodeName=(\S+)", conf, re.MULTILINE),
        "select_type_parameters": selected[1] if selected else "",
        "slurmd_parameters": parameters[1] if parameters else "",
        "lscpu": [list(row.values()) for row in raw["lscpu"]["cpus"]],
    }


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for path in sorted(Path(sys.argv[1]).glob("*.json")):
        raw = json.loads(path.read_text())
        lines = [machine(raw), *(case(one) for one in raw["cases"])]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (HERE / f"{path.stem}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
