"""`nodectl schema`: print the JSON Schema of a command's `--json` output."""

import argparse
import sys

from nodectl.client.command import Failed
from nodectl.client.nearest import hint
from nodectl.client.render.table import table
from nodectl.client.render.terminal import put, terminal_width
from nodectl.model.schemas import files as schemas


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `nodectl schema` to the parser."""
    parser.add_argument(
        "command",
        nargs="*",
        metavar="COMMAND",
        help="of this command: queue, spank check, config explain; all are listed without",
    )
    parser.epilog = (
        "The number at the end of $id is the version. Fields may be added within one: pass over what you do not know."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the schema, or the list of all schemas. Return 0."""
    known = schemas.names()
    if not arguments.command:
        rows = []
        for name in known:
            schema = schemas.load(name)
            rows.append((name, schema["$id"].rpartition(":")[2], schema["title"]))
        put(table(("NAME", "VERSION", "OF"), rows, right=("VERSION",), width=terminal_width()))
        return 0
    name = "-".join(arguments.command)
    if name not in known:
        raise Failed(f"no schema {name[:40]!r}{hint(name, known)}; `nodectl schema` lists them", 2)
    sys.stdout.write(schemas.text(name))
    return 0
