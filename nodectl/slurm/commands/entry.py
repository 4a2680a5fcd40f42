"""The process of a command called by Slurm's name. Lean: every step pays for `srun`."""

import posix as os  # the half in C: the other one is a millisecond of each step
import sys

from nodectl.cli import main as own
from nodectl.client.command import BadOption, BadUsage, Failed, GlobalOptions, Program, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def command(name: str, config: str | None = None, socket: str | None = None) -> "NoReturn":
    """Run the whole command. `config`, `socket`: from `nodectl slurm-commands`.

    Environment variables take precedence.
    """
    Program.name = name
    settings = GlobalOptions()
    if settings.config is None and settings.socket is None:
        settings.config, settings.socket = config, socket
    own.command(lambda: main(name, settings, sys.argv[1:]))


def version() -> str:
    """Return the line of --version."""
    from nodectl import __version__  # paid only where asked for
    from nodectl.slurm.commands.release import RELEASE

    return f"slurm {RELEASE} (nodectl {__version__})"


def main(name: str, settings: GlobalOptions, words: list[str]) -> int:
    """Run the command of this name. Return the exit status."""
    try:
        return _main(name, settings, words)
    except KeyboardInterrupt as end:
        return own.ended_by(end)


def _main(name: str, settings: GlobalOptions, words: list[str]) -> int:
    if words[:1] in (["-V"], ["--version"]):
        print(version())
        return 0
    if name == "srun":
        return own.run_step(settings, words)
    words = ["--help"] if words[:1] == ["--usage"] else words
    import importlib

    module = importlib.import_module(f"nodectl.slurm.commands.{name}")
    try:
        return int(module.main(settings, words))
    except BrokenPipeError:
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)  # the reader has seen enough; python's own flush at exit too
        return 141
    except BadUsage as wrong:
        print(f"{name}: {wrong}\n{Program.hint(name)}", file=sys.stderr)
        return wrong.status
    except (Failed, BadOption) as failed:
        complain(str(failed))
        return failed.status
