"""`nodectl select`: tools for authors of select plugins, which choose the nodes and cores of a job.

`check` examines a plugin and asks it hostile questions; `try` plays a workload against a plugin, or two beside each
other. Neither needs root or a service.
"""

import argparse

_CHECK = (
    "Its source is read; then it is loaded here, as the caller, and asked on a small table of nodes. An error "
    "is what makes the service refuse it, or what the service would not believe; a warning is neither. Exit status: 0 "
    "without errors, 1 with some, 2 when a file cannot be read."
)
_TRY = (
    "As in: nodectl select try ./mine.py select/linear --nodes '4*2s:16c,mem=64G,gpu=4' --generate jobs=1000,users=20 "
    "--svg plan.svg over_subscribe=no. Words with = are keys of the configuration. Nodes are groups with ; between "
    "them: [COUNT*]MACHINE[,mem=SIZE][,DEVICE=N[:TYPE]][,feature=NAME][,weight=N][,name=PREFIX], a machine as for "
    "`nodectl topo --machine`. A workload is a file in the Standard Workload Format or in JSON. Time is simulated. "
    "With --calls and --json each call is a line of JSON, the report is the last line. Exit status: 0 no rule was "
    "broken; 1 one was, or the plugin cannot be used; 2 the words make no sense or a file cannot be read."
)
_TRY_USAGE = (
    "nodectl select try PLUGIN [PLUGIN] --nodes SPEC (--workload FILE | --generate RECIPE) [OPTION]... [KEY=VALUE]..."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands below `nodectl select` to the parser."""
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="examine select plugins", epilog=_CHECK)
    check.add_argument("plugins", nargs="+", metavar="PLUGIN", help="a type such as select/linear, or a file")
    check.add_argument("--static", action="store_true", help="read it, and run nothing of it")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    trial = commands.add_parser(
        "try",
        help="play a workload against one or two plugins",
        epilog=_TRY,
        parents=[try_options()],
        allow_abbrev=False,
        usage=_TRY_USAGE,
    )
    # argparse takes no words on both sides of an option: they are sorted out where all of them are known.
    trial.add_argument("words", nargs=argparse.REMAINDER, metavar="PLUGIN ...", help="a type or a file; KEY=VALUE")


def try_options() -> argparse.ArgumentParser:
    """Return a parser of the options of `try`."""
    parser = argparse.ArgumentParser(prog="nodectl select try", add_help=False, allow_abbrev=False)
    parser.add_argument("--nodes", metavar="SPEC", default="2s:16c:2t,mem=128G", help="the nodes (default %(default)s)")
    parser.add_argument("--workload", metavar="FILE", help="the jobs: Standard Workload Format, or JSON")
    parser.add_argument(
        "--generate", metavar="RECIPE", help="make jobs up: N, or jobs=N,users=N,load=X,seconds=X (load 1 is full)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another N makes up other jobs (default 1)")
    parser.add_argument(
        "--epilog", type=float, default=0.0, metavar="SECONDS", help="an ended job holds what it had for so long"
    )
    parser.add_argument("--calls", action="store_true", help="print each call of the plugin with arguments and result")
    parser.add_argument("--jobs", action="store_true", help="print each job: when, where, how it ended")
    parser.add_argument("--svg", metavar="FILE", help="draw a Gantt chart, - for standard output")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def main(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit status."""
    if arguments.what == "check":
        from nodectl.lab.selection import check_command

        return check_command.main(arguments)
    from nodectl.lab.selection import try_command

    return try_command.main(arguments, try_options())
