"""The text of `nodectl run --help` and `--usage`: all options, in groups, and the options without meaning here."""

from typing import TYPE_CHECKING

from nodectl import __version__
from nodectl.client import mpi_program
from nodectl.client.command import Program
from nodectl.client.option_lines import columns, option_lines, status_lines, wrapped
from nodectl.client.run_options import OPTIONS, layout_options, waiting_options
from nodectl.client.srun import value_help
from nodectl.client.srun.names import ALIASES, IGNORED, rows
from nodectl.client.srun.options import FURTHER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodectl.client.run_options import Option, Parsed, RunParser

# Titles with the long names below them; what stands in none of them is below the first.
_GROUPS = {
    "Streams": "error input label open-mode output unbuffered",
    "How it ends": "disable-status kill-on-bad-exit oom-kill-step quit-on-interrupt signal time wait",
    "A job that may have to wait": "begin comment constraint contiguous deadline dependency hold immediate nice "
    "oversubscribe priority qos reservation account",
    "Memory, and what a step may use": "mem mem-per-cpu cpu-max cpu-weight io-max io-weight pids-max hugetlb-max "
    "propagate tmp container-ns secure",
    "GPUs": "gpus gpus-per-node gpus-per-socket gpus-per-task gres gpu-mem gres-flags gpu-bind accel-bind cpus-per-gpu "
    "mem-per-gpu ntasks-per-gpu ntasks-per-tres tres-bind tres-per-task",
    "Scripts and environment": "epilog export export-file preserve-env prolog task-epilog task-prolog",
    "Help": "help quiet test-only trace usage verbose version",
}
_LAYOUT = "Layout and binding"
# Titles by which srun's users look for them.
_SRUNS = {"The step": "Parallel run options", _LAYOUT: "Constraint options", "GPUs": "GPU scheduling options",
          "Help": "Help options"}  # fmt: skip


def answer(parser: "RunParser", parsed: "Parsed", configuration: "str | None") -> int:
    """Answer --help, --usage, --version, --mpi=list, --cpu-bind=help and similar options."""
    if "version" in parsed.values:
        print(f"nodectl {__version__}")
    elif "usage" in parsed.values:
        print(usage())
    elif asked := [name for name in value_help.TEXTS if parsed.values.get(name) == "help"]:
        print("\n".join(map(value_help.text, asked)))
    elif "help" not in parsed.values:
        print(mpi_program.types(configuration))
    else:
        print(text(parser.extra, columns()))
    return 0


def usage() -> str:
    """Return the usage line, with the name by which the command was called."""
    if Program.is_slurms():
        return f"Usage: {Program.name} [OPTIONS] executable [ARGS...]"
    return "Usage: nodectl run [OPTIONS] PROGRAM [ARGS...]"


def text(of_plugins: "Iterable[Option]", columns: int = 80) -> str:
    """Return the text of --help, with the plugins' options in a separate group."""
    lines = [usage(), "", "Run tasks of a program as one step."]
    if not Program.is_slurms():
        lines += wrapped("As in: nodectl run -n4 -c2 --mem=4G --time=1:00:00 ./solver", max(columns - 2, 20))
    for title, options in groups().items():
        shown = _SRUNS.get(title, title) if Program.is_slurms() else title
        lines += ["", f"{shown}:", *option_lines(options, columns)]
    lines += ["", "Without effect on one machine (-v tells):"]
    names = sorted(f"--{long}" + (f" (-{letter})" if letter else "") for long, letter, _ in rows(IGNORED))
    lines += [f"  {line}" for line in wrapped(", ".join(names), max(columns - 2, 20))]
    lines += ["", "Other names:"]
    others = ", ".join(f"--{old} is --{new}" for old, new in ALIASES.items())
    lines += [f"  {line}" for line in wrapped(others, max(columns - 2, 20))]
    if plugins := list(of_plugins):
        lines += ["", "Options provided by plugins:", *option_lines(plugins, columns)]
    lines += status_lines("run", columns)
    return "\n".join(lines)


def groups() -> "dict[str, list[Option]]":
    """Return the options by title."""
    layout = {option.long: option for option in layout_options()}
    known = {option.long: option for option in (*OPTIONS, *FURTHER, *waiting_options())}
    titles = {long: title for title, words in _GROUPS.items() for long in words.split()}
    titles = dict.fromkeys(layout, _LAYOUT) | {"cpu-bind": _LAYOUT} | titles
    found: dict[str, list[Option]] = {"The step": []}
    for title in (*_GROUPS, _LAYOUT):
        found[title] = []
    for option in (known | layout).values():
        found[titles.get(option.long, "The step")].append(option)
    return {title: sorted(options, key=lambda option: option.long) for title, options in found.items()}
