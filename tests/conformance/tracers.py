"""The tracer, a SPANK plugin in Python and in C, and a line of the recordings from what it writes of a hook."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodectl.model.step_number import BATCH, EXTERN
from rootful.node import NOBODY

HERE = Path(__file__).parent
TASK_HOOKS = ("task_init_privileged", "task_post_fork", "task_init", "task_exit")
LETTERS = {"LOCAL": "L", "REMOTE": "R", "ALLOCATOR": "A", "SLURMD": "D", "JOB_SCRIPT": "J"}
STEPS = {BATCH: "batch", EXTERN: "extern"}
RECORDED_UID = 2001


def line_of(record: Mapping[str, Any]) -> str:
    """A hook as the recordings write it."""
    letter, hook = LETTERS[record["ctx"]], record["hook"]
    plugin = "" if record["plugin"] == "trace" else f"{record['plugin']}!"
    step = f".{STEPS.get(record['step'], record['step'])}" if letter == "R" and hook != "option_cb" else ""
    task = f"[t{record['task']}]" if hook in TASK_HOOKS else ""
    uids = "/".join(str(RECORDED_UID if uid == NOBODY.pw_uid else uid) for uid in record["uids"])
    option = ""
    if hook == "option_cb":
        option = f"{{{record['optarg']},remote={record['remote']},ret={record['ret']}}}"
    returned = f"=>{record['ret']}" if record["ret"] else ""
    return f"{plugin}{letter}{step}:{hook}{task}(u{uids}){option}{returned}"


def make_tracer(path: Path) -> None:
    """The tracer under this name: a copy of its Python form, or its C form compiled."""
    if path.suffix == ".py":
        shutil.copy(HERE / "tracer.py", path)
    else:
        compile_plugin(
            HERE / "tracer.c", path, f'-DNAME="{path.stem}"', *(["-DTABLE"] if path.stem == "tracetab" else [])
        )


def compile_plugin(source: Path, target: Path, *options: str) -> None:
    """As the manual says: cc -shared."""
    include = Path(sysconfig.get_paths()["purelib"]) / "nodectl" / "include"
    words = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{include}", *options, "-o", str(target), str(source)]
    subprocess.run(words, check=True)
