"""Completion of command lines: the answers to a shell's TAB.

Runs in a command of its own, `nodectl __complete`, as the typing user. It takes candidates from the tables of `--help`,
and asks a running service for names.
"""
