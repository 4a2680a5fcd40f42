"""Thousands of commands as tasks of one step: each takes the next free slot of the step. Runs in the stepd, as root.

commands.py  what a client sends: checked, with its size
window.py    the commands that wait or run, and how many may
task.py      the task that a command becomes, and how it starts in its slot
work.py      `run_commands`: commands into slots, ends, timeouts, what is told to the client
tally.py     what is kept of commands that have ended: counts, some failures, the slowest
"""
