"""Thousands of commands as tasks of a step: each command takes the next free slot. Runs in the stepd, as root.

window.py    the commands that wait or run, and the limit of their number
task.py      the task of a command, and its start in a slot
lanes.py     commands that C starts one after the other, where nothing has to be called for one of them
work.py      starts, ends and timeouts of commands, and the events for the client
loop.py      `run_commands`: all of it, from the first command to the last
tally.py     counts of ended commands, some failures, the slowest commands
"""
