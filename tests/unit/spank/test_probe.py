"""The probe: what it writes down of a hook, and the failure it can put in place of a result."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

PLUGIN = """
from nodectl.spank import *
plugin_type = "spank"
plugin_name = "seen"
plugin_version = (22, 5, 8)

def slurm_spank_init(sp, ac, argv):
    slurm_info("hello")
    spank_setenv(sp, "NEW", "1")
    spank_setenv(sp, "OLD", "2")
    spank_unsetenv(sp, "GONE")
    try:
        spank_getenv(sp, "NOT_THERE")
    except SpankError:
        pass
    return 0

def slurm_spank_exit(sp, ac, argv):
    raise ValueError("no good")
"""
PROGRAM = """
import sys, types
sys.path.append({packages!r})
from nodectl.model import launch_order
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.tracing.recorder import Recorder
from nodectl.spank import S_CTX_REMOTE, stack, probe_variable
from nodectl.spank.handle import Spank
from nodectl.model.plugstack_entry import Entry

probe_variable.start_probe()
handle = Spank(S_CTX_REMOTE)
environment = dict(OLD="1", GONE="1", SAME="1")
Spank.job_environment = lambda self: environment
stacked = stack.Stack(PluginCaller(Recorder(-1, "stepd"), None, 0, 0, single_threaded=False), handle)
assert stacked.load([Entry({plugin!r}, (), required=True, origin="here", missing=False)])
print(stacked.call(launch_order.SPANK_INIT).rc, stacked.call(launch_order.SPANK_EXIT).rc)
"""


def probed(tmp_path: Path, fail: list[object], *, tried: bool = True) -> tuple[list[dict[str, Any]], str]:
    """The log's lines and the results of init and exit."""
    log, plugin, instructions = (tmp_path / name for name in ("log", "seen.py", "probe.json"))
    log.touch()
    plugin.write_text(PLUGIN)
    instructions.write_text(json.dumps({"log": str(log), "fail": fail}))
    for path in (plugin, instructions, tmp_path):
        path.chmod(0o755)
    code = PROGRAM.format(packages=sysconfig.get_paths()["purelib"], plugin=str(plugin))
    environment = {"_NODECTL_PROBE": str(instructions)} if tried else {}
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in log.read_text().splitlines()], done.stdout.strip()


def test_calls_their_results_and_changes_of_the_environment_are_written_down(tmp_path: Path) -> None:
    rows, _ = probed(tmp_path, [])
    assert [(row["what"], row.get("hook") or row.get("call")) for row in rows] == [
        ("enter", "load"),
        ("leave", None),
        ("enter", "slurm_spank_init"),
        ("call", "slurm_info"),
        ("call", "spank_setenv"),
        ("call", "spank_setenv"),
        ("call", "spank_unsetenv"),
        ("call", "spank_getenv"),
        ("leave", None),
        ("enter", "slurm_spank_exit"),
        ("leave", None),
    ]
    init = rows[2:9]
    assert len({row["id"] for row in init}) == 1
    assert init[1]["arguments"] == ["hello"]
    assert (init[5]["arguments"], init[5]["error"]) == (["NOT_THERE"], 3004)
    assert init[6]["changes"] == {"added": {"NEW": "1"}, "changed": {"OLD": "2"}, "removed": ["GONE"]}
    assert (rows[-1]["rc"], "no good" in rows[-1]["why"]) == (-1, True)


def test_a_failure_takes_the_place_of_the_result_of_a_hook_that_was_really_called(tmp_path: Path) -> None:
    rows, results = probed(tmp_path, [[2, "slurm_spank_init", 7]])
    assert results == "7 -1"
    assert [row["call"] for row in rows if row["what"] == "call"].count("spank_setenv") == 2
    left = next(row for row in rows if row["what"] == "leave" and "returned" in row)
    assert (left["rc"], left["returned"]) == (7, 0)


def test_a_process_outside_of_a_probe_run_has_no_probe(tmp_path: Path) -> None:
    assert probed(tmp_path, [[-1, "slurm_spank_init", 7]], tried=False) == ([], "0 -1")
