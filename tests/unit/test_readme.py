"""What the README shows and names is what nodectl draws and takes."""

from __future__ import annotations

import re
from pathlib import Path

from nodectl.binding import node
from nodectl.binding.options import request_of
from nodectl.cli.main import COMMANDS
from nodectl.client.run_options import OPTIONS
from nodectl.config_file.reader import build
from nodectl.machine.spec import from_spec
from nodectl.render import machine_text
from nodectl.render.occupants import occupation

# Of those that most steps have.
SRUNS = {
    "ntasks", "cpus-per-task", "chdir", "job-name", "jobid", "time", "mem", "mem-per-cpu", "oom-kill-step", "input",
    "output", "error", "label", "unbuffered", "pty", "verbose", "kill-on-bad-exit", "cpu-bind", "export", "propagate",
    "task-prolog", "task-epilog", "uid", "gid", "help",
}  # fmt: skip
README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_its_picture_is_what_topo_draws_while_that_step_runs() -> None:
    machine = from_spec("2s:4c:2t:2n")
    settings = node.settings_of(build({}), machine)
    whole = node.whole(machine, settings)
    layout = node.lay_out(machine, whole, request_of({"ntasks": 4, "cpu_bind": "cores"}, {}), settings, "node")
    tasks = [{"task": place.task, "cpus": f"{place.mask:x}"} for place in layout.tasks]
    step = {"job": 7, "step": 0, "user": "alice", "name": "solver", "ntasks": 4, "cpus": f"{whole:x}", "tasks": tasks}
    drawn = "\n".join(machine_text.draw(machine, occupation([step])))
    assert f"\n```\n{drawn}\n```\n" in README


def test_it_names_every_command_and_no_other() -> None:
    table = README.partition("## Commands")[2].partition("\n## ")[0]
    named = re.findall(r"`(?:nodectl )?([a-z][a-z-]*)[ `]", "\n".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE)))
    commands = {name for name, _ in COMMANDS}
    assert set(named) - {"command", "check", "try"} == commands
    called = re.findall(r"(?:^    (?:sudo )?|`|\$ )(?:\.venv/bin/)?nodectl ([a-z][a-z-]*)", README, re.MULTILINE)
    assert set(called) <= commands


def test_the_options_of_run_that_it_lists_are_those_that_are_not_sruns() -> None:
    listed = README.partition("Options of `run` are srun's")[2].partition("nodectl's own `")[2].partition("`")[0]
    known = {option.long for option in OPTIONS}
    assert {f"--{long}" for long in known - SRUNS} == set(listed.split())
