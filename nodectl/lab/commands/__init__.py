"""The commands `nodectl spank` and `nodectl select`: their options; what they do is in `lab.spank` and `lab.selection`.

Runs in the command, as its user.
"""
