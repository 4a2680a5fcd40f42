"""The pages of sections 5 and 7: files, plugins, SPANK, the socket."""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator

import nodectl.model.wire
from nodectl import plugin_api, spank
from nodectl.cli.manual import log, prose, varlink
from nodectl.cli.manual.document import Block, Heading, OptionTerm, Page, Paragraph, Table, Terms
from nodectl.cli.manual.options import statuses
from nodectl.model.exit_statuses import GENERAL, OF_COMMANDS
from nodectl.model.launch_order import BATCH_HOOKS, HOOKS, SUSPENSION_HOOKS, Hook
from nodectl.plugin_host.kinds import KINDS
from nodectl.service.config_file.all_keys import KEYS
from nodectl.spank.contexts import CONTEXTS, short

_TOML = """
The configuration of the node, in TOML. A file that is not there means the defaults. A key that Slurm has too has
Slurm's name in snake_case. The file has to be root's, and writable by no other user.

`nodectl config` prints the values in force, `nodectl config --explain` this page as a file with these values.

    node_name = "node1"
    task_plugin = ["task/cgroup", "task/affinity"]
    constrain_ram_space = "yes"
    gres = ["Name=gpu Type=a100 File=/dev/nvidia[0-1] Cores=0-31"]

The service reads the file when it starts: `systemctl restart nodectld`, which leaves running steps alone. The keys
`container_*` are read again by `systemctl reload nodectld`.
"""
_PLUGSTACK = """
Says which SPANK plugins a step has, in which order, with which arguments. It is read anew at each launch, by root in
the step's process and by the user in the command; so both have to be able to read it, and root alone may write it. The
key `plugstack_config` names another file.

`#` begins a comment; words are parted by spaces and tabs; nothing can be quoted. A line is one of these:
"""
_LINES = (
    ("`required` PLUGIN [ARGUMENT...]", "A step fails if this plugin is missing, or one of its hooks fails."),
    ("`optional` PLUGIN [ARGUMENT...]", "A failure is told to the user, and the step goes on."),
    ("`include` PATTERN", "The files that match, in the order of their names; relative to this file's directory."),
)
_FOUND = """
PLUGIN is a path, or a name that is looked for in the directories of the key `plugin_dir` and their folders `spank`,
also with `.py` or `.so` behind it. A plugin that others than root could write is refused. A line that makes no sense
is left out and told.

`nodectl spank list` shows the stack as it would load. `nodectl spank try` runs a plugin without any stack.

    # a step's niceness, by --renice
    optional renice min_prio=-5
    required /opt/site/spank/quota.so home=/home
    include plugstack.conf.d/*.conf
"""
_SPANK = """
A SPANK plugin adds options and hooks to the launch of a step. It is a shared object that was compiled for Slurm, which
runs unmodified, or a Python file. `plugstack.conf`(5) lists the plugins of a node.

In C, include `slurm/spank.h`, nodectl's or Slurm's own:

    cc -shared -fPIC -I"$(nodectl plugins --include)" -o mine.so mine.c

In Python, import `nodectl.spank`:

    from nodectl.spank import spank_setenv

    plugin_type = "spank"
    plugin_name = "hello"
    plugin_version = (22, 5, 8)

    def slurm_spank_task_init(sp, ac, argv):
        spank_setenv(sp, "HELLO", "world")

Then try it, in every context, without a service:

    sudo nodectl spank try ./mine.so

A hook returns 0, or a number below 0 for failure; in Python an exception is a failure too. A hook that crashes or takes
longer than `spank_hook_timeout` counts as failed.
"""
_PLUGINS = """
Plugins decide where a step runs, what it is confined to, and what happens around it. Those of the node are Python files
that keys of the configuration name; SPANK plugins (`nodectl-spank`(7)) are the step's.
"""
_VARLINK = """
The service speaks Varlink: JSON, each message ended by a NUL byte, on `/run/nodectl/nodectl.sock`. Each running step
has a socket of its own for root, `/run/nodectl/steps/J.S.sock`, which works while the service is away. Any Varlink
client can read the description and call the service:

    varlink info unix:/run/nodectl/nodectl.sock
    varlink call unix:/run/nodectl/nodectl.sock/org.nodectl.List '{}'
"""


