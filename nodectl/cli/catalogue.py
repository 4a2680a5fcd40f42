"""All commands of `nodectl`: the core's own, and those of the installed features. Lean, but for the parsers."""

from nodectl.model import features
from nodectl.model.features import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from types import ModuleType


def _own(name: str, summary: str, file: str = "", *, reads_words: bool = False) -> Command:
    """Return a command of the core. `file`: without .py, where the name cannot be that of a module."""
    return Command(name, summary, f"nodectl.cli.{file or name}", reads_words=reads_words)


_CORE = (
    _own("run", "run a program, or several copies, now or when its turn comes", reads_words=True),
    _own("submit", "queue a batch script", reads_words=True),
    _own("resubmit", "submit an ended batch job, or its failed tasks, once more", reads_words=True),
    _own("alloc", "wait for an allocation; a command or a shell in it", reads_words=True),
    _own("bind", "tell on which CPUs a run would be, without running it", reads_words=True),
    _own("queue", "list jobs: waiting ones with the reason, running ones", "list_jobs"),
    _own("log", "print what a job has written; -f: follow it to its end"),
    _own("wait", "wait until jobs have ended, and end with their status"),
    _own("explain", "tell why a job waits, or by which rule a step was bound"),
    _own("cancel", "end jobs or steps, waiting or running"),
    _own("hold", "keep waiting jobs from starting"),
    _own("release", "let held jobs start"),
    _own("requeue", "end running batch jobs and queue them again"),
    _own("suspend", "stop all of a step, or of a job, until it is resumed"),
    _own("resume", "let a suspended step or job run again"),
    _own("update", "change a job, or the limits of a running step"),
    _own("ps", "list running steps"),
    _own("show", "show all that is known of a job or a step"),
    _own("signal", "send a signal to a step's tasks", "send_signal"),
    _own("attach", "see what a running step's tasks write; type at its terminal"),
    _own("enter", "open a shell in a running job's environment and directories"),
    _own("login", "choose the job that your login sessions join; --pam: for PAM"),
    _own("bcast", "write a file into the container of a running job"),
    _own("node", "list the machine as jobs see it; drain, resume, show it"),
    _own("topo", "draw the machine: sockets, caches, cores, and who is on them"),
    _own("reserve", "keep CPUs for users' jobs at a time: create, list, delete"),
    _own("fence", "keep login sessions in a corner, without GPUs: on, off, status"),
    _own("acct", "tell what jobs and steps used"),
    _own("report", "sum up what users used, by day, week or month"),
    _own("metrics", "print the node's numbers for Prometheus, or serve them"),
    _own("plugins", "list the plugins; --hooks: the order of a launch"),
    _own("config", "print the configuration; --explain: every key"),
    _own("init", "ask what a machine's owner decides; write the configuration"),
    _own("doctor", "check what this machine can and cannot do"),
    _own("completion", "print the script by which a shell completes command lines"),
    _own("schema", "print the JSON Schema of what a command prints with --json"),
    _own("daemon", "be the service"),
    _own("help", "print this list, or the help of a command"),
)
# The first command of each group in `nodectl --help`, and the title of the group.
_GROUPS = {
    "run": "Start work",
    "queue": "Look after jobs",
    "ps": "Look at steps, and into them",
    "node": "The machine",
    "acct": "What was used",
    "plugins": "The service and its plugins",
}


def commands() -> dict[str, Command]:
    """Return all commands by name, in the order of `nodectl --help`."""
    names = [command.name for command in _CORE]
    found = {command.name: command for command in _CORE}
    for feature in features.installed():
        for command in feature.commands:
            names.insert(names.index(command.after) + 1, command.name)
            found[command.name] = command
    return {name: found[name] for name in names}


def groups() -> list[tuple[str, list[Command]]]:
    """Return the titles of the groups, and the commands of each, in the order of `nodectl --help`."""
    found: list[tuple[str, list[Command]]] = []
    for name, command in commands().items():
        if name in _GROUPS:
            found.append((_GROUPS[name], []))
        found[-1][1].append(command)
    return found


def command_of(name: str) -> Command | None:
    """Return a command, None if there is no such command, or its feature is not installed."""
    return next((command for command in _CORE if command.name == name), None) or features.command(name)


def module_of(command: Command) -> "ModuleType":
    """Import and return the module of a command."""
    return features.module(command.module)


def parser_of(command: Command) -> "argparse.ArgumentParser":
    """Return the argparse parser of a command."""
    from nodectl.client.command_parser import CommandParser, status_lines  # not for a list of commands
    from nodectl.model.exit_statuses import of_command

    parser = CommandParser(prog=f"nodectl {command.name}", description=command.summary)
    module_of(command).add_arguments(parser)
    parser.epilog = " ".join(filter(None, (parser.epilog, status_lines(of_command(command.name)))))
    return parser
