"""`nodectl config`: print the configuration from the file and the defaults, as the service would read both.

Reads the file itself, as the user who asks; needs no service. The output is a valid configuration again.
"""

import argparse
import json
import textwrap

from nodectl.client.configuration import as_json, configured
from nodectl.client.render.terminal import put
from nodectl.model.config import Config
from nodectl.model.config.key import toml
from nodectl.service.config_file.all_keys import KEYS

_WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl config` to the parser."""
    parser.add_argument(
        "--explain", action="store_true", help="every key with what it does, what it may be, its default"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = (
        "A running service keeps what it read when it was started: `nodectl doctor` tells where the two differ."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the configuration. Return 0, or 1 if the file is not valid."""
    config = configured(arguments.settings.config)
    if arguments.json:
        print(json.dumps(explained(config) if arguments.explain else as_json(config), indent=2))
    elif arguments.explain:
        put(part for line in explain(config).splitlines() for part in _folded(line))
    else:
        put(f"{name} = {toml(value)}" for name, value in config)
    return 0


def _folded(line: str) -> list[str]:
    """Return a comment folded to a readable width, and any different line unchanged."""
    if not line.startswith("# "):
        return [line]
    return textwrap.wrap(line, _WIDTH, subsequent_indent="# ", break_long_words=False, break_on_hyphens=False)


def explained(config: Config) -> dict[str, object]:
    """Return each key with the value, and the description in the table of keys."""
    values = as_json(config)
    return {
        key.name: {
            "value": values[key.name],
            "group": key.section,
            "help": key.help,
            "allowed": key.parser.allowed,
            "default": key.default_text(),
        }
        for key in KEYS
    }


def explain(config: Config | None = None) -> str:
    """Return the text of `nodectl config --explain`, itself a valid file: each key with a help text.

    Without a configuration the keys are commented out.
    """
    blocks = []
    for key in KEYS:
        value = "# " + key.name if config is None else key.name
        value += f" = {toml(getattr(config, key.name))}" if config is not None else " ="
        text = f"# {key.help}\n# Allowed: {key.parser.allowed}.\n# Default: {key.default_text()}.\n"
        blocks.append(f"{text}{value}\n")
    return "\n".join(blocks)
