"""`nodectl slurm-commands`: write srun, sbatch, squeue and so on into a directory, or remove the files again.

Each file is a few lines of Python that lead to `nodectl/slurm/commands/`, for the interpreter of this installation: no
shell before it, and nothing of the user's surroundings in it.
"""

import argparse
import json
import os
import sys

from nodectl.client import safe_way, whole_file
from nodectl.client.command import Failed
from nodectl.client.render.table import table
from nodectl.client.render.terminal import put

COMMANDS = (
    ("srun", "run", "runs a step: of the job that it is typed in, else of a job of its own"),
    ("sbatch", "submit", "queues a batch script"),
    ("salloc", "alloc", "waits for an allocation; a command or a shell in it"),
    ("squeue", "queue", "lists jobs, steps with -s"),
    ("scancel", "cancel, signal", "ends or signals jobs and steps"),
    ("scontrol", "show, node, hold, release, update, requeue, suspend, resume", "shows and changes"),
    ("sinfo", "node", "shows the machine as partition and node"),
    ("sacct", "acct", "tells what jobs and steps used"),
    ("sprio", "queue", "tells what the priorities of waiting jobs are made of"),
    ("sstat", "acct", "tells what running steps have used so far"),
    ("sbcast", "bcast", "writes a file into a running job"),
    ("sattach", "attach", "shows what a running step's tasks write, types at its terminal"),
)
_MARK = "# Written by `nodectl slurm-commands`, which replaces and removes it."
_TEXT = """\
#!{python} {flags}
{mark}
import sys

sys.path += {path!r}
from nodectl.slurm.commands.entry import command  # noqa: E402

command({name!r}, config={config!r}, socket={socket!r})
"""
_LONGEST = 250  # bytes of a line #! that the kernel reads
_READ = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl slurm-commands` to the parser."""
    parser.add_argument("directory", nargs="?", metavar="DIR", help="where they go; made where there is none")
    parser.add_argument("--force", action="store_true", help="replace files that this command has not written, too")
    parser.add_argument("--remove", action="store_true", help="remove what this command has written there")
    parser.add_argument("--list", action="store_true", help="list the commands")
    parser.add_argument("--json", action="store_true", help='with --list: print one JSON object, {"commands": [...]}')
    parser.epilog = (
        "Scripts that were written for a cluster run unchanged where DIR stands first in PATH. --config and --socket, "
        "given before the command, are kept in what is written."
    )


def main(arguments: argparse.Namespace) -> int:
    """Write, remove or list the commands. Return 0."""
    if arguments.list:
        _list(as_json=arguments.json)
        return 0
    if not arguments.directory:
        raise Failed("give the directory for the commands, or --list", 2)
    directory = os.path.abspath(arguments.directory)
    try:
        if arguments.remove:
            print(f"{directory}: removed {', '.join(_remove(directory)) or 'nothing'}")
        else:
            _write(directory, arguments)
            names = " ".join(name for name, *_ in COMMANDS)
            print(f"{directory}: {names}; for a shell and its jobs: PATH={directory}:$PATH")
    except OSError as error:
        raise Failed(f"{directory}: {error.strerror}") from None
    return 0


def _remove(directory: str) -> list[str]:
    """Remove the commands. Return the names of the removed files. Raises OSError, Failed."""
    try:
        at = whole_file.open_directory(directory)
    except FileNotFoundError:
        return []
    try:
        removed = [name for name, *_ in COMMANDS if _is_ours(name, at)]
        for name in removed:
            os.unlink(name, dir_fd=at)
    finally:
        os.close(at)
    return removed


def _write(directory: str, arguments: argparse.Namespace) -> None:
    """Write the commands. Raises OSError, Failed."""
    if why := safe_way.why_not_root(directory):
        raise Failed(f"write into {directory}: {why}")
    os.makedirs(directory, mode=0o755, exist_ok=True)
    at = whole_file.open_directory(directory)
    try:
        taken = [name for name, *_ in COMMANDS if _is_foreign(name, at)]
        if taken and not arguments.force:
            raise Failed(f"{directory}: {', '.join(taken)}: not written by this command; --force replaces them")
        for name, *_ in COMMANDS:
            whole_file.write(at, name, 0o755, [os.fsencode(_text(name, arguments))])
    finally:
        os.close(at)


def _list(*, as_json: bool) -> None:
    if as_json:
        rows = [{"name": name, "nodectl": own.split(", "), "text": text} for name, own, text in COMMANDS]
        print(json.dumps({"commands": rows}, indent=2))
    else:
        put(table(("COMMAND", "AS NODECTL", "WHAT IT DOES"), COMMANDS))


def _text(name: str, arguments: argparse.Namespace) -> str:
    path = [entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")]
    flags = "-IS" if sys.flags.no_site else "-I"
    if " " in sys.executable or len(sys.executable) > _LONGEST:
        raise Failed(f"{sys.executable}: no line #! can name this interpreter: it is too long, or has blanks")
    settings = arguments.settings
    config = os.path.abspath(settings.config) if settings.config else None
    socket = os.path.abspath(settings.socket) if settings.socket else None
    return _TEXT.format(
        python=sys.executable, flags=flags, mark=_MARK, path=path, name=name, config=config, socket=socket
    )


def _is_foreign(name: str, at: int) -> bool:
    """Return True for an existing file not written by this command."""
    return name in os.listdir(at) and not _is_ours(name, at)


def _is_ours(name: str, at: int) -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    except OSError:
        return False
    try:
        return _MARK in os.read(fd, _READ).decode("utf-8", "replace").splitlines()[1:2]
    except OSError:
        return False
    finally:
        os.close(fd)
