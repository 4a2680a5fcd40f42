"""What `nodectl bulk` does beyond `nodectl run`: many short commands as tasks of one step. In the command's process.

Its names and habits are GNU parallel's. The way of a command: `sources` reads values, `template` makes a line of them,
`shell` the words that are executed, `conductor` sends these to the step and hears of their ends, `outputs` prints what
they wrote, `joblog` remembers them.
"""
