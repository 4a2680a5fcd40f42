"""`nodectl completion`: print the completion script of a shell for nodectl's command lines."""

import argparse
import sys

from nodectl.client.completion.shells import SCRIPTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `nodectl completion` to the parser."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="bash|zsh|fish", help="which shell's")
    parser.epilog = (
        "systemd/install puts them where shells look. For one user: `source <(nodectl completion bash)` in ~/.bashrc; "
        "in ~/.zshrc, below compinit, `source <(nodectl completion zsh)`; `nodectl completion fish > "
        "~/.config/fish/completions/nodectl.fish`."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the script. Return 0."""
    sys.stdout.write(SCRIPTS[arguments.shell])
    return 0
