"""The command `nodectl`: one file for each subcommand, which `main.py` finds.

Runs in the command, as its user. It may import every other package; what two commands need stands below, in `client`,
`render` or `devtools`.
"""
