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


# Compiled plugins with faults, by their names: the symbols without which, or with which other value, they are made.
_SYMBOLS = {
    "plugin_name": 'char plugin_name[] = "bad"', "plugin_type": 'char plugin_type[] = "spank"',
    "plugin_version": "unsigned int plugin_version = 0x160508",
    "spank_plugin_version": "unsigned int spank_plugin_version = 1",
    "hook": "int slurm_spank_user_init(spank_t sp, int ac, char **av) { (void)sp, (void)ac, (void)av; return 0; }",
}  # fmt: skip
_MISSING = _SYMBOLS["hook"].replace("return 0", "int no_such_function(void); return no_such_function()")
FAULTS: dict[str, dict[str, str]] = {
    "badmicro": {"plugin_version": "unsigned int plugin_version = 0x160501"},
    "badtype": {"plugin_type": 'char plugin_type[] = "task/bad"'},
    "nometa": {"plugin_name": "", "plugin_type": "", "plugin_version": ""},
    "nospankver": {"spank_plugin_version": ""},
    "nosyms": {"hook": ""},
    "unresolved": {"hook": _MISSING},
    "unresolved_now": {"hook": _MISSING},
}


def make_faulty(directory: Path) -> None:
    """The compiled plugins of `FAULTS`, and one that is no shared object."""
    directory.mkdir()
    for name, changes in FAULTS.items():
        source = directory / f"{name}.c"
        symbols = [text for text in ({**_SYMBOLS, **changes}).values() if text]
        source.write_text("#include <slurm/spank.h>\n" + ";\n".join(symbols) + ";\n", encoding="ascii")
        compile_plugin(source, directory / f"{name}.so", f"-Wl,-z,{'now' if name.endswith('_now') else 'lazy'}")
    (directory / "notelf.so").write_text("no shared object\n", encoding="ascii")


def compile_plugin(source: Path, target: Path, *options: str) -> None:
    """As the manual says: cc -shared."""
    include = Path(sysconfig.get_paths()["purelib"]) / "nodectl" / "include"
    words = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{include}", *options, "-o", str(target), str(source)]
    subprocess.run(words, check=True)
