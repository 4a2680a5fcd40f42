"""`nodectl top`: the machine, the steps and jobs, live in a terminal.

It is the command's own process, as its user; Textual, an extra of ours, draws it.
"""
