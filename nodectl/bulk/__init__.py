"""A feature, `nodectl bulk`: many short commands as tasks of a step. In the command's process.

Names and habits are GNU parallel's. The way of a command: `sources` reads values, `template` makes a line of them,
`shell` makes the words to execute, `conductor` sends these to the step and learns of the end, `outputs` prints the
output, `joblog` remembers the command.
"""
