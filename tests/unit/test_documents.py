"""What README and the guides show and name is what nodectl draws and takes.

`python3 -P tests/unit/test_documents.py` prints docs/machine.svg anew, after a change of how a machine is drawn.
"""

from __future__ import annotations

import re
from pathlib import Path

from nodectl.cli.catalogue import commands
from nodectl.client.render import machine_svg, machine_text
from nodectl.client.render.occupants import occupation
from nodectl.client.run_options import OPTIONS
from nodectl.model.cpu_list import mask_of_list
from nodectl.placement.binding import node
from nodectl.placement.binding.options import request_of
from nodectl.placement.machine.spec import from_spec
from nodectl.service.config_file.reader import build

# Of those that most steps have.
SRUNS = {
    "ntasks", "cpus-per-task", "chdir", "job-name", "jobid", "time", "mem", "mem-per-cpu", "oom-kill-step", "input",
    "output", "error", "label", "unbuffered", "pty", "verbose", "kill-on-bad-exit", "cpu-bind", "export", "propagate",
    "task-prolog", "task-epilog", "uid", "gid", "help",
}  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
MACHINE = from_spec("2s:4c:2t:2n")
SETTINGS = node.settings_of(build({}), MACHINE)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def step(job: int, user: str, name: str, cpus: str, **options: object) -> dict[str, object]:
    """A step as the service tells of it, bound by `options` of `nodectl run` to what its job holds."""
    held = mask_of_list(cpus)
    allocation = node.whole(MACHINE, SETTINGS) & held
    layout = node.lay_out(MACHINE, allocation, request_of({"ntasks": 1, **options}, {}), SETTINGS, "node")
    tasks = [{"task": place.task, "cpus": f"{place.mask:x}"} for place in layout.tasks]
    return {
        "job": job,
        "step": 0,
        "user": user,
        "name": name,
        "ntasks": len(tasks),
        "cpus": f"{held:x}",
        "tasks": tasks,
    }


def three_users() -> str:
    """The picture of the README."""
    steps = (
        step(7, "alice", "solver", "0-7", ntasks=4, cpu_bind="cores"),
        step(8, "bob", "make", "8-9", ntasks=2, cpu_bind="threads"),
        step(9, "carol", "train", "10-15", cpus_per_task=6, cpu_bind="cores"),
    )
    return machine_svg.draw(MACHINE, occupation(steps)).rstrip() + "\n"


def test_the_picture_of_the_readme_is_what_topo_draws_while_these_steps_run() -> None:
    assert page("docs/machine.svg") == three_users()


def test_the_guides_picture_is_what_topo_draws_while_that_step_runs() -> None:
    drawn = "\n".join(
        machine_text.draw(MACHINE, occupation([step(7, "alice", "solver", "0-15", ntasks=4, cpu_bind="cores")]))
    )
    assert f"\n```\n{drawn}\n```\n" in page("docs/guides/layout.md")


def test_the_page_of_commands_names_every_command_and_no_other() -> None:
    rows = "\n".join(re.findall(r"^\| (.*?) \|", page("docs/commands.md"), re.MULTILINE))
    named = re.findall(r"`(?:nodectl )?([a-z][a-z-]*)[ `]", rows)
    assert set(named) - {"command", "check", "try"} == commands().keys()


def test_every_command_that_a_page_shows_is_there() -> None:
    pages = ("README.md", *(f"docs/{path.relative_to(ROOT / 'docs')}" for path in (ROOT / "docs").rglob("*.md")))
    shown = re.compile(r"(?:^    (?:sudo )?|`|\$ )(?:\.venv/bin/)?nodectl ([a-z][a-z-]*)", re.MULTILINE)
    known = commands()
    assert not [(name, word) for name in pages for word in shown.findall(page(name)) if word not in known]


def test_the_options_of_run_that_are_listed_as_its_own_are_those_that_are_not_sruns() -> None:
    table = page("docs/commands.md").partition("and nodectl's own:\n\n")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `--([a-z-]+)", table, re.MULTILINE)
    assert sorted(listed) == sorted(option.long for option in OPTIONS if option.long not in SRUNS)


if __name__ == "__main__":
    print(three_users(), end="")
