"""The command `nodectl`: a file for each subcommand, found by `main.py`.

Runs in the command, as its user. It may import every other package; code shared by two commands is in `client`,
`render` or `devtools`.
"""
