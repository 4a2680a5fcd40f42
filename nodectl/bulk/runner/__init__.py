"""Thousands of commands as tasks of a step: each command takes the next free slot. Runs in the stepd, as root.

window.py    the commands that wait or run, and the limit of their number
task.py      the task of a command, and its start in a slot
work.py      `run_commands`: starts, ends and timeouts of commands, and the events for the client
tally.py     counts of ended commands, some failures, the slowest commands
"""