def pages() -> Iterator[Page]:
    """Yield the pages of sections 5 and 7."""
    yield Page("nodectl.toml", 5, "configuration of nodectl", list(_keys()), ("nodectl-config(1)", "plugstack.conf(5)"))
    yield Page(
        "plugstack.conf", 5, "the SPANK plugins of nodectl", list(_stack()), ("nodectl-spank(1)", "nodectl-spank(7)")
    )
    yield Page("nodectl-spank", 7, "SPANK plugins for nodectl", list(_spank()),
               ("nodectl-spank(1)", "plugstack.conf(5)", "nodectl-plugins(7)"))  # fmt: skip
    yield Page("nodectl-exit-status", 7, "exit statuses of the commands of nodectl", list(_statuses()), ("nodectl(1)",))
    yield Page("nodectl-plugins", 7, "plugins of nodectl, and the order of a launch", list(_plugins()),
               ("nodectl-plugins(1)", "nodectl-select(1)", "nodectl.toml(5)", "nodectl-spank(7)"))  # fmt: skip
    yield log.page()
    yield Page("nodectl.varlink", 7, "the socket of nodectl", list(_socket()), ("nodectl(1)", "nodectl-daemon(1)"))


def _keys() -> Iterator[Block]:
    yield Heading("Description")
    yield from prose.blocks(_TOML)
    section = ""
    for key in KEYS:
        if key.section != section:
            section = key.section
            yield Heading(f"{section[0].upper()}{section[1:]}")
        # One list for each key: a section's chapters are linked to by their keys.
        yield Terms([(OptionTerm([key.name]),
                      f"{key.help} Allowed: {key.parser.allowed}. Default: {key.default_text()}.")])  # fmt: skip


def _stack() -> Iterator[Block]:
    yield Heading("Description")
    yield from prose.blocks(_PLUGSTACK)
    yield Terms(_LINES)
    yield from prose.blocks(_FOUND)


def _spank() -> Iterator[Block]:
    yield Heading("Description")
    yield from prose.blocks(_SPANK)
    yield Heading("Contexts")
    yield Paragraph("A plugin is loaded in several processes, which share no variables.")
    yield Table(
        ("Context", "Process", "Hooks"),
        [(f"`{one.name}`", one.process, ", ".join(short(call) for call in one.calls)) for one in CONTEXTS],
        "In {1}. Its hooks: {2}.",
    )
    yield Heading("Hooks of a launch")
    yield Paragraph("In the order in which they are called.")
    yield _launch(hook for hook in HOOKS if hook.kind == "spank")
    yield Heading("Functions")
    yield Paragraph("As Python has them. In C they have the parameters and results of the SPANK manual.")
    yield Terms([
        (f"`{name}{_signature(function)}`", prose.first_words(function.__doc__))
        for name, function in sorted(vars(spank).items())
        if name.startswith(("spank_", "slurm_")) and inspect.isfunction(function)
    ])  # fmt: skip
    items = [name for name in vars(spank) if name.startswith("S_") and not name.startswith("S_CTX_")]
    yield Heading("Items")
    yield Paragraph("For `spank_get_item`: " + ", ".join(f"`{name}`" for name in items) + ".")
    yield Heading("Errors")
    yield Paragraph(", ".join(f"`{name}`" for name in vars(spank) if name.startswith("ESPANK_")) + ".")


def _statuses() -> Iterator[Block]:
    yield Heading("Description")
    yield Paragraph("Most commands end with one of these.")
    yield statuses(GENERAL)
    for command, own in OF_COMMANDS.items():
        yield Heading(f"nodectl {command}", 2)
        yield statuses(own)


def _launch(hooks: Iterable[Hook]) -> Table:
    """Return a table of the order of a launch."""
    return Table(
        ("Call", "Process", "Identity", "Once for each", "What a failure costs"),
        [(f"`{hook.call}`", hook.process, hook.identity, hook.per, hook.costs) for hook in hooks],
        "{1}, as {2}, once for each {3}. If it fails: {4}.",
    )


def _signature(function: Callable[..., object]) -> str:
    return f"({', '.join(inspect.signature(function).parameters)})"


def _plugins() -> Iterator[Block]:
    yield Heading("Description")
    yield from prose.blocks(_PLUGINS)
    yield Heading("Kinds")
    yield Table(
        ("Kind", "What", "Named by", "Functions"),
        [(f"`{kind.name}`", kind.title, kind.key or "plugstack.conf", ", ".join(f"`{name}`" for name in kind.functions))
         for kind in KINDS.values()],
        "{1}; named by `{2}`. Functions: {3}.",
    )  # fmt: skip
    yield Heading("The order of a launch")
    yield _launch(HOOKS)
    yield Heading("Jobs", 2)
    yield Paragraph("Of a job that stands still or goes on, and of the step that runs a job's script.")
    yield _launch((*SUSPENSION_HOOKS, *BATCH_HOOKS))
    yield Heading("Writing one")
    yield from prose.blocks((plugin_api.__doc__ or "").partition("\n\n")[2])


def _socket() -> Iterator[Block]:
    yield Heading("Description")
    yield from prose.blocks(_VARLINK)
    directory = os.path.dirname(nodectl.model.wire.__file__)
    for name in ("org.nodectl", "org.nodectl.step"):
        with open(os.path.join(directory, f"{name}.varlink"), encoding="utf-8") as file:
            yield from varlink.sections(file.read())
