"""Completion of command lines: what a shell asks for at a TAB.

Runs in a command of its own, `nodectl __complete`, as the user who types. It tells candidates of the tables of which
`--help` is made, and asks the service for names, where one runs.
"""
