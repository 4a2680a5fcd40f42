"""The commands `nodectl trace`, `nodectl top` and `nodectl web`. Runs in the command, as its user.

What they show is in the other folders of `view`.
"""
