"""`nodectl spank`: tools for authors of SPANK plugins.

`list` shows the stack as each context would load it, `check` examines a plugin without running it, `try` runs a plugin
in every context.
"""

import argparse

from nodectl.spank.contexts import CONTEXTS
from nodectl.spank.inspection.slurm_releases import RELEASES

_LIST = (
    "Plugins are read, not run; needs neither a service nor root. Exit status: 0; 1 when a required plugin cannot be "
    "used or the stack cannot be read."
)
_CHECK = (
    "Nothing of the plugin is run. An error is what makes it fail, or what is never called; a warning is neither. "
    "Exit status: 0 without errors, 1 with some, 2 when a file cannot be read."
)
_TRY = (
    "As in: nodectl spank try ./renice.so min_prio=-5 --renice=7 -- nice. "
    "Words behind PLUGIN are its arguments, as in plugstack.conf; those that begin with -- are its options, written "
    "--name=value, and so are options of `nodectl run`, as --mem=64M. As root a private node runs the "
    "daemon's, the job's and the step's contexts as a service would; other users have the allocator and the local "
    "context only. What a failure costs is shown by --fail HOOK:VALUE: "
    "the hook is called, and VALUE taken for its result; where several contexts call it, CONTEXT:HOOK:VALUE. "
    "Exit status: 0 every hook succeeded, and so did the program; 1 a hook failed, was refused, crashed or took too "
    "long; 2 the words make no sense or a file cannot be read; 3 all that could be tried succeeded, but not every "
    "context could be tried; 4 every hook succeeded and the program did not."
)
_TRY_USAGE = (
    "nodectl spank try [OPTION]... PLUGIN [ARGUMENT | --PLUGIN-OPTION | --RUN-OPTION | OPTION]... "
    "[-- PROGRAM [ARGUMENT]...]"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands below `nodectl spank` to the parser."""
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="the stack as it would load, per context", epilog=_LIST)
    listing.add_argument(
        "--context", choices=[context.name for context in CONTEXTS], help="this context only", metavar="CONTEXT"
    )
    listing.add_argument("--plugstack", metavar="FILE", help="instead of plugstack_config of the configuration")
    listing.add_argument("--json", action="store_true", help="print one JSON object")
    check = commands.add_parser("check", help="look at plugins without running them", epilog=_CHECK)
    check.add_argument("plugins", nargs="+", metavar="PLUGIN", help="a file: *.py, or a shared object")
    check.add_argument("--slurm", choices=RELEASES, help="also say what this release of Slurm would make of it")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    try_parser = commands.add_parser(
        "try",
        help="run one plugin in every context on this machine",
        epilog=_TRY,
        parents=[try_options()],
        allow_abbrev=False,
        usage=_TRY_USAGE,
    )
    # A single positional: argparse would drop a -- behind a second positional.
    try_parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="PLUGIN ...", help="a file: *.py, or a shared object"
    )


def try_options() -> argparse.ArgumentParser:
    """Return a parser of the own options of `try`, which may stand anywhere before `--`."""
    parser = argparse.ArgumentParser(prog="nodectl spank try", add_help=False, allow_abbrev=False)
    parser.add_argument("--optional", action="store_true", help="stack it as optional; required without this")
    parser.add_argument("-n", "--ntasks", type=int, default=1, metavar="N", help="tasks of the step (default 1)")
    parser.add_argument("--user", metavar="USER", help="who runs the step and its commands (root only)")
    parser.add_argument(
        "--fail", action="append", default=[], metavar="[CONTEXT:]HOOK:VALUE", help="take VALUE for a hook's result"
    )
    parser.add_argument("--timeout", type=int, default=10, metavar="SECONDS", help="for each hook (default 10)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit status."""
    if arguments.what == "list":
        from nodectl.lab.spank import list_command

        return list_command.main(arguments)
    if arguments.what == "check":
        from nodectl.lab.spank import check_command

        return check_command.main(arguments)
    from nodectl.lab.spank import try_command

    return try_command.main(arguments, try_options())
