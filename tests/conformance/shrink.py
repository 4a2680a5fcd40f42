"""Makes recordings.jsonl of the recordings of a real Slurm: `python3 shrink.py DIRECTORY`.

What is compared is kept, and of messages only what they say, as short facts; their words stay there.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

FILES = ("core", "fail", "crash", "opt", "stack", "say", "time", "prolog", "env", "misc", "io")
WITH_CALLS = ("01_srun_n1_true", "02_srun_n4_label", "03_sbatch_two_sruns")
CALLS = ("items", "env", "job_control", "getopt")
PROBED = "env/"  # scenarios whose programs tell of their surroundings
PROBE = '{"probe"'
OWN = ("TRACE_", "SRUN_DEBUG=")  # variables of who recorded
LONGEST = 400
LONGEST_FILE = 2000
FACTS = [
    (r"required plugin (\w+)\.so: (\w+)\(\) failed with rc=(-?\d+)", r"failed \1 \2 \3"),
    (r"Invalid --(\S+) argument: (.*)", r"invalid \1 \2"),
    (r"peer0: (tasks? [\d,-]+): Exited with exit code (\d+)", r"\1 exit \2"),
    (r"peer0: (tasks? [\d,-]+): (Killed|Terminated|Segmentation fault)", r"\1 signal \2"),
    (r"option '--(\S+)' requires an argument", r"needs argument \1"),
    (r"unrecognized option '--([\w-]+)", r"unrecognized \1"),
    (r"(\w[\w.-]*):(\d+): Failed to load plugin (\S+)\. Aborting", r"refused \1:\2 \3"),
    (r"(plugstack\.conf):(\d+): Invalid line", r"ignored \1:\2"),
    (r'option "(\S+)" provided by both', r"twice \1"),
    (r"DUE TO TIME LIMIT", "time limit"),
    (r"couldn't chdir to `(\S+)'", r"chdir \1"),
    (r'Invalid numeric value "(\S+)" for --(\S+)\.', r"number \1 \2"),
    (r"No command given", "no command"),
    (r"TaskProlog failed status=(\d+)", r"task prolog \1"),
    (r"say (\w+) (\w+)$", r"say \1 \2"),
    (r"^(taskepilog stderr)", r"\1"),
    (r"^((?:\d: )?err-\d)", r"\1"),
]


def facts(text: str) -> list[str]:
    """What the lines of a program's stderr say."""
    found = []
    for line in text.splitlines():
        for pattern, fact in FACTS:
            if match := re.search(pattern, line):
                found.append(match.expand(fact))
                break
    return found


def calls(record: dict[str, object]) -> dict[str, object]:
    """One hook's calls with their answers; the words that belong to a code are the code's."""
    kept: dict[str, object] = {key: record[key] for key in ("hook", "ctx", "task") if key in record}
    for group in CALLS:
        answers = record.get(group)
        if isinstance(answers, dict) and "skipped" not in answers:
            kept[group] = {
                name: {key: value for key, value in answer.items() if key != "str"} for name, answer in answers.items()
            }
    process: dict[str, object] = {
        "uids": [record[key] for key in ("ruid", "euid", "suid")],
        "gids": [record[key] for key in ("rgid", "egid", "sgid")],
        "umask": int(str(record["umask"]), 8),
        **{key: record[key] for key in ("groups", "cwd", "nice")},
    }
    kept["process"] = {name: {"val": value} for name, value in process.items()}
    return kept


def probes(text: str) -> list[dict[str, object]]:
    """What programs told of their surroundings."""
    found = []
    for line in text.splitlines():
        if line.startswith(PROBE):
            told = json.loads(line)
            variables = sorted(word for word in told["env"] if not word.startswith(OWN))
            limits = {name: soft for name, (soft, _) in told["rlimits"].items()}
            facts_of = {name: told[name] for name in ("umask", "nice", "cwd")}
            found.append({"env": variables, "uid": told["uid"][0], **facts_of, "limits": limits})
    return found


def shrink(row: dict[str, object], name: str) -> dict[str, object]:
    """One scenario."""
    kept: dict[str, object] = {"scenario": name, "command": row["command"]}
    # What a plugin was given is UTF-8 that was read as Latin-1.
    hooks = [line.encode("latin-1").decode("utf-8") for line in row.get("hook_order", [])]  # type: ignore[attr-defined]
    row = {**row, "hook_order": hooks}
    for theirs, ours in (("plugstack_conf", "plugstack"), ("hook_order", "hooks"), ("exit_status", "exit_status")):
        if theirs in row:
            kept[ours] = row[theirs]
    out = str(row.get("stdout") or "")
    if len(out) <= LONGEST:
        kept["stdout"] = out
    if row["command"][0] != "srun":  # type: ignore[index]
        files = {path: text for path, text in row.get("files", {}).items() if text}  # type: ignore[attr-defined]
        kept["files"] = {path: text for path, text in files.items() if len(text) <= LONGEST_FILE}
    if row.get("user", "alice") != "alice":
        kept["user"] = row["user"]
    if "slurm_conf_extra" in row:
        kept["configuration"] = row["slurm_conf_extra"]
    if name.startswith(PROBED):
        texts = [out, *row.get("files", {}).values()]  # type: ignore[attr-defined]
        kept["probes"] = [probe for text in texts for probe in probes(text)]
    kept["said"] = facts(str(row.get("stderr") or ""))
    kept["states"] = sorted(job["JobState"] for job in row.get("jobs", {}).values())  # type: ignore[attr-defined]
    traced = [record for record in row.get("trace", []) if "items" in record]  # type: ignore[attr-defined]
    if name.removeprefix("core/") in WITH_CALLS:
        is_run = row["command"][0] == "srun"  # type: ignore[index]
        wanted = traced if is_run else [record for record in traced if record["ctx"] == "ALLOCATOR"]
        kept["calls"] = [calls(record) for record in wanted]
    return kept


def words(rows: list[dict[str, object]]) -> dict[str, str]:
    """The words of each error code that plugins were shown."""
    found = {}
    for row in rows:
        for record in row.get("trace", []):  # type: ignore[attr-defined]
            for group in ("env", "job_control"):
                for answer in record.get(group, {}).values():
                    if isinstance(answer, dict) and "str" in answer:
                        found[str(answer["rc"])] = answer["str"]
    return dict(sorted(found.items()))


def main(directory: Path, target: Path) -> None:
    """Reads DIRECTORY/*.jsonl, writes `target`."""
    lines = []
    rows: list[dict[str, object]] = []
    for file in FILES:
        for line in (directory / f"{file}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            name = str(row["scenario"])
            lines.append(shrink(row, name if "/" in name else f"{file}/{name}"))
            rows.append(row)
    lines.append({"scenario": "words", "words": words(rows)})
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).parent / "recordings.jsonl")
